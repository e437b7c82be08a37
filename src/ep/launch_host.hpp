// Operations as tasks of host streams.
#pragma once
#include <atomic>

#include "base/failpoint.hpp"
#include "ep/admission.hpp"
#include "ep/launch.hpp"
#include "platform/host/stream.hpp"
#include "platform/runtime.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::ep {

// Posts run(stream) and, behind it, the question what went wrong. REQUIRES  what both refer to outlives the task.
template <class Run>
Status post_operation(StreamRef stream, OperationObserver& observer, Report& report, int rank, Run run) {
  const auto load = [](uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_relaxed); };
  return static_cast<Stream*>(stream.handle)->post([run, rank, load, &observer, &report](Stream& self) {
    set_failpoint_rank(rank);
    run(self);
    // A failure is why; faults beside it are consequences.
    if (load(report.failure) != 0) self.fail(observer.operation_failed());
    else if (load(report.fault) != 0) self.fail(observer.operation_faulty());
  });
}

}  // namespace switchyard::ep
