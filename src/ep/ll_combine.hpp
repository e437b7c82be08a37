// Low-latency combine: the protocol, written once for every platform (docs/protocol.md).
//
// Send: a rank copies its experts' results into its own outbox, one block per reader, and tells each reader when its
// block is complete. Results that are in a window all can reach are not copied: the reader takes them from there.
// Receive: a rank reads the rows of each of its tokens where they are and adds them up in k order, in FP32, rounding
// once. Nobody writes into another rank's memory but one line, so a late rank can't damage a later epoch.
#pragma once
#include "ep/ll_plan.hpp"

namespace switchyard::ep {

template <class P>
class CombineSend {
 public:
  SWITCHYARD_DEVICE explicit CombineSend(LlContext<P>& context)
      : c_(context), p_(context.p), at_(context.record()), record_(context.op.record), message_(context.p.warp_idx()) {}

  SWITCHYARD_DEVICE bool done() const { return stage_ == Stage::kDone; }

  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) return finish();
    switch (stage_) {
      case Stage::kGate: return gate();
      case Stage::kWaitGate: return wait_for_gate();
      case Stage::kStage: return stage_message();
      case Stage::kDone: return false;
    }
    return false;
  }

 private:
  enum class Stage { kGate, kWaitGate, kStage, kDone };

  // My outbox may be written again when every reader is done with it.
  SWITCHYARD_DEVICE bool gate() {
    if (p_.warp_idx() != 0) {
      stage_ = Stage::kWaitGate;
      return true;
    }
    if (next_peer_ < c_.num_ranks()) {
      if (c_.bank_free(next_peer_) == Await::kNotYet) return false;
      ++next_peer_;
      return true;
    }
    SWITCHYARD_KERNEL_FAILPOINT("ll.combine.banks_free");
    for (int reader = 0; reader < c_.num_ranks(); ++reader) {
      if (c_.masked(reader)) continue;
      if (read_in_place(reader)) offer_in_place(reader);
      else if (num_received(reader) == 0) tell_arrival(reader, 0);
    }
    p_.store_release(&c_.bank_state().plan_ready, uint64_t{1});  // release; pairs with wait_for_gate()
    stage_ = Stage::kStage;
    return true;
  }

  SWITCHYARD_DEVICE bool wait_for_gate() {
    if (p_.load_acquire(&c_.bank_state().plan_ready) == 0) return false;
    stage_ = Stage::kStage;
    return true;
  }

  SWITCHYARD_DEVICE int num_received(int source) const {
    return p_.read(&record_[at_.num_received(source)]) & ~kInPlaceBit;
  }

  // A reader that placed its rows itself knows where they are; rank-major places are known to everybody.
  SWITCHYARD_DEVICE bool read_in_place(int reader) const {
    if (!c_.op.in_place) return false;
    return !c_.op.expert_major || (p_.read(&record_[at_.num_received(reader)]) & kInPlaceBit) != 0;
  }

  SWITCHYARD_DEVICE void offer_in_place(int reader) {
    PeerLine* line = c_.told(reader);
    if (p_.lane() == 0) {
      p_.write(&line->token_offset, c_.op.token_window_offset);
      p_.write(&line->token_window, c_.op.token_window_id);
    }
    c_.tell_arrival(reader, uint32_t(num_received(reader)), kRowsInPlace);
  }

  // The rows of one message of one reader into its block of my outbox. Readers are taken starting with the next
  // rank, so that not everybody serves rank 0 first.
  SWITCHYARD_DEVICE bool stage_message() {
    if (reader_idx_ == c_.num_ranks()) return finish();
    const int reader = (c_.rank() + 1 + reader_idx_) % c_.num_ranks();
    if (message_ >= num_received(reader) || read_in_place(reader) || c_.masked(reader)) {
      ++reader_idx_;
      message_ = p_.warp_idx();
      return true;
    }
    if (c_.op.expert_major) {
      int row = p_.read(&record_[at_.first_row(reader, message_)]);
      for (int k = 0; k < c_.op.topk; ++k) {
        const int slot = p_.read(&record_[at_.slot(reader, message_, k)]);
        if (slot >= 0) stage_row(reader, row++, slot);
      }
    } else {
      stage_row(reader, message_, reader * c_.group().max_tokens + message_);
    }
    SWITCHYARD_KERNEL_FAILPOINT("ll.combine.row_staged");
    p_.drain();
    const int goal = num_received(reader);
    if (p_.fetch_add(&c_.rows_sent(reader), 1) + 1 == uint64_t(goal)) tell_arrival(reader, goal);
    SWITCHYARD_KERNEL_FAILPOINT("ll.combine.message_counted");
    message_ += p_.num_warps();
    return true;
  }

  SWITCHYARD_DEVICE void tell_arrival(int reader, int num_messages) {
    if (!c_.remote(reader)) return c_.tell_arrival(reader, uint32_t(num_messages), 0);
    const LlLayout& layout = c_.group().layout;
    c_.tell_remote_arrival(reader, uint32_t(num_messages), 0, layout.outbox(c_.bank, reader),
                           layout.returned(c_.bank, c_.rank()), num_rows_of(reader, num_messages) * c_.op.token_bytes);
  }

  // Rows of a reader's block of the outbox.
  SWITCHYARD_DEVICE uint64_t num_rows_of(int reader, int num_messages) const {
    if (num_messages == 0 || !c_.op.expert_major) return uint64_t(num_messages);
    uint64_t num_rows = uint64_t(p_.read(&record_[at_.first_row(reader, num_messages - 1)]));
    for (int k = 0; k < c_.op.topk; ++k) num_rows += p_.read(&record_[at_.slot(reader, num_messages - 1, k)]) >= 0;
    return num_rows;
  }

  SWITCHYARD_DEVICE void stage_row(int reader, int to_row, int from_row) {
    char* to = c_.outbox(c_.rank(), reader) + size_t(to_row) * c_.op.token_bytes;
    const char* from = c_.op.tokens + size_t(from_row) * c_.op.input_bytes;
    if (c_.op.quant == LlQuant::kNvfp4) {
      const float scale = p_.read(reinterpret_cast<const float*>(c_.op.scales) + from_row);
      p_.encode_nvfp4(from, to, c_.op.num_elements, scale);
    } else {
      p_.push(from, &to, 1, c_.op.token_bytes);
    }
  }

  SWITCHYARD_DEVICE bool finish() {
    stage_ = Stage::kDone;
    return true;
  }

  LlContext<P>& c_;
  const P& p_;
  const LlRecord at_;
  int32_t* record_;
  Stage stage_ = Stage::kGate;
  int next_peer_ = 0;
  int reader_idx_ = 0;
  int message_;
};

