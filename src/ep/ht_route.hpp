// The update of a high-throughput handle: who gets which row at which place. Ranks exchange numbers, not routing:
//
//   1. each source tells each rank how many of its tokens go there, and to each of its experts;
//   2. each rank adds up, in rank order, and tells each source where its rows begin: the receiver decides, so that ranks that
//      disagree about who is missing still agree about every place. On one node, where nobody can be missing, a source looks at
//      what the others told the receiver, and adds up itself: that saves a meeting;
//   3. where rows can be dropped, each source tells how many remain;
//   4. each source tells those who forward for it on other nodes what becomes of every row (rail_stream.hpp).
//
// The first three are all-to-alls of small messages (coll/notices.hpp).
//
// Same input, same places, every run.
#pragma once
#include "coll/notices.hpp"
#include "ep/rail_stream.hpp"

namespace switchyard::ep {

// Bytes of one row of step 4: expert, slot and index of each entry.
SWITCHYARD_HD uint64_t rail_table_bytes(int topk) { return (3 * uint64_t(topk) * sizeof(int32_t) + 15) / 16 * 16; }

// One of the messages that ranks post on each other's boards, as coll::Notices wants to know it.
template <class P>
class HtMessage {
 public:
  SWITCHYARD_DEVICE HtMessage(HtContext<P>& context, HtBoard::Message message, uint64_t PeerLine::* word, Phase phase)
      : c_(context),
        first_(HtBoard{context.group().max_local}.first(message)),
        num_words_(HtBoard{context.group().max_local}.num_message_words()),
        word_(word),
        phase_(phase) {}

  SWITCHYARD_DEVICE int num_ranks() const { return c_.num_ranks(); }
  // Not for who is masked: that rank may be slow, and still have to read what an earlier update told it.
  SWITCHYARD_DEVICE int32_t* box_for(int peer) const {
    if (c_.masked(peer)) return nullptr;
    if (!c_.remote(peer)) return c_.board_at(peer, c_.rank()) + first_;
    return reinterpret_cast<int32_t*>(c_.group().control[c_.rank()] + layout().told_board(c_.bank, peer)) + first_;
  }
  SWITCHYARD_DEVICE const int32_t* box_of(int peer) const { return c_.board_at(c_.rank(), peer) + first_; }
  SWITCHYARD_DEVICE void publish(int peer) const {
    if (!c_.remote(peer)) return c_.p.store_release(&(c_.told(peer)->*word_), c_.tag);  // pairs with the acquire in await()
    const uint64_t first = uint64_t(first_) * sizeof(int32_t);
    if (!c_.put(peer, c_.group().control_id, layout().board(c_.bank, c_.rank()) + first, layout().told_board(c_.bank, peer) + first,
                uint64_t(num_words_) * sizeof(int32_t), c_.bank, word_, c_.tag)) {
      c_.put_failed(peer);
    }
  }
  SWITCHYARD_DEVICE Await await(int peer) { return c_.await(peer, &(c_.heard(peer)->*word_), c_.tag, phase_); }

 private:
  SWITCHYARD_DEVICE const ControlLayout& layout() const { return c_.group().control_layout; }

  HtContext<P>& c_;
  const int first_, num_words_;
  uint64_t PeerLine::* const word_;
  const Phase phase_;
};

template <class P>
class HtRoute {
 public:
  SWITCHYARD_DEVICE explicit HtRoute(HtContext<P>& context)
      : c_(context),
        p_(context.p),
        at_(context.at),
        of_{context.num_ranks(), context.group().num_experts},
        counts_({context, HtBoard::kCounts, &PeerLine::consent, Phase::kRoute}),
        places_({context, HtBoard::kPlaces, &PeerLine::arrival, Phase::kPlaces}),
        kept_({context, HtBoard::kKept, &PeerLine::done, Phase::kRoute}) {}

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
  using Message = coll::Notices<HtMessage<P>>;

  SWITCHYARD_DEVICE int32_t& number(int word) const { return c_.group().numbers[word]; }
  SWITCHYARD_DEVICE int32_t get(int word) const { return p_.read(&number(word)); }
  SWITCHYARD_DEVICE void set(int word, int32_t value) const { p_.write(&number(word), value); }
  SWITCHYARD_DEVICE void add(int word, int32_t value) const { set(word, get(word) + value); }
  SWITCHYARD_DEVICE void clear(int first, int end) const {
    int32_t* const numbers = c_.group().numbers;
    for (int word = first; word < end; ++word) p_.write(&numbers[word], 0);
  }
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
    clear(0, of_.num_words());
    for (int token = 0; token < c_.op.num_tokens; ++token) {
      for (int k = 0; k < c_.op.topk; ++k) count_entry(token, k);
    }
    SWITCHYARD_KERNEL_FAILPOINT("ht.route.counted");
    for (int peer = 0; peer < c_.num_ranks(); ++peer) {
      if (!c_.has_way(c_.rank(), peer)) set(of_.rows_to(peer), 0);
    }
    tell_owners(counts_, [this, of = of_](int owner, int expert) { return get(of.rows_to(owner)) > 0 ? get(of.count(expert)) : 0; });
    counts_.post([&](int peer, int32_t* box) { write_head(box, get(of_.rows_to(peer)), what_it_is()); });
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

