#include "base/trace.hpp"

#include <algorithm>

namespace switchyard {
namespace {

// The line through two moments at which both clocks were read, anchored at the later one: records are young compared
// with the ring, and an error of the slope (the monotonic clock is steered) is multiplied by their age only.
class TickLine {
 public:
  TickLine(uint64_t first_ticks, uint64_t first_ns, uint64_t last_ticks, uint64_t last_ns)
      : last_ticks_(last_ticks),
        last_ns_(last_ns),
        ns_per_tick_(last_ticks > first_ticks ? double(last_ns - first_ns) / double(last_ticks - first_ticks) : 0) {}

  // A record of another thread may be a little younger than `last`.
  uint64_t to_ns(uint64_t ticks) const {
    return uint64_t(int64_t(last_ns_) + int64_t(double(int64_t(ticks - last_ticks_)) * ns_per_tick_));
  }

 private:
  uint64_t last_ticks_;
  uint64_t last_ns_;
  double ns_per_tick_;
};

}  // namespace

const char* trace_phase_name(TracePhase phase) {
  switch (phase) {
    case TracePhase::kDispatchSend: return "dispatch send";
    case TracePhase::kDispatchReceive: return "dispatch receive";
    case TracePhase::kCombineSend: return "combine send";
    case TracePhase::kCombineReceive: return "combine receive";
    case TracePhase::kWaitPeer: return "wait for peer";
    case TracePhase::kBarrier: return "barrier";
    case TracePhase::kBootstrap: return "bootstrap";
    case TracePhase::kWindow: return "window";
    case TracePhase::kPost: return "post";
    case TracePhase::kHandle: return "handle";
    case TracePhase::kCollective: return "collective";
    case TracePhase::kMask: return "mask";
    case TracePhase::kError: return "error";
    case TracePhase::kDispatch: return "dispatch";
    case TracePhase::kCombine: return "combine";
  }
  return "unknown";
}

TraceRing::TraceRing(uint64_t num_records)
    : mask_(std::bit_ceil(std::max<uint64_t>(num_records, 1)) - 1),
      slots_(std::make_unique<Slot[]>(mask_ + 1)),
      first_ticks_(read_ticks()),
      first_ns_(now_ns()) {}

std::vector<TraceRecord> TraceRing::snapshot() const {
  const uint64_t end_idx = num_recorded();
  const uint64_t begin_idx = end_idx > capacity() ? end_idx - capacity() : 0;
  const TickLine line(first_ticks_, first_ns_, read_ticks(), now_ns());
  std::vector<TraceRecord> records;
  records.reserve(end_idx - begin_idx);
  for (uint64_t record_idx = begin_idx; record_idx < end_idx; ++record_idx) {
    const Slot& slot = slots_[record_idx & mask_];
    Words words;
    for (size_t i = 0; i < words.size(); ++i) words[i] = slot[i].load(std::memory_order_relaxed);  // see record()
    if (words[3] != check_word(words, record_idx)) continue;
    records.push_back({.time_ns = line.to_ns(words[0]),
                       .value = words[1],
                       .epoch = uint32_t(words[2]),
                       .peer = uint16_t(words[2] >> 32),
                       .phase = TracePhase(uint8_t(words[2] >> 48)),
                       .edge = TraceEdge(uint8_t(words[2] >> 56))});
  }
  return records;
}

}  // namespace switchyard
