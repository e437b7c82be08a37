// The update of a high-throughput handle: who gets which row at which place. Ranks exchange numbers, not routing:
//
//   1. each source tells each rank how many of its tokens go there, and to each of its experts;
//   2. each rank adds up, in rank order, and tells each source where its rows begin: the receiver decides, so that ranks that
//      disagree about who is missing still agree about every place. On one node, where nobody can be missing, a source looks at
//      what the others told the receiver, and adds up itself: that saves a meeting;
//   3. where rows can be dropped, each source tells how many remain;
//   4. each source tells those who forward for it on other nodes what becomes of every row (rail_stream.hpp).
//
// Same input, same places, every run.
#pragma once
#include "ep/rail_stream.hpp"

namespace switchyard::ep {

// Bytes of one row of step 4: expert, slot and index of each entry.
SWITCHYARD_HD uint64_t rail_table_bytes(int topk) { return (3 * uint64_t(topk) * sizeof(int32_t) + 15) / 16 * 16; }

template <class P>
class HtRoute {
 public:
  SWITCHYARD_DEVICE explicit HtRoute(HtContext<P>& context)
      : c_(context),
        p_(context.p),
        at_(context.at),
        of_{context.num_ranks(), context.group().num_experts},
        board_{context.group().max_local} {}

  SWITCHYARD_DEVICE bool done() const { return stage_ == Stage::kDone; }
  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) return finish();
    switch (stage_) {
      case Stage::kCount: return count();
      case Stage::kAwaitCounts: return await_counts();
      case Stage::kAwaitPlaces: return await_places();
      case Stage::kAwaitKept: return await_kept();
      case Stage::kRails: return exchange_tables();
      case Stage::kDone: return false;
    }
    return false;
  }

 private:
  enum class Stage { kCount, kAwaitCounts, kAwaitPlaces, kAwaitKept, kRails, kDone };
  using Message = HtBoard::Message;

  SWITCHYARD_DEVICE int32_t& number(int word) const { return c_.group().numbers[word]; }
  SWITCHYARD_DEVICE int32_t get(int word) const { return p_.read(&number(word)); }
  SWITCHYARD_DEVICE void set(int word, int32_t value) const { p_.write(&number(word), value); }
  SWITCHYARD_DEVICE void add(int word, int32_t value) const { set(word, get(word) + value); }
  SWITCHYARD_DEVICE int32_t expert_of(int token, int k) const { return c_.entry(HtRecord::kExpert, token, k); }
  SWITCHYARD_DEVICE void write_entry(HtRecord::Column column, int token, int k, int32_t value) const {
    p_.write(&c_.record[at_.entry(column, size_t(token) * c_.op.topk + k)], value);
  }
  // Is this the first time that the token does what `word` remembers? Tokens come in order.
  SWITCHYARD_DEVICE bool first_of_token(int word, int token) const {
    const bool first = get(word) != token + 1;
    if (first) set(word, token + 1);
    return first;
  }

  // ---- 1. my counts ----

  SWITCHYARD_DEVICE bool count() {
    p_.write(&c_.record[at_.valid()], 0);
    for (int word = 0; word < of_.num_words(); ++word) set(word, 0);
    for (int token = 0; token < c_.op.num_tokens; ++token) {
      for (int k = 0; k < c_.op.topk; ++k) count_entry(token, k);
    }
    SWITCHYARD_KERNEL_FAILPOINT("ht.route.counted");
    for (int peer = 0; peer < c_.num_ranks(); ++peer) {
      if (!c_.has_way(c_.rank(), peer)) set(of_.rows_to(peer), 0);
    }
    tell_owners(HtBoard::kCounts, [&](int owner, int expert) { return get(of_.rows_to(owner)) > 0 ? get(of_.count(expert)) : 0; });
    // All of it before anybody hears of it: who does may look at what others were told.
    for (int peer = 0; peer < c_.num_ranks(); ++peer) {
      tell(peer, HtBoard::kCounts, get(of_.rows_to(peer)), int32_t(c_.about ^ c_.about >> 32));
    }
    for (int peer = 0; peer < c_.num_ranks(); ++peer) publish(peer, HtBoard::kCounts, &PeerLine::consent);
    SWITCHYARD_KERNEL_FAILPOINT("ht.route.counts_posted");
    stage_ = Stage::kAwaitCounts;
    return true;
  }

  SWITCHYARD_DEVICE void count_entry(int token, int k) {
    const size_t entry = size_t(token) * c_.op.topk + k;
    const int64_t id = c_.op.indices_are_64 ? p_.read(static_cast<const int64_t*>(c_.op.topk_idx) + entry)
                                            : int64_t(p_.read(static_cast<const int32_t*>(c_.op.topk_idx) + entry));
    if (id < -1 || id >= c_.group().num_experts) c_.spoil(c_.rank(), Phase::kBadRouting);
    int32_t expert = id < 0 || id >= c_.group().num_experts ? -1 : int32_t(id);
    if (expert >= 0 && !first_of_token(of_.seen(expert), token)) expert = repetition_of(token, expert);
    write_entry(HtRecord::kExpert, token, k, expert);
    if (expert < 0) return;
    add(of_.count(expert), 1);
    const int owner = c_.owner(expert);
    if (first_of_token(of_.named(owner), token)) add(of_.rows_to(owner), 1);
  }
  SWITCHYARD_DEVICE int32_t repetition_of(int token, int32_t expert) const {
    int first = 0;
    while (expert_of(token, first) != expert) ++first;
    return -2 - first;
  }

  // What I write for `peer`: its board for me, or my copy of that.
  SWITCHYARD_DEVICE int32_t* board_for(int peer) const {
    if (!c_.remote(peer)) return c_.board_at(peer, c_.rank());
    return reinterpret_cast<int32_t*>(c_.group().control[c_.rank()] +
                                      c_.group().control_layout.told_board(c_.bank, peer));
  }
  // Not to who is masked: that rank may be slow, and still have to read what an earlier update told it.
  SWITCHYARD_DEVICE void tell(int peer, int word, int32_t value) const {
    if (!c_.masked(peer)) p_.write(board_for(peer) + word, value);
  }
  SWITCHYARD_DEVICE void tell(int peer, Message message, int32_t rows, int32_t note) const {
    tell(peer, board_.rows(message), rows);
    tell(peer, board_.note(message), note);
  }
  // A number for each expert. Neighbours mostly have the same owner: its board is looked up once for all of them.
  template <class Number>
  SWITCHYARD_DEVICE void tell_owners(Message message, Number number) const {
    int owner = -1;
    int32_t* board = nullptr;
    for (int expert = 0; expert < c_.group().num_experts; ++expert) {
      if (c_.owner(expert) != owner) {
        owner = c_.owner(expert);
        board = c_.masked(owner) ? nullptr : board_for(owner);
      }
      if (board != nullptr) p_.write(board + board_.expert(message, c_.local_id(expert)), int32_t(number(owner, expert)));
    }
  }
  SWITCHYARD_DEVICE void publish(int peer, Message message, uint64_t PeerLine::* word) const {
    if (c_.masked(peer)) return;
    if (!c_.remote(peer)) return p_.store_release(&(c_.told(peer)->*word), c_.tag);  // pairs with the acquire in hear()
    const ControlLayout& layout = c_.group().control_layout;
    const uint64_t first = uint64_t(board_.rows(message)) * sizeof(int32_t);
    if (!c_.put(peer, c_.group().control_id, layout.board(c_.bank, c_.rank()) + first,
                layout.told_board(c_.bank, peer) + first, uint64_t(board_.stride()) * sizeof(int32_t), c_.bank, word,
                c_.tag)) {
      c_.put_failed(peer);
    }
  }
  SWITCHYARD_DEVICE void post(int peer, Message message, int32_t rows, int32_t note, uint64_t PeerLine::* word) const {
    tell(peer, message, rows, note);
    publish(peer, message, word);
  }
  SWITCHYARD_DEVICE int32_t heard(int peer, int word) const { return p_.read(c_.board_at(c_.rank(), peer) + word); }

  // Visits every rank in order as its message comes; false when one has not. body(peer, has come).
  template <class Body>
  SWITCHYARD_DEVICE bool hear(uint64_t PeerLine::* word, Phase phase, Body body) {
    while (next_peer_ < c_.num_ranks()) {
      const Await come = c_.await(next_peer_, &(c_.heard(next_peer_)->*word), c_.tag, phase);
      if (come == Await::kNotYet) return false;
      body(next_peer_, come == Await::kReady);
      ++next_peer_;
    }
    next_peer_ = 0;
    return true;
  }

  // ---- 2. where rows begin ----

  SWITCHYARD_DEVICE bool await_counts() {
    const bool all = hear(&PeerLine::consent, Phase::kRoute, [&](int source, bool come) {
      const int32_t rows = come ? heard(source, board_.rows(HtBoard::kCounts)) : 0;
      if (come && heard(source, board_.note(HtBoard::kCounts)) != int32_t(c_.about ^ c_.about >> 32)) {
        c_.give_up(source, Phase::kOtherOperation);
        come = false;
      } else if (come && !counts_are_sound(source, rows)) {
        c_.give_up(source, Phase::kBadMessage);
        come = false;
      }
      set(of_.is_here(source), come);
      p_.write(&c_.record[at_.received(source)], come ? rows : 0);
    });
    if (!all || c_.failed()) return c_.failed();
    for (int source = 0; source < c_.num_ranks(); ++source) {
      if (c_.has_way(source, c_.rank())) continue;
      set(of_.is_here(source), 0);
      p_.write(&c_.record[at_.received(source)], 0);
    }
    mask_ = c_.mask_digest();
    SWITCHYARD_KERNEL_FAILPOINT("ht.route.counts_heard");
    const int64_t total = c_.op.expert_major ? place_by_expert() : place_by_source();
    const int64_t limit = c_.group().budget;
    over_budget_ = total > limit;
    p_.write(&c_.record[at_.num_slots()], int32_t(over_budget_ ? limit : total));
    write_number(c_.op.out_total, c_.op.total_is_64, 0, total);
    if (sees_all()) {
      if (c_.op.expert_major) look_up_zones();
      else look_up_rows();
      return c_.failed() || places_known();
    }
    const bool refused = over_budget_ && !c_.group().drops;
    for (int source = 0; source < c_.num_ranks(); ++source) {
      const int32_t place = c_.has_way(source, c_.rank()) ? c_.read(at_.base(source)) : -1;
      post(source, HtBoard::kPlaces, refused ? int32_t(total) : place, refused, &PeerLine::arrival);
    }
    SWITCHYARD_KERNEL_FAILPOINT("ht.route.places_posted");
    stage_ = Stage::kAwaitPlaces;
    return true;
  }

  SWITCHYARD_DEVICE bool counts_are_sound(int source, int32_t rows) const {
    if (rows < 0 || rows > c_.group().max_tokens) return false;
    for (int local = 0; local < c_.op.num_local; ++local) {
      const int32_t count = heard(source, board_.expert(HtBoard::kCounts, local));
      if (count < 0 || count > rows) return false;
    }
    return true;
  }

  // ---- 2. on one node ----

  SWITCHYARD_DEVICE bool sees_all() const { return c_.group().num_nodes == 1 && !c_.group().masks_enabled; }
  // A count that `source` told `reader`.
  SWITCHYARD_DEVICE int32_t look_at(int reader, int source, int word) {
    const int32_t count = p_.read(c_.board_at(reader, source) + word);
    if (count >= 0 && count <= c_.group().max_tokens) return count;
    c_.give_up(source, Phase::kBadMessage);
    return 0;
  }
  SWITCHYARD_DEVICE void look_up_rows() {
    for (int peer = 0; peer < c_.num_ranks(); ++peer) {
      int64_t total = 0;
      for (int source = 0; source < c_.num_ranks(); ++source) {
        if (source == c_.rank()) set(of_.row_place(peer), int32_t(total));
        total += look_at(peer, source, board_.rows(HtBoard::kCounts));
      }
      check_budget(peer, total);
    }
  }
  // As place_by_expert() does it there.
  SWITCHYARD_DEVICE void look_up_zones() {
    for (int peer = 0; peer < c_.num_ranks(); ++peer) set(of_.row_place(peer), 0);  // where its next zone begins
    for (int expert = 0; expert < c_.group().num_experts; ++expert) {
      const int owner = c_.owner(expert), word = board_.expert(HtBoard::kCounts, c_.local_id(expert));
      const int64_t first = get(of_.row_place(owner));
      int64_t end = first;
      for (int source = 0; source < c_.num_ranks(); ++source) {
        if (source == c_.rank()) set(of_.place(expert), int32_t(within_budget(end)));
        end += look_at(owner, source, word);
      }
      const int64_t next = padded_end(first, end);
      set(of_.row_place(owner), int32_t(next < INT32_MAX ? next : INT32_MAX));
    }
    for (int peer = 0; peer < c_.num_ranks(); ++peer) check_budget(peer, get(of_.row_place(peer)));
  }
  SWITCHYARD_DEVICE void check_budget(int peer, int64_t total) {
    if (total > c_.group().budget && !c_.group().drops) refuse(peer, total);
  }
  SWITCHYARD_DEVICE void refuse(int peer, int64_t total) {
    if (c_.spoil(peer, Phase::kOverBudget)) p_.store_relaxed(&c_.group().report->num_rows, uint64_t(total));
    refused_ = true;
  }
  SWITCHYARD_DEVICE int64_t within_budget(int64_t slot) const {
    return slot < c_.group().budget ? slot : int64_t{c_.group().budget};
  }
  SWITCHYARD_DEVICE int64_t padded_end(int64_t first, int64_t end) const {
    return first + (end - first + c_.op.alignment - 1) / c_.op.alignment * c_.op.alignment;
  }

  // ---- 2. else ----

  SWITCHYARD_DEVICE int32_t heard_count(int source, int local) const {
    return get(of_.is_here(source)) ? heard(source, board_.expert(HtBoard::kCounts, local)) : 0;
  }

  // Flat: sources in rank order.
  SWITCHYARD_DEVICE int64_t place_by_source() {
    int64_t total = 0;
    for (int source = 0; source < c_.num_ranks(); ++source) {
      p_.write(&c_.record[at_.base(source)], int32_t(total));
      total += c_.read(at_.received(source));
    }
    for (int local = 0; local < c_.op.num_local && c_.op.out_expert_counters != nullptr; ++local) {
      int64_t rows = 0;
      for (int source = 0; source < c_.num_ranks(); ++source) rows += heard_count(source, local);
      write_output(c_.op.out_expert_counters, local, rows);
    }
    return total;
  }

  // Expert-major: a zone per expert, sources in rank order inside; zones are padded.
  SWITCHYARD_DEVICE int64_t place_by_expert() {
    int64_t first = 0;
    for (int source = 0; source < c_.num_ranks(); ++source) p_.write(&c_.record[at_.base(source)], 0);
    for (int local = 0; local < c_.op.num_local; ++local) {
      int64_t end = first;
      for (int source = 0; source < c_.num_ranks(); ++source) {
        if (!sees_all()) tell(source, board_.expert(HtBoard::kPlaces, local), int32_t(within_budget(end)));
        end += heard_count(source, local);
        p_.write(&c_.record[at_.zone_end(local, source)], int32_t(within_budget(end)));
      }
      const int64_t next = padded_end(first, end);
      p_.write(&c_.record[at_.zone_first(local)], int32_t(within_budget(first)));
      p_.write(&c_.record[at_.zone_padded_end(local)], int32_t(within_budget(next)));
      write_output(c_.op.out_expert_counters, local, within_budget(next) - within_budget(first));
      write_output(c_.op.out_expert_offsets, local, within_budget(first));
      first = next;
    }
    return first;
  }

  SWITCHYARD_DEVICE void write_output(void* output, int idx, int64_t value) const {
    write_number(output, c_.op.counters_are_64, idx, value);
  }
  SWITCHYARD_DEVICE void write_number(void* output, bool wide, int idx, int64_t value) const {
    if (output == nullptr) return;
    if (wide) p_.write(static_cast<int64_t*>(output) + idx, value);
    else p_.write(static_cast<int32_t*>(output) + idx, int32_t(value));
  }

  SWITCHYARD_DEVICE bool await_places() {
    const bool all = hear(&PeerLine::arrival, Phase::kPlaces, [&](int peer, bool come) {
      if (come && heard(peer, board_.note(HtBoard::kPlaces)) != 0) {
        refuse(peer, heard(peer, board_.rows(HtBoard::kPlaces)));
      }
      const int32_t place = come && c_.has_way(c_.rank(), peer) ? heard(peer, board_.rows(HtBoard::kPlaces)) : -1;
      set(of_.row_place(peer), place);
    });
    if (!all || c_.failed()) return c_.failed();
    for (int expert = 0; expert < c_.group().num_experts; ++expert) {
      const int owner = c_.owner(expert);
      const bool come = get(of_.row_place(owner)) >= 0;
      set(of_.place(expert), come ? heard(owner, board_.expert(HtBoard::kPlaces, c_.local_id(expert))) : -1);
    }
    return places_known();
  }

  SWITCHYARD_DEVICE bool places_known() {
    SWITCHYARD_KERNEL_FAILPOINT("ht.route.places_known");
    assign();
    if (!c_.group().drops) {
      stage_ = Stage::kRails;
      return true;
    }
    tell_owners(HtBoard::kKept, [&](int, int expert) { return get(of_.kept(expert)); });
    for (int peer = 0; peer < c_.num_ranks(); ++peer) {
      post(peer, HtBoard::kKept, get(of_.kept_to(peer)), 0, &PeerLine::done);
    }
    SWITCHYARD_KERNEL_FAILPOINT("ht.route.kept_posted");
    stage_ = Stage::kAwaitKept;
    return true;
  }

  // Slot and index of every entry of mine.
  SWITCHYARD_DEVICE void assign() {
    for (int peer = 0; peer < c_.num_ranks(); ++peer) {
      set(of_.rows_to(peer), 0);
      set(of_.named(peer), 0);
    }
    for (int expert = 0; expert < c_.group().num_experts; ++expert) set(of_.count(expert), 0);
    for (int token = 0; token < c_.op.num_tokens; ++token) {
      for (int k = 0; k < c_.op.topk; ++k) assign_entry(token, k);
    }
  }
  SWITCHYARD_DEVICE void assign_entry(int token, int k) {
    const int expert = expert_of(token, k);
    const int owner = expert < 0 ? -1 : c_.owner(expert);
    int32_t slot = -1, index = -1;
    if (owner >= 0 && get(of_.row_place(owner)) >= 0) {
      slot = slot_of(expert, owner, token);
      if (slot >= 0 && first_of_token(of_.reached(owner), token)) index = next(of_.kept_to(owner));
      // A flat row stands for all its experts there.
      if (c_.op.expert_major ? slot >= 0 : get(of_.reached(owner)) == token + 1) add(of_.kept(expert), 1);
    }
    write_entry(HtRecord::kSlot, token, k, slot);
    write_entry(HtRecord::kIndex, token, k, index);
  }
  SWITCHYARD_DEVICE int32_t slot_of(int expert, int owner, int token) {
    int64_t slot = -1;
    if (c_.op.expert_major) slot = int64_t(get(of_.place(expert))) + next(of_.count(expert));
    else if (first_of_token(of_.named(owner), token)) slot = int64_t(get(of_.row_place(owner))) + next(of_.rows_to(owner));
    return slot < c_.group().budget ? int32_t(slot) : -1;
  }
  SWITCHYARD_DEVICE int32_t next(int word) const {
    const int32_t value = get(word);
    set(word, value + 1);
    return value;
  }

  // ---- 3. what remains where rows are dropped ----

  SWITCHYARD_DEVICE bool await_kept() {
    const bool all = hear(&PeerLine::done, Phase::kRoute, [&](int source, bool come) {
      const int32_t rows = come ? heard(source, board_.rows(HtBoard::kKept)) : 0;
      if (rows < 0 || rows > c_.read(at_.received(source))) c_.give_up(source, Phase::kBadMessage);
      else p_.write(&c_.record[at_.received(source)], rows);
      set(of_.is_here(source), come);
    });
    if (!all || c_.failed()) return c_.failed();
    for (int local = 0; local < c_.op.num_local && !c_.op.expert_major; ++local) {
      int64_t rows = 0;
      for (int source = 0; source < c_.num_ranks(); ++source) {
        if (get(of_.is_here(source))) rows += heard(source, board_.expert(HtBoard::kKept, local));
      }
      write_output(c_.op.out_expert_counters, local, rows);
    }
    stage_ = Stage::kRails;
    return true;
  }

  // ---- 4. what those who forward for me have to know ----

  SWITCHYARD_DEVICE bool exchange_tables() {
    const bool sent = send_tables();
    const bool received = receive_tables();
    if (c_.failed() || (all_sent_ && sources_over_ == c_.group().num_rail_sources)) return finish();
    return sent || received;
  }

  SWITCHYARD_DEVICE bool send_tables() {
    const HtGroupView& group = c_.group();
    bool moved = false;
    while (token_ < c_.op.num_tokens) {
      while (node_ < group.num_nodes) {
        if (node_ != group.node && c_.crosses_to(token_, node_)) {
          RailSender<P> sender(c_, group.forwarder(c_.rank(), node_), rail_table_bytes(c_.op.topk));
          if (sender.room() == Await::kNotYet) return moved;
          pack_row(reinterpret_cast<int32_t*>(sender.next()));
          sender.packed();
          moved = true;
        }
        ++node_;
      }
      node_ = 0;
      ++token_;
    }
    if (all_sent_) return moved;
    // All rows are on their way: close the streams, then wait until they were taken.
    while (node_ < 2 * group.num_nodes) {
      const int node = node_ % group.num_nodes;
      if (node != group.node) {
        RailSender<P> sender(c_, group.forwarder(c_.rank(), node), rail_table_bytes(c_.op.topk));
        if (node_ < group.num_nodes) sender.end();
        else if (sender.drained() == Await::kNotYet) return moved;
      }
      ++node_;
      moved = true;
    }
    all_sent_ = true;
    return moved;
  }
  SWITCHYARD_DEVICE void pack_row(int32_t* row) const {
    for (int k = 0; k < c_.op.topk; ++k) {
      const bool here = c_.is_on(expert_of(token_, k), node_);
      for (int column = 0; column < 3; ++column) {
        p_.write(row + column * c_.op.topk + k, here ? c_.entry(HtRecord::Column(column), token_, k) : -1);
      }
    }
  }

  SWITCHYARD_DEVICE bool receive_tables() {
    bool moved = false;
    while (sources_over_ < c_.group().num_rail_sources) {
      const int idx = sources_over_;
      RailReceiver<P> receiver(c_, p_.read(&c_.group().rail_sources[idx]), rail_table_bytes(c_.op.topk));
      const Await ready = receiver.ready();
      if (ready == Await::kNotYet) return moved;
      moved = true;
      if (ready == Await::kGone || receiver.over()) {
        p_.write(&c_.record[at_.rail_rows(idx)], ready == Await::kGone ? 0 : int32_t(receiver.num_taken()));
        ++sources_over_;
        continue;
      }
      if (receiver.num_taken() >= uint64_t(c_.group().max_tokens)) {
        c_.give_up(receiver.peer(), Phase::kBadMessage);
        continue;
      }
      take_row(idx, int(receiver.num_taken()), reinterpret_cast<const int32_t*>(receiver.row()));
      receiver.taken();
    }
    return moved;
  }
  // Numbers of a peer are not to be trusted: entries that name nothing of this node are dropped.
  SWITCHYARD_DEVICE void take_row(int idx, int row, const int32_t* from) const {
    for (int k = 0; k < c_.op.topk; ++k) {
      const int32_t expert = p_.read(from + k);
      const int32_t slot = p_.read(from + c_.op.topk + k);
      const int32_t index = p_.read(from + 2 * c_.op.topk + k);
      const bool sound = expert < c_.group().num_experts && c_.is_on(expert, c_.group().node) &&
                         uint64_t(int64_t(slot) + 1) <= c_.group().layout.max_slots &&
                         uint64_t(int64_t(index) + 1) <= uint64_t(c_.group().max_tokens);
      p_.write(&c_.record[at_.rail(idx, row, HtRecord::kExpert, k)], sound ? expert : -1);
      p_.write(&c_.record[at_.rail(idx, row, HtRecord::kSlot, k)], sound ? slot : -1);
      p_.write(&c_.record[at_.rail(idx, row, HtRecord::kIndex, k)], sound ? index : -1);
    }
  }

  SWITCHYARD_DEVICE bool finish() {
    p_.write(&c_.record[at_.num_tokens()], c_.op.num_tokens);
    p_.write(reinterpret_cast<uint64_t*>(&c_.record[at_.plan_tag()]), c_.tag);
    // Who was masked at first is left out everywhere in the plan; who was masked later is in parts of it.
    const bool overtaken = c_.mask_digest() != mask_ && !c_.failed();
    p_.write(reinterpret_cast<uint64_t*>(&c_.record[at_.mask()]), overtaken ? c_.kNoMask : mask_);
    if (overtaken) c_.spoil(c_.rank(), Phase::kStalePlan);
    p_.write(&c_.record[at_.valid()], refused_ || c_.failed() ? 0 : c_.op.plan_stamp);
    SWITCHYARD_KERNEL_FAILPOINT("ht.route.planned");
    stage_ = Stage::kDone;
    return true;
  }

  HtContext<P>& c_;
  const P& p_;
  const HtRecord at_;
  const HtNumbers of_;
  const HtBoard board_;
  Stage stage_ = Stage::kCount;
  int next_peer_ = 0;
  uint64_t mask_ = 0;         // digest of who was masked when all counts were there
  bool over_budget_ = false;  // here
  bool refused_ = false;      // by some rank
  int token_ = 0;
  int node_ = 0;
  bool all_sent_ = false;
  int sources_over_ = 0;
};

}  // namespace switchyard::ep
