#include <array>
#include <mutex>
#include <variant>

#include "ep/launch_host.hpp"
#include "ep/ll_kernel.hpp"
#include "ep/ll_launch.hpp"

namespace switchyard::ep {
namespace {

// The receive half of a staged operation, in the hands of whoever has time: the idle worker of the stream that sent, row
// by row, and then the task that completes it.
template <template <class> class Role>
class ReceiveHalf {
 public:
  explicit ReceiveHalf(const LlOp& op) : op_(op), context_(platform_, op_), role_(context_) {}
  ReceiveHalf(const ReceiveHalf&) = delete;
  ReceiveHalf& operator=(const ReceiveHalf&) = delete;

  bool done() const { return closed_; }
  // One step without waiting; true when something moved. Nobody is given up for being late: nobody waits yet.
  bool step() {
    if (closed_) return false;
    const bool moved = role_.step();
    if (role_.done()) close();
    return moved;
  }
  // Nobody will complete it: peers need not wait for this rank to read what it never will.
  void drop() {
    if (!closed_) close();
  }
  void finish() {
    if (closed_) return;
    HostPlatform::Waiter waiter(platform_, exchange_wait_ns(op_), op_.group.abort);
    run_roles(platform_, waiter, context_.overdue, role_);
    close();
  }

 private:
  void close() {
    close_operation(context_);
    closed_ = true;
  }

  const HostPlatform platform_{};
  const LlOp op_;
  LlContext<HostPlatform> context_;
  Role<HostPlatform> role_;
  bool closed_ = false;
};

class HostLauncher final : public LlLauncher {
 public:
  HostLauncher(OperationObserver& observer, TraceRing& trace)
      : observer_(observer), trace_(trace), running_(std::make_shared<std::mutex>()) {}

  [[gnu::hot]] Status launch(const LlOp& op, StreamRef stream) override {
    return post_operation(stream, observer_, *op.group.report, op.group.rank, [op, this](Stream& self) { run(op, self); });
  }

  Status launch_admission(const GroupView& group, Admission what, uint64_t admit_tag, StreamRef stream) override {
    return post_operation(stream, observer_, *group.report, group.rank, [group, what, admit_tag, this](Stream&) {
      const std::lock_guard lock(*running_);
      const TraceSpan span(trace_, TracePhase::kMask, kNoTracePeer, uint32_t(group.state->tag + 1));
      run_admission(HostPlatform{}, group, what, admit_tag);
    });
  }

  void forget(int slot) override {
    const std::lock_guard lock(*running_);
    if (const auto ahead = std::move(ahead_[size_t(slot)])) {
      std::visit([](auto& half) { half.drop(); }, ahead->half);
    }
  }

  int num_warps() const override { return 1; }

 private:
  struct Ahead {
    template <class Half>
    Ahead(std::in_place_type_t<Half> type, const LlOp& op, std::shared_ptr<std::mutex> mutex)
        : rank(op.group.rank), running(std::move(mutex)), half(type, op) {}
    const int rank;
    const std::shared_ptr<std::mutex> running;
    std::variant<ReceiveHalf<DispatchReceive>, ReceiveHalf<CombineReceive>> half;
  };

  static TracePhase phase_of(const LlOp& op) {
    const bool dispatch = op.kind == LlKind::kDispatch;
    if (op.part == LlPart::kSend) return dispatch ? TracePhase::kDispatchSend : TracePhase::kCombineSend;
    if (op.part == LlPart::kReceive) return dispatch ? TracePhase::kDispatchReceive : TracePhase::kCombineReceive;
    return dispatch ? TracePhase::kDispatch : TracePhase::kCombine;
  }

  void run(const LlOp& op, Stream& stream) {
    const std::lock_guard lock(*running_);
    const HostPlatform platform;
    if (op.part == LlPart::kReceive) {
      const TraceSpan span(trace_, phase_of(op), kNoTracePeer, uint32_t(op.group.ll_state().staged_tag[op.slot]));
      const std::shared_ptr<Ahead> ahead = std::move(ahead_[size_t(op.slot)]);
      std::visit([](auto& half) { half.finish(); }, ahead->half);
      return;
    }
    const TraceSpan span(trace_, phase_of(op), kNoTracePeer, uint32_t(op.group.state->tag + 1),
                         uint64_t(op.num_tokens) * op.token_bytes);
    if (op.group.masks_enabled) run_admission(platform, op.group, Admission::kAdopt, 0);
    if (op.kind == LlKind::kDispatch) run_dispatch(platform, op);
    else run_combine(platform, op);
    if (op.part == LlPart::kSend) receive_ahead(op, stream);
  }

  // The worker has nothing better to do than to take in what has come, until something is posted to it.
  void receive_ahead(LlOp op, Stream& stream) {
    op.part = LlPart::kReceive;
    std::shared_ptr<Ahead>& ahead = ahead_[size_t(op.slot)];
    if (op.kind == LlKind::kDispatch) {
      ahead = std::make_shared<Ahead>(std::in_place_type<ReceiveHalf<DispatchReceive>>, op, running_);
    } else {
      ahead = std::make_shared<Ahead>(std::in_place_type<ReceiveHalf<CombineReceive>>, op, running_);
    }
    stream.when_idle([mine = std::weak_ptr(ahead)] { return step_ahead(mine.lock()); });
  }

  static IdleResult step_ahead(const std::shared_ptr<Ahead>& ahead) {
    if (ahead == nullptr) return IdleResult::kOver;
    const std::unique_lock lock(*ahead->running, std::try_to_lock);
    if (!lock) return IdleResult::kNothingToDo;  // an operation of this group runs on another stream
    set_failpoint_rank(ahead->rank);
    return std::visit(
        [](auto& half) {
          if (half.done()) return IdleResult::kOver;
          return half.step() ? IdleResult::kMoved : IdleResult::kNothingToDo;
        },
        ahead->half);
  }

  OperationObserver& observer_;
  TraceRing& trace_;
  // Held by an operation, or by a step between operations; guards ahead_. Shared with steps that the launcher's end overtakes.
  const std::shared_ptr<std::mutex> running_;
  std::array<std::shared_ptr<Ahead>, kMaxStaged> ahead_;  // by slot
};

}  // namespace

std::unique_ptr<LlLauncher> make_host_launcher(OperationObserver& observer, TraceRing& trace) {
  return std::make_unique<HostLauncher>(observer, trace);
}

}  // namespace switchyard::ep
