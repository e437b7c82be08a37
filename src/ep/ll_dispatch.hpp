// Low-latency dispatch: the protocol, written once for every platform (docs/protocol.md).
//
// Send: each token's row goes once to every rank that holds one of its experts, into the sender's block of that
// rank's inbox, with a header that names the experts; the last row to a rank is followed by the arrival line.
// When the receiver's output is in a window that all can reach, counts are exchanged first and rows go straight to
// their final place; the inbox then gets headers only.
// Receive: sources are taken in rank order, their messages in token order, their experts in k order: that fixes the
// output order, so the same input gives the same bytes on every run.
#pragma once
#include "ep/ll_plan.hpp"

namespace switchyard::ep {

template <class P>
class DispatchSend {
 public:
  SWITCHYARD_DEVICE explicit DispatchSend(LlContext<P>& context)
      : c_(context), p_(context.p), at_(context.plan_layout()), plan_(context.plan()), token_(context.p.warp_idx()) {}

  SWITCHYARD_DEVICE bool done() const { return stage_ == Stage::kDone; }

  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) return finish();
    switch (stage_) {
      case Stage::kGate: return gate();
      case Stage::kConsent: return collect_consents();
      case Stage::kWaitPlan: return wait_for_plan();
      case Stage::kPush: return push_token();
      case Stage::kDone: return false;
    }
    return false;
  }

 private:
  enum class Stage { kGate, kConsent, kWaitPlan, kPush, kDone };
  static constexpr uint64_t kPlanInbox = 1;
  static constexpr uint64_t kPlanInPlace = 2;
  static constexpr uint64_t kConsentPatienceNs = 200'000;

  // Warp 0 makes the plan when every peer's bank is free; the other warps wait for it.
  SWITCHYARD_DEVICE bool gate() {
    if (p_.warp_idx() != 0) {
      stage_ = Stage::kWaitPlan;
      return true;
    }
    if (next_peer_ < c_.num_ranks()) {
      if (c_.bank_free(next_peer_) == Await::kNotYet) return false;
      ++next_peer_;
      return true;
    }
    SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.banks_free");
    build_plan(c_, /*once_per_rank=*/true);
    SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.planned");
    next_peer_ = 0;
    if (c_.op.in_place) {
      if (c_.op.expert_major) count_experts(c_);
      for (int peer = 0; peer < c_.num_ranks(); ++peer) tell_consent(peer);
      SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.consented");
      consented_ns_ = p_.now_ns();
      stage_ = Stage::kConsent;
    } else {
      publish_plan();
    }
    return true;
  }

  // "I have reached this dispatch: my output may be written", with my counts, which everybody's offsets need.
  SWITCHYARD_DEVICE void tell_consent(int peer) {
    if (c_.op.expert_major) {
      int32_t* counts = c_.board_at(peer, c_.rank());
      for (int id = p_.lane(); id < c_.group().num_experts; id += P::kLanes) {
        p_.write(&counts[id], p_.read(&plan_[at_.expert_count(id)]));
      }
    }
    PeerLine* line = c_.told(peer);
    if (p_.lane() == 0) {
      p_.write(&line->token_offset, c_.op.token_window_offset);
      p_.write(&line->scale_offset, c_.op.scale_window_offset);
      p_.write(&line->token_window, c_.op.token_window_id);
      p_.write(&line->scale_window, c_.op.scale_window_id);
    }
    p_.store_release(&line->consent, c_.tag);  // release; pairs with the acquire in collect_consents()
  }

  SWITCHYARD_DEVICE bool collect_consents() {
    if (next_peer_ < c_.num_ranks()) {
      const Await consent = c_.await(next_peer_, &c_.heard(next_peer_)->consent, c_.tag, Phase::kConsent);
      if (consent == Await::kNotYet) return go_on_without_consent();
      if (consent == Await::kReady && p_.read(&c_.heard(next_peer_)->token_window) != c_.op.token_window_id) {
        c_.give_up(next_peer_, Phase::kWindowMismatch);
      }
      ++next_peer_;
      return true;
    }
    SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.consents_collected");
    if (c_.op.expert_major) place_in_experts(c_);
    in_place_ = true;
    publish_plan();
    return true;
  }

  // A staged send must not wait for a rank that is late: its rows take the inboxes instead, which need nobody's consent.
  // Receivers learn from the arrival's flags which way each source's rows came.
  SWITCHYARD_DEVICE bool go_on_without_consent() {
    if (c_.op.part != LlPart::kSend || p_.now_ns() - consented_ns_ < kConsentPatienceNs) return false;
    publish_plan();
    return true;
  }

  SWITCHYARD_DEVICE void publish_plan() {
    for (int peer = 0; peer < c_.num_ranks(); ++peer) {
      if (p_.read(&plan_[at_.num_to(peer)]) == 0 && !c_.masked(peer)) tell_arrival(peer, 0);
    }
    p_.store_release(&c_.bank_state().plan_ready, in_place_ ? kPlanInPlace : kPlanInbox);  // release; pairs with wait_for_plan()
    stage_ = Stage::kPush;
  }

  SWITCHYARD_DEVICE bool wait_for_plan() {
    const uint64_t plan = p_.load_acquire(&c_.bank_state().plan_ready);
    if (plan == 0) return false;
    in_place_ = plan == kPlanInPlace;
    stage_ = Stage::kPush;
    return true;
  }

  SWITCHYARD_DEVICE void tell_arrival(int peer, uint32_t num_rows) {
    if (!c_.remote(peer)) return c_.tell_arrival(peer, num_rows, arrival_flags());
    const LlLayout& layout = c_.group().layout;
    c_.tell_remote_arrival(peer, num_rows, arrival_flags(), layout.departure(c_.bank, peer),
                           layout.inbox(c_.bank, c_.rank()), num_rows * c_.message().stride(payload_bytes()));
  }

  SWITCHYARD_DEVICE uint32_t arrival_flags() const { return in_place_ ? kRowsInPlace : 0; }

  // One token to all its ranks.
  SWITCHYARD_DEVICE bool push_token() {
    if (token_ >= c_.op.num_tokens) return finish();
    const Row row = row_of(token_);
    char* token_places[kMaxTopk];
    char* scale_places[kMaxTopk];
    int num_tokens = 0;
    int num_scales = 0;
    const size_t header_bytes = c_.message().header_bytes();
    for (int k = 0; k < c_.op.topk; ++k) {
      const int entry = token_ * c_.op.topk + k;
      const int dest = p_.read(&plan_[at_.dest(entry)]);
      if (in_place_) {
        const int expert = p_.read(&plan_[at_.expert(entry)]);
        const int owner = expert < 0 ? -1 : p_.read(&c_.group().owner[expert]);
        const int64_t place = final_row(entry, owner, dest);
        if (place >= 0) {
          token_places[num_tokens++] = token_place(owner, place);
          if (scales_in_place()) scale_places[num_scales++] = scale_place(owner, place);
        }
      }
      if (dest < 0) continue;
      char* message = message_of(dest, entry);
      write_header(message, token_);
      if (!in_place_) token_places[num_tokens++] = message + header_bytes;
      if (c_.op.scale_bytes && !scales_in_place()) {
        scale_places[num_scales++] = message + header_bytes + c_.op.token_bytes;
      }
    }
    p_.push(row.token, token_places, num_tokens, c_.op.token_bytes);
    if (c_.op.scale_bytes) p_.push(row.scale, scale_places, num_scales, c_.op.scale_bytes);
    SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.row_pushed");
    p_.drain();
    for (int k = 0; k < c_.op.topk; ++k) count_sent(token_ * c_.op.topk + k);
    token_ += p_.num_warps();
    return true;
  }

  SWITCHYARD_DEVICE bool scales_in_place() const { return in_place_ && c_.op.scale_window_id != 0; }

  struct Row {
    const char* token;
    const char* scale;
  };

  // The row as it travels: the caller's bytes, or their quantised form in this warp's scratch.
  SWITCHYARD_DEVICE Row row_of(int token) {
    const char* input = c_.op.tokens + size_t(token) * c_.op.input_bytes;
    if (c_.op.quant != LlQuant::kFusedFp8) return {input, c_.op.scales + size_t(token) * c_.op.scale_bytes};
    char* scratch = c_.group().scratch + size_t(p_.warp_idx()) * c_.group().scratch_bytes;
    p_.quantise_fp8(input, scratch, scratch + c_.op.token_bytes, c_.op.num_elements, c_.op.round_scales != 0);
    return {scratch, scratch + c_.op.token_bytes};
  }

  // Row of the receiver's output for this entry, -1 if the entry has none (or another entry writes it).
  SWITCHYARD_DEVICE int64_t final_row(int entry, int owner, int dest) const {
    if (c_.op.expert_major) return owner < 0 ? -1 : p_.read(&plan_[at_.slot(entry)]);
    return dest < 0 ? -1 : int64_t(c_.rank()) * c_.group().max_tokens + p_.read(&plan_[at_.index(entry)]);
  }
  SWITCHYARD_DEVICE char* token_place(int owner, int64_t row) const {
    return c_.op.token_windows[owner] + p_.read(&c_.heard(owner)->token_offset) + row * c_.op.token_bytes;
  }
  SWITCHYARD_DEVICE char* scale_place(int owner, int64_t row) const {
    return c_.op.scale_windows[owner] + p_.read(&c_.heard(owner)->scale_offset) + row * c_.op.scale_bytes;
  }
  SWITCHYARD_DEVICE char* message_of(int dest, int entry) const {
    char* block = c_.remote(dest) ? c_.departure(dest) : c_.inbox(dest, c_.rank());
    return block + p_.read(&plan_[at_.index(entry)]) * c_.message().stride(payload_bytes());
  }
  SWITCHYARD_DEVICE size_t payload_bytes() const { return size_t(c_.op.token_bytes) + c_.op.scale_bytes; }

  SWITCHYARD_DEVICE void write_header(char* message, int token) {
    const LlMessage format = c_.message();
    if (p_.lane() == 0) p_.write(reinterpret_cast<int32_t*>(message), int32_t(token));
    for (int k = p_.lane(); k < c_.op.topk; k += P::kLanes) {
      const int entry = token * c_.op.topk + k;
      p_.write(reinterpret_cast<int32_t*>(message + format.expert(k)), p_.read(&plan_[at_.expert(entry)]));
      if (format.has_weights) {
        p_.write(reinterpret_cast<float*>(message + format.weight(k)), p_.read(&c_.op.weights_in[entry]));
      }
    }
  }

  // The warp that sends the last message to a rank tells it: the adds are acq_rel, so every row came before.
  SWITCHYARD_DEVICE void count_sent(int entry) {
    const int dest = p_.read(&plan_[at_.dest(entry)]);
    if (dest < 0) return;
    const int goal = p_.read(&plan_[at_.num_to(dest)]);
    if (p_.fetch_add(&c_.rows_sent(dest), 1) + 1 == uint64_t(goal)) {
      SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.before_arrival");
      tell_arrival(dest, uint32_t(goal));
      SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.after_arrival");
    }
  }

  SWITCHYARD_DEVICE bool finish() {
    SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.sent");
    stage_ = Stage::kDone;
    return true;
  }

  LlContext<P>& c_;
  const P& p_;
  const LlPlan at_;
  int32_t* plan_;
  Stage stage_ = Stage::kGate;
  bool in_place_ = false;  // rows go straight to the receivers' outputs
  uint64_t consented_ns_ = 0;
  int next_peer_ = 0;
  int token_;
};

