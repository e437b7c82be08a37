#include "net/mem.hpp"

#include <array>
#include <atomic>
#include <map>
#include <shared_mutex>

#include "base/checked.hpp"
#include "base/failpoint.hpp"
#include "platform/host/rows.hpp"

namespace switchyard {
namespace {

class MemEndpoint final : public NetEndpoint {
 public:
  MemEndpoint(const NetContext& context, std::unique_ptr<NodeLink> link)
      : context_(context),
        members_(context.window.members.begin(), context.window.members.end()),
        whereabouts_(context.window.whereabouts.begin(), context.window.whereabouts.end()),
        link_(std::move(link)) {
    context_.window.link = link_.get();
    context_.window.reach = context.machine_ranks;
    context_.window.members = members_;
    context_.window.whereabouts = whereabouts_;
    context_.window.comm_id = context.comm_id;
  }

  Status register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) override {
    SWITCHYARD_ASSIGN(std::unique_ptr<Window> window, Window::create(context_.window, id, memory, num_bytes, deadline));
    const std::unique_lock lock(mutex_);
    regions_[id] = std::move(window);
    return {};
  }
  void deregister_region(uint32_t id) override {
    const std::unique_lock lock(mutex_);
    regions_.erase(id);
  }

  NetPost put(const NetPut& put) override {
    const std::shared_lock lock(mutex_);
    return put_from(put, place(put.from_region, context_.window.rank, put.from_offset, put.num_bytes));
  }
  NetPost put_value(const NetPut& put, uint64_t value) override {
    const std::shared_lock lock(mutex_);
    return put.num_bytes > sizeof(value) ? NetPost::kFailed : put_from(put, reinterpret_cast<const char*>(&value));
  }

  NetPost put_from(const NetPut& put, const char* from) {
    if (aborted_.load(std::memory_order_relaxed)) return NetPost::kFailed;
    // Before anything is written: nothing of a refused put arrives.
    char* word = nullptr;
    if (put.signal_value != 0) {
      word = place(put.signal_region, put.peer, put.signal_offset, sizeof(uint64_t));
      if (word == nullptr) return NetPost::kFailed;
    }
    if (put.num_bytes > 0) {
      char* to = place(put.to_region, put.peer, put.to_offset, put.num_bytes);
      if (to == nullptr || from == nullptr) return NetPost::kFailed;
      rows::copy_streaming(to, from, put.num_bytes);
      rows::drain();
    }
    SWITCHYARD_FAILPOINT("mem.put_copied");
    if (word != nullptr) {
      // release; pairs with the acquire in Gin::read_signal() and Barrier::heard()
      std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word)).fetch_add(put.signal_value, std::memory_order_release);
    }
    count_reusable(put.counter);
    return NetPost::kPosted;
  }

  NetPost flush() override { return aborted_.load(std::memory_order_relaxed) ? NetPost::kFailed : NetPost::kPosted; }
  NetPost deliver(Delivery& /*delivery*/) override { return flush(); }
  bool progress() override { return false; }
  void catch_up() override {}
  bool usable(int /*peer*/) const override {
    // acquire; pairs with the release in abort(): who sees the network's end sees the abort's word
    return !aborted_.load(std::memory_order_acquire);
  }
  uint64_t bytes_in_flight() const override { return 0; }
  void abort() override { aborted_.store(true, std::memory_order_release); }
  Status error() const override {
    return aborted_.load(std::memory_order_relaxed) ? Status::invalid_usage("the network endpoint was aborted") : Status();
  }

 private:
  // Address of a part of a region at a rank; null if there is no such region or it does not reach that far.
  char* place(uint32_t id, int rank, uint64_t offset, uint64_t num_bytes) const {
    const auto found = regions_.find(id);
    if (found == regions_.end() || rank < 0 || rank >= int(members_.size())) return nullptr;
    char* base = found->second->base(rank);
    return base != nullptr && range_fits(offset, num_bytes, found->second->size()) ? base + offset : nullptr;
  }

  NetContext context_;
  std::vector<int> members_;
  std::vector<Whereabouts> whereabouts_;
  std::unique_ptr<NodeLink> link_;
  std::shared_mutex mutex_;  // registrations against posts
  std::map<uint32_t, std::unique_ptr<Window>> regions_;
  std::atomic<bool> aborted_{false};
};

Result<std::unique_ptr<NetEndpoint>> connect_mem(const NetContext& context, Deadline deadline) {
  if (context.name != "mem") {
    return Status::invalid_usage(text("SWITCHYARD_NET=", context.name, ": network plugin 'mem' takes no more than its name"));
  }
  const RankRange machine = context.machine_ranks;
  if (machine.count != int(context.window.members.size())) {
    return Status::invalid_usage(text("network plugin 'mem' joins ranks of one machine, but only ", machine.count, " of ",
                                      context.window.members.size(), " ranks are here; choose another with SWITCHYARD_NET"));
  }
  std::unique_ptr<NodeLink> link;
  bool several_processes = false;
  for (const Whereabouts& there : context.window.whereabouts) {
    several_processes |= !there.same_process(context.window.whereabouts[size_t(context.window.rank)]);
  }
  if (several_processes) {
    SWITCHYARD_ASSIGN(link, NodeLink::create(context.window.bootstrap, context.comm_id, context.window.members,
                                             context.window.rank, deadline));
  }
  return std::unique_ptr<NetEndpoint>(std::make_unique<MemEndpoint>(context, std::move(link)));
}

}  // namespace

NetPlugin mem_plugin() { return {"mem", {true, true, true, false, ~uint64_t{0}}, &connect_mem}; }

}  // namespace switchyard
