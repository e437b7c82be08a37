// The group's allocator: the caller's functions where given, else the platform's.
#pragma once
#include "base/log.hpp"
#include "switchyard/ep/config.hpp"
#include "platform/runtime.hpp"

namespace switchyard::ep {

class Allocator {
 public:
  Allocator(Runtime& runtime, const AllocConfig& config) : runtime_(runtime), config_(config) {}

  Result<void*> allocate(size_t num_bytes) {
    if (config_.allocate == nullptr) return runtime_.allocate(num_bytes);
    void* memory = nullptr;
    const int error = config_.allocate(&memory, num_bytes, config_.context);
    if (error != 0 || memory == nullptr) {
      return Status::device_error(text("the caller's alloc_fn failed for ", num_bytes, " bytes with error ", error));
    }
    return memory;
  }
  void free(void* memory) {
    if (memory == nullptr) return;
    const Status freed = config_.free == nullptr ? runtime_.free(memory) : free_with_caller(memory);
    if (!freed.ok()) log(LogLevel::kWarn, freed.to_string());
  }

 private:
  Status free_with_caller(void* memory) {
    const int error = config_.free(memory, config_.context);
    return error == 0 ? Status() : Status::device_error(text("the caller's free_fn failed with error ", error));
  }
  Runtime& runtime_;
  AllocConfig config_;
};

}  // namespace switchyard::ep
