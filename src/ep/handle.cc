#include "ep/handle.hpp"

#include "ep/ht_handle.hpp"
#include "ep/ll_handle.hpp"

namespace switchyard::ep {

Result<size_t> Handle::memory_bytes(const Group& group, Layout layout, int topk) {
  return group.is_low_latency() ? LlHandle::memory_bytes(static_cast<const LlGroup&>(group), layout, topk)
                                : HtHandle::memory_bytes(static_cast<const HtGroup&>(group), layout, topk);
}

Result<std::unique_ptr<Handle>> Handle::create(Group& group, Layout layout, int topk, const HandleConfig& config) {
  return group.is_low_latency() ? LlHandle::create(static_cast<LlGroup&>(group), layout, topk, config)
                                : HtHandle::create(static_cast<HtGroup&>(group), layout, topk, config);
}

Handle::Handle(Group& group, Layout layout, int topk) : group_(group), layout_(layout), topk_(topk) {
  group.count_handle(1);
}

Handle::~Handle() {
  if (owns_memory_) group_.retire(memory_);
  group_.count_handle(-1);
}

Status Handle::take_memory(const HandleConfig& config, size_t num_bytes) {
  if (config.memory != nullptr && config.num_memory_bytes < num_bytes) {
    return Status::invalid_argument(text("handle_mem has ", config.num_memory_bytes, " bytes, needed are ", num_bytes));
  }
  if (reinterpret_cast<uintptr_t>(config.memory) % alignof(uint64_t) != 0) {
    return Status::invalid_argument(text("handle_mem must be aligned to ", alignof(uint64_t), " bytes"));
  }
  memory_ = config.memory;
  if (memory_ != nullptr) return {};
  SWITCHYARD_ASSIGN(memory_, group_.allocate(num_bytes));
  owns_memory_ = true;
  return {};
}

}  // namespace switchyard::ep