  SWITCHYARD_DEVICE void write_head(int32_t* box, int32_t rows, int32_t note) const {
    p_.write(box + HtBoard::kRows, rows);
    p_.write(box + HtBoard::kNote, note);
  }
  // A number for each expert. Neighbours mostly have the same owner: its box is looked up once for all of them.
  template <class Number>
  SWITCHYARD_DEVICE void tell_owners(const Message& message, Number number) const {
    const int num_experts = c_.group().num_experts;  // not to be looked up again after every write
    int owner = -1;
    int32_t* box = nullptr;
    for (int expert = 0; expert < num_experts; ++expert) {
      if (c_.owner(expert) != owner) {
        owner = c_.owner(expert);
        box = message.peers().box_for(owner);
      }
      if (box != nullptr) p_.write(box + HtBoard::expert(c_.local_id(expert)), int32_t(number(owner, expert)));
    }
  }
  SWITCHYARD_DEVICE int32_t heard(const Message& message, int peer, int word) const {
    return p_.read(message.peers().box_of(peer) + word);
  }
  // The operation, as a note that goes with the counts.
  SWITCHYARD_DEVICE int32_t what_it_is() const { return int32_t(c_.about ^ c_.about >> 32); }

  // ---- 2. where rows begin ----

  SWITCHYARD_DEVICE bool await_counts() {
    const bool all = counts_.hear([&](int source, const int32_t* box) {
      const int32_t rows = box != nullptr ? p_.read(box + HtBoard::kRows) : 0;
      if (box != nullptr && p_.read(box + HtBoard::kNote) != what_it_is()) {
        c_.give_up(source, Phase::kOtherOperation);
        box = nullptr;
      } else if (box != nullptr && !counts_are_sound(box, rows)) {
        c_.give_up(source, Phase::kBadMessage);
        box = nullptr;
      }
      set(of_.is_here(source), box != nullptr);
      p_.write(&c_.record[at_.received(source)], box != nullptr ? rows : 0);
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
    places_.post([&](int source, int32_t* box) {
      const int32_t place = c_.has_way(source, c_.rank()) ? c_.read(at_.base(source)) : -1;
      write_head(box, refused ? in_32_bits(total) : place, refused);
    });
    SWITCHYARD_KERNEL_FAILPOINT("ht.route.places_posted");
    stage_ = Stage::kAwaitPlaces;
    return true;
  }

  SWITCHYARD_DEVICE bool counts_are_sound(const int32_t* box, int32_t rows) const {
    if (rows < 0 || rows > c_.group().max_tokens) return false;
    bool sound = true;
    for (int local = 0; local < c_.op.num_local; ++local) {
      const int32_t count = p_.read(box + HtBoard::expert(local));
      sound &= count >= 0 && count <= rows;
    }
    return sound;
  }

  // ---- 2. on one node ----

  SWITCHYARD_DEVICE bool sees_all() const { return c_.group().num_nodes == 1 && !c_.group().masks_enabled; }
  // A count that `source` told `reader`.
  SWITCHYARD_DEVICE int32_t look_at(int reader, int source, int word) {
    const int32_t count = p_.read(c_.board_at(reader, source) + HtBoard{c_.group().max_local}.first(HtBoard::kCounts) + word);
    if (count >= 0 && count <= c_.group().max_tokens) return count;
    c_.give_up(source, Phase::kBadMessage);
    return 0;
  }
  SWITCHYARD_DEVICE void look_up_rows() {
    for (int peer = 0; peer < c_.num_ranks(); ++peer) {
      int64_t total = 0;
      for (int source = 0; source < c_.num_ranks(); ++source) {
        if (source == c_.rank()) set(of_.row_place(peer), int32_t(total));
        total += look_at(peer, source, HtBoard::kRows);
      }
      check_budget(peer, total);
    }
  }
  // As place_by_expert() does it there.
  SWITCHYARD_DEVICE void look_up_zones() {
    for (int peer = 0; peer < c_.num_ranks(); ++peer) set(of_.row_place(peer), 0);  // where its next zone begins
    for (int expert = 0; expert < c_.group().num_experts; ++expert) {
      const int owner = c_.owner(expert), word = HtBoard::expert(c_.local_id(expert));
      const int64_t first = get(of_.row_place(owner));
      int64_t end = first;
      for (int source = 0; source < c_.num_ranks(); ++source) {
        if (source == c_.rank()) set(of_.place(expert), int32_t(within_budget(end)));
        end += look_at(owner, source, word);
      }
      const int64_t next = padded_end(first, end);
      set(of_.row_place(owner), in_32_bits(next));
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
    return get(of_.is_here(source)) ? heard(counts_, source, HtBoard::expert(local)) : 0;
  }

  // Flat: sources in rank order.
  SWITCHYARD_DEVICE int64_t place_by_source() {
    int64_t total = 0;
    for (int source = 0; source < c_.num_ranks(); ++source) {
      p_.write(&c_.record[at_.base(source)], int32_t(total));
      total += c_.read(at_.received(source));
    }
    count_experts(counts_);
    return total;
  }

  // What all who are here said of each of my experts, added up.
  SWITCHYARD_DEVICE void count_experts(const Message& message) const {
    if (c_.op.out_expert_counters == nullptr) return;
    if (c_.op.counters_are_64) add_up(message, static_cast<int64_t*>(c_.op.out_expert_counters));
    else add_up(message, static_cast<int32_t*>(c_.op.out_expert_counters));
  }
  template <class T>
  SWITCHYARD_DEVICE void add_up(const Message& message, T* sums) const {
    const int num_local = c_.op.num_local;
    for (int local = 0; local < num_local; ++local) p_.write(&sums[local], T{0});
    for (int source = 0; source < c_.num_ranks(); ++source) {
      if (!get(of_.is_here(source))) continue;
      const int32_t* const rows = message.peers().box_of(source) + HtBoard::expert(0);
      for (int local = 0; local < num_local; ++local) p_.write(&sums[local], T(p_.read(&sums[local]) + p_.read(&rows[local])));
    }
  }

  // Expert-major: a zone per expert, sources in rank order inside; zones are padded.
  SWITCHYARD_DEVICE int64_t place_by_expert() {
    int64_t first = 0;
    for (int source = 0; source < c_.num_ranks(); ++source) p_.write(&c_.record[at_.base(source)], 0);
    for (int local = 0; local < c_.op.num_local; ++local) {
      int64_t end = first;
      for (int source = 0; source < c_.num_ranks(); ++source) {
        int32_t* const box = sees_all() ? nullptr : places_.peers().box_for(source);
        if (box != nullptr) p_.write(box + HtBoard::expert(local), int32_t(within_budget(end)));
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
  SWITCHYARD_DEVICE static int32_t in_32_bits(int64_t value) { return int32_t(value < INT32_MAX ? value : INT32_MAX); }
  SWITCHYARD_DEVICE void write_number(void* output, bool wide, int idx, int64_t value) const {
    if (output == nullptr) return;
    if (wide) p_.write(static_cast<int64_t*>(output) + idx, value);
    else p_.write(static_cast<int32_t*>(output) + idx, in_32_bits(value));
  }

  SWITCHYARD_DEVICE bool await_places() {
    const bool all = places_.hear([&](int peer, const int32_t* box) {
      if (box != nullptr && p_.read(box + HtBoard::kNote) != 0) refuse(peer, p_.read(box + HtBoard::kRows));
      set(of_.row_place(peer), box != nullptr && c_.has_way(c_.rank(), peer) ? p_.read(box + HtBoard::kRows) : -1);
    });
    if (!all || c_.failed()) return c_.failed();
    for (int expert = 0; expert < c_.group().num_experts; ++expert) {
      const int owner = c_.owner(expert);
      const bool come = get(of_.row_place(owner)) >= 0;
      set(of_.place(expert), come ? heard(places_, owner, HtBoard::expert(c_.local_id(expert))) : -1);
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
    tell_owners(kept_, [this, of = of_](int, int expert) { return get(of.kept(expert)); });
    kept_.post([&](int peer, int32_t* box) { write_head(box, get(of_.kept_to(peer)), 0); });
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
    clear(of_.count(0), of_.count(c_.group().num_experts));
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
    const bool all = kept_.hear([&](int source, const int32_t* box) {
      const int32_t rows = box != nullptr ? p_.read(box + HtBoard::kRows) : 0;
      if (rows < 0 || rows > c_.read(at_.received(source))) c_.give_up(source, Phase::kBadMessage);
      else p_.write(&c_.record[at_.received(source)], rows);
      set(of_.is_here(source), box != nullptr);
    });
    if (!all || c_.failed()) return c_.failed();
    if (!c_.op.expert_major) count_experts(kept_);
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
  Message counts_, places_, kept_;
  Stage stage_ = Stage::kCount;
  uint64_t mask_ = 0;         // digest of who was masked when all counts were there
  bool over_budget_ = false;  // here
  bool refused_ = false;      // by some rank
  int token_ = 0;
  int node_ = 0;
  bool all_sent_ = false;
  int sources_over_ = 0;
};

}  // namespace switchyard::ep