template <class P>
class DispatchReceive {
 public:
  SWITCHYARD_DEVICE explicit DispatchReceive(LlContext<P>& context)
      : c_(context), p_(context.p), at_(context.record()), record_(context.op.record), row_(context.p.warp_idx()) {}

  SWITCHYARD_DEVICE bool done() const { return done_; }

  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) {
      done_ = true;
      return true;
    }
    const bool scanned = p_.warp_idx() == 0 && scan_next_source();
    return unpack_row() || scanned;
  }

 private:
  // Warp 0: turn the headers of the next source, in rank order, into slots.
  SWITCHYARD_DEVICE bool scan_next_source() {
    if (source_to_scan_ == c_.num_ranks()) return false;
    const int source = source_to_scan_;
    if (source == 0 && p_.lane() == 0) p_.write(c_.dispatch_tag(), c_.tag);
    if (source == 0 && c_.op.expert_major) {
      for (int local = p_.lane(); local < c_.op.num_local; local += P::kLanes) p_.write(&c_.op.out_counts[local], 0);
      p_.sync_warp();
    }
    const PeerLine* line = c_.heard(source);
    const Await arrival = c_.await_rows(source, Phase::kDispatchRows);
    if (arrival == Await::kNotYet) return false;
    SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.source_arrived");
    uint32_t num_rows = arrival == Await::kReady ? p_.read(&line->num_rows) : 0;
    if (num_rows > uint32_t(c_.group().max_tokens)) {
      c_.give_up(source, Phase::kBadMessage);
      num_rows = 0;
    }
    const uint32_t flags = num_rows ? p_.read(&line->flags) : 0;
    if (c_.op.expert_major) place_source(source, int(num_rows));
    if (p_.lane() == 0) {
      p_.write(&record_[at_.num_received(source)], int32_t(num_rows) | (flags & kRowsInPlace ? kInPlaceBit : 0));
      if (!c_.op.expert_major && c_.op.out_counts) p_.write(&c_.op.out_counts[source], int32_t(num_rows));
    }
    SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.source_scanned");
    ++source_to_scan_;
    p_.store_release(&c_.bank_state().num_scanned, uint64_t(source_to_scan_));  // release; pairs with unpack_row()
    return true;
  }

  // Expert-major: rows of this source go behind those of the sources before it, in (token, k) order.
  SWITCHYARD_DEVICE void place_source(int source, int num_rows) {
    int32_t* slots = &record_[at_.slot(source, 0, 0)];
    for (int message = p_.lane(); message < num_rows; message += P::kLanes) {
      int num_here = 0;
      for (int k = 0; k < c_.op.topk; ++k) {
        const int local = local_expert(source, message, k);
        p_.write(&slots[message * c_.op.topk + k], local);
        num_here += local >= 0;
      }
      p_.write(&record_[at_.first_row(source, message)], num_here);
    }
    p_.sync_warp();
    p_.exclusive_scan(&record_[at_.first_row(source, 0)], num_rows);
    if (!p_.stable_ranks(slots, num_rows * c_.op.topk, c_.op.out_counts, slots, c_.rows_per_expert())) {
      c_.note(&Report::fault, source, Phase::kExpertFull);
    }
  }

  // Index of the message's k-th expert on this rank, -1 if it lives elsewhere. A peer's id is not to be trusted.
  SWITCHYARD_DEVICE int local_expert(int source, int message, int k) const {
    const char* header = message_of(source, message);
    const int expert = p_.read(reinterpret_cast<const int32_t*>(header + c_.message().expert(k)));
    if (expert < 0 || expert >= c_.group().num_experts) return -1;
    return p_.read(&c_.group().owner[expert]) == c_.rank() ? p_.read(&c_.group().local[expert]) : -1;
  }

  // One row of a scanned source to where it belongs.
  SWITCHYARD_DEVICE bool unpack_row() {
    const int limit = c_.op.expert_major ? num_rows_ : c_.group().max_tokens;
    if (source_ >= 0 && row_ < limit) {
      if (c_.op.expert_major) unpack_expert_major();
      else unpack_rank_major();
      SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.row_unpacked");
      row_ += p_.num_warps();
      return true;
    }
    if (source_ + 1 == c_.num_ranks()) {
      SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.received");
      p_.drain();
      done_ = true;
      return true;
    }
    if (p_.load_acquire(&c_.bank_state().num_scanned) <= uint64_t(source_ + 1)) return false;
    ++source_;
    row_ = p_.warp_idx();
    const int received = p_.read(&record_[at_.num_received(source_)]);
    num_rows_ = received & ~kInPlaceBit;
    in_place_ = (received & kInPlaceBit) != 0;
    return true;
  }

  SWITCHYARD_DEVICE void unpack_expert_major() {
    char* tokens[kMaxTopk];
    char* scales[kMaxTopk];
    int num_places = 0;
    for (int k = 0; k < c_.op.topk; ++k) {
      const int row = p_.read(&record_[at_.slot(source_, row_, k)]);
      if (row < 0) continue;
      tokens[num_places] = c_.op.out_tokens + size_t(row) * c_.op.token_bytes;
      scales[num_places++] = c_.op.out_scales + size_t(row) * c_.op.scale_bytes;
    }
    copy_payload(tokens, scales, num_places);
  }

  SWITCHYARD_DEVICE void unpack_rank_major() {
    const size_t row = size_t(source_) * c_.group().max_tokens + row_;
    const bool live = row_ < num_rows_;
    const char* header = message_of(source_, row_);
    for (int k = p_.lane(); k < c_.op.topk; k += P::kLanes) {
      int32_t id = -1;
      if (live) {
        const int local = local_expert(source_, row_, k);
        const auto* global = reinterpret_cast<const int32_t*>(header + c_.message().expert(k));
        id = local < 0 || !c_.op.global_ids ? local : p_.read(global);
        const auto* weight = reinterpret_cast<const float*>(header + c_.message().weight(k));
        p_.write(&c_.op.out_weights[row * c_.op.topk + k], p_.read(weight));
      }
      p_.write(&c_.op.out_idx[row * c_.op.topk + k], id);
    }
    if (!live) return;
    char* token = c_.op.out_tokens + row * c_.op.token_bytes;
    char* scale = c_.op.out_scales + row * c_.op.scale_bytes;
    copy_payload(&token, &scale, 1);
  }

  SWITCHYARD_DEVICE void copy_payload(char** tokens, char** scales, int num_places) {
    const char* payload = message_of(source_, row_) + c_.message().header_bytes();
    if (!in_place_) p_.push(payload, tokens, num_places, c_.op.token_bytes);
    if (c_.op.scale_bytes && !(in_place_ && c_.op.scale_window_id)) {
      p_.push(payload + c_.op.token_bytes, scales, num_places, c_.op.scale_bytes);
    }
  }

  SWITCHYARD_DEVICE const char* message_of(int source, int message) const {
    const size_t payload = size_t(c_.op.token_bytes) + c_.op.scale_bytes;
    return c_.inbox(c_.rank(), source) + message * c_.message().stride(payload);
  }

  LlContext<P>& c_;
  const P& p_;
  const LlRecord at_;
  int32_t* record_;
  bool done_ = false;
  int source_to_scan_ = 0;
  int source_ = -1;
  int row_;
  int num_rows_ = 0;
  bool in_place_ = false;
};

}  // namespace switchyard::ep
