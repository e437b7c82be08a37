// Streams and events of the host flavour's CUDA runtime.
#include <map>
#include <memory>
#include <mutex>

#include "capi/host_cuda.hpp"
#include "platform/host/device.hpp"
#include "platform/host/event.hpp"

using namespace switchyard;
using host_cuda::guarded_cuda;
using host_cuda::report;
using host_cuda::stream_handle;

namespace {

struct TimedEvent {
  Event event;
  bool has_time;
};
// Shared: one thread may destroy an event while another waits for it.
using EventPtr = std::shared_ptr<TimedEvent>;

// The live events of this process, by handle: the C API has nothing but a pointer, and a stale one must be an error.
class EventTable {
 public:
  static EventTable& instance() {
    static EventTable& table = *new EventTable;  // never destroyed: threads may use events while the process exits
    return table;
  }
  cudaEvent_t add(EventPtr event) {
    const auto handle = reinterpret_cast<cudaEvent_t>(event.get());
    const std::lock_guard lock(mutex_);
    events_.emplace(handle, std::move(event));
    return handle;
  }
  EventPtr find(cudaEvent_t handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = events_.find(handle);
    return found == events_.end() ? nullptr : found->second;
  }
  bool remove(cudaEvent_t handle) {
    const std::lock_guard lock(mutex_);
    return events_.erase(handle) != 0;
  }