template <class P>
class CombineReceive {
 public:
  SWITCHYARD_DEVICE explicit CombineReceive(LlContext<P>& context)
      : c_(context), p_(context.p), at_(context.plan_layout()), plan_(context.plan()), token_(context.p.warp_idx()) {}

  SWITCHYARD_DEVICE bool done() const { return stage_ == Stage::kDone; }

  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) return finish();
    switch (stage_) {
      case Stage::kPlan: return plan();
      case Stage::kCollect: return collect();
      case Stage::kWaitAll: return wait_for_all();
      case Stage::kReduce: return reduce_token();
      case Stage::kDone: return false;
    }
    return false;
  }

 private:
  enum class Stage { kPlan, kCollect, kWaitAll, kReduce, kDone };

  SWITCHYARD_DEVICE bool plan() {
    stage_ = p_.warp_idx() == 0 ? Stage::kCollect : Stage::kWaitAll;
    SWITCHYARD_KERNEL_FAILPOINT("ll.combine.before_plan");
    if (p_.warp_idx() == 0) build_plan(c_, /*once_per_rank=*/!c_.op.expert_major);
    return true;
  }

  SWITCHYARD_DEVICE bool collect() {
    if (peer_ == c_.num_ranks()) {
      SWITCHYARD_KERNEL_FAILPOINT("ll.combine.all_arrived");
      p_.store_release(&c_.bank_state().all_arrived, uint64_t{1});  // release; pairs with wait_for_all()
      stage_ = Stage::kReduce;
      return true;
    }
    const PeerLine* line = c_.heard(peer_);
    const Await arrival = c_.await_rows(peer_, Phase::kCombineRows);
    if (arrival == Await::kNotYet) return false;
    if (arrival == Await::kReady && (p_.read(&line->flags) & kRowsInPlace) != 0 &&
        p_.read(&line->token_window) != c_.op.token_window_id) {
      c_.give_up(peer_, Phase::kWindowMismatch);
    }
    ++peer_;
    return true;
  }

  SWITCHYARD_DEVICE bool wait_for_all() {
    if (p_.load_acquire(&c_.bank_state().all_arrived) == 0) return false;
    stage_ = Stage::kReduce;
    return true;
  }

  SWITCHYARD_DEVICE bool reduce_token() {
    if (token_ >= c_.op.num_tokens) return finish();
    const char* rows[kMaxTopk];
    float weights[kMaxTopk];
    int num_rows = 0;
    for (int k = 0; k < c_.op.topk; ++k) {
      const int entry = token_ * c_.op.topk + k;
      const int owner = p_.read(&plan_[at_.dest(entry)]);
      if (owner < 0 || c_.masked(owner)) continue;
      const char* row = row_of(entry, owner);
      if (row == nullptr) continue;
      rows[num_rows] = row;
      weights[num_rows++] = c_.op.expert_major ? p_.read(&c_.op.weights_in[entry]) : 1.0f;
    }
    char* out = c_.op.out_tokens + size_t(token_) * c_.op.num_elements * dtype_bytes(c_.op.dtype);
    if (c_.op.quant == LlQuant::kNvfp4) p_.reduce_nvfp4(out, rows, weights, num_rows, c_.op.num_elements);
    else p_.reduce(c_.op.dtype, out, rows, weights, num_rows, c_.op.num_elements);
    SWITCHYARD_KERNEL_FAILPOINT("ll.combine.token_reduced");
    token_ += p_.num_warps();
    return true;
  }

  SWITCHYARD_DEVICE const char* row_of(int entry, int owner) const {
    const int index = p_.read(&plan_[at_.index(entry)]);
    const PeerLine* line = c_.heard(owner);
    if (p_.read(&line->num_rows) == 0) return nullptr;  // one of us had masked the other when it dispatched
    if ((p_.read(&line->flags) & kRowsInPlace) == 0) {
      const char* block = c_.remote(owner) ? c_.returned(owner) : c_.outbox(owner, c_.rank());
      return block + size_t(index) * c_.op.token_bytes;
    }
    const int64_t row = c_.op.expert_major ? p_.read(&c_.op.record[c_.record().final_slot(0, 0) + entry])
                                           : int64_t(c_.rank()) * c_.group().max_tokens + index;
    if (row < 0) return nullptr;
    return c_.op.token_windows[owner] + p_.read(&line->token_offset) + row * c_.op.input_bytes;
  }

  SWITCHYARD_DEVICE bool finish() {
    p_.drain();
    stage_ = Stage::kDone;
    return true;
  }

  LlContext<P>& c_;
  const P& p_;
  const LlPlan at_;
  int32_t* plan_;
  Stage stage_ = Stage::kPlan;
  int peer_ = 0;
  int token_;
};

// After a combine that was read in place: the results may be overwritten only when every reader is done.
template <class P>
class AwaitReaders {
 public:
  SWITCHYARD_DEVICE explicit AwaitReaders(LlContext<P>& context) : c_(context) {}
  SWITCHYARD_DEVICE bool done() const { return peer_ == c_.num_ranks(); }
  SWITCHYARD_DEVICE bool step() {
    if (c_.await(peer_, &c_.heard(peer_)->done, c_.tag, Phase::kReaders, true) == Await::kNotYet) return false;
    ++peer_;
    return true;
  }

 private:
  LlContext<P>& c_;
  int peer_ = 0;
};

}  // namespace switchyard::ep