 private:
  mutable std::mutex mutex_;
  std::map<cudaEvent_t, EventPtr> events_;
};

EventPtr find_event(cudaEvent_t handle) { return EventTable::instance().find(handle); }

// Waiting for the default stream waits for the blocking streams it is ordered after; for another, for that one alone.
Result<Stream*> find_to_await(cudaStream_t stream) {
  const void* const handle = stream_handle(stream);
  return handle == nullptr ? Device::stream_for_post(nullptr) : Device::find_stream(handle);
}

// The error of a finished stream, given out once: unlike a CUDA context, a host stream survives it.
cudaError_t report_once(Stream& stream, const char* call) {
  return report(stream.take_error(), call, cudaErrorLaunchFailure);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  return guarded_cuda("cudaStreamCreateWithFlags", [&]() -> cudaError_t {
    if (pStream == nullptr || (flags & ~unsigned(cudaStreamNonBlocking)) != 0) return report(cudaErrorInvalidValue);
    const bool blocking = (flags & cudaStreamNonBlocking) == 0;
    auto stream = Device::current().create_stream(blocking ? StreamOrder::kBlocking : StreamOrder::kNonBlocking);
    if (!stream.ok()) return report(stream.status(), "cudaStreamCreate", cudaErrorOperatingSystem);
    *pStream = reinterpret_cast<cudaStream_t>(stream.value());
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* pStream) { return cudaStreamCreateWithFlags(pStream, cudaStreamDefault); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int) {
  return cudaStreamCreateWithFlags(pStream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return guarded_cuda("cudaStreamDestroy", [&]() -> cudaError_t {
    return report(Device::destroy_stream(stream_handle(stream)), "cudaStreamDestroy", cudaErrorInvalidResourceHandle);
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return guarded_cuda("cudaStreamSynchronize", [&]() -> cudaError_t {
    auto found = find_to_await(stream);
    if (!found.ok()) return report(found.status(), "cudaStreamSynchronize", cudaErrorInvalidResourceHandle);
    if (found.value()->on_worker()) return report(cudaErrorNotPermitted);
    static_cast<void>(found.value()->synchronize(Deadline::never()));  // its only error left is the sticky one
    return report_once(*found.value(), "cudaStreamSynchronize");
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return guarded_cuda("cudaStreamQuery", [&]() -> cudaError_t {
    auto found = find_to_await(stream);
    if (!found.ok()) return report(found.status(), "cudaStreamQuery", cudaErrorInvalidResourceHandle);
    return found.value()->idle() ? report_once(*found.value(), "cudaStreamQuery") : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return guarded_cuda("cudaStreamWaitEvent", [&]() -> cudaError_t {
    const EventPtr awaited = find_event(event);
    auto found = Device::stream_for_post(stream_handle(stream));
    if (!awaited || !found.ok()) return report(cudaErrorInvalidResourceHandle);
    if (flags != cudaEventWaitDefault) return report(cudaErrorInvalidValue);
    return report(found.value()->wait(awaited->event), "cudaStreamWaitEvent", cudaErrorLaunchOutOfResources);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return guarded_cuda("cudaLaunchHostFunc", [&]() -> cudaError_t {
    if (fn == nullptr) return report(cudaErrorInvalidValue);
    auto found = Device::stream_for_post(stream_handle(stream));
    if (!found.ok()) return report(found.status(), "cudaLaunchHostFunc", cudaErrorInvalidResourceHandle);
    return report(found.value()->post([fn, userData] { fn(userData); }), "cudaLaunchHostFunc",
                  cudaErrorLaunchOutOfResources);
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, enum cudaStreamCaptureMode) { return report(cudaErrorNotSupported); }

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* pGraph) {
  if (pGraph != nullptr) *pGraph = nullptr;
  return report(cudaErrorNotSupported);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus* pCaptureStatus) {
  if (pCaptureStatus == nullptr) return report(cudaErrorInvalidValue);
  *pCaptureStatus = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t, unsigned long long) {
  if (pGraphExec != nullptr) *pGraphExec = nullptr;
  return report(cudaErrorNotSupported);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return report(cudaErrorNotSupported); }

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return report(cudaErrorNotSupported); }

cudaError_t cudaGraphDestroy(cudaGraph_t) { return report(cudaErrorNotSupported); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return guarded_cuda("cudaEventCreateWithFlags", [&]() -> cudaError_t {
    constexpr unsigned int kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (event == nullptr || (flags & ~kKnown) != 0) return report(cudaErrorInvalidValue);
    if ((flags & cudaEventInterprocess) != 0) return report(cudaErrorNotSupported);
    auto created = std::make_shared<TimedEvent>();
    created->has_time = (flags & cudaEventDisableTiming) == 0;
    *event = EventTable::instance().add(std::move(created));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return EventTable::instance().remove(event) ? cudaSuccess : report(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return guarded_cuda("cudaEventRecord", [&]() -> cudaError_t {
    const EventPtr recorded = find_event(event);
    auto found = Device::stream_for_post(stream_handle(stream));
    if (!recorded || !found.ok()) return report(cudaErrorInvalidResourceHandle);
    return report(recorded->event.record(*found.value()), "cudaEventRecord", cudaErrorLaunchOutOfResources);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const EventPtr found = find_event(event);
  if (!found) return report(cudaErrorInvalidResourceHandle);
  return found->event.query() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return guarded_cuda("cudaEventSynchronize", [&]() -> cudaError_t {
    const EventPtr found = find_event(event);
    if (!found) return report(cudaErrorInvalidResourceHandle);
    return report(found->event.synchronize(Deadline::never()), "cudaEventSynchronize", cudaErrorUnknown);
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return guarded_cuda("cudaEventElapsedTime", [&]() -> cudaError_t {
    const EventPtr first = find_event(start), second = find_event(end);
    if (ms == nullptr) return report(cudaErrorInvalidValue);
    if (!first || !second || !first->has_time || !second->has_time) return report(cudaErrorInvalidResourceHandle);
    const auto elapsed = Event::elapsed_ms(first->event, second->event);
    if (elapsed.ok()) {
      *ms = elapsed.value();
      return cudaSuccess;
    }
    const bool pending = elapsed.status().code() == Code::kInProgress;
    return report(elapsed.status(), "cudaEventElapsedTime", pending ? cudaErrorNotReady : cudaErrorInvalidResourceHandle);
  });
}

}  // extern "C"
