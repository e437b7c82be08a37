#include "faults/ht_scene.hpp"

#include <algorithm>
#include <limits>

#include "faults/expert_rows.hpp"
#include "faults/ll_scene.hpp"
#include "faults/scene.hpp"

namespace switchyard::testing {
namespace {

using Pass = ep::PassDirection;

// ---- the model ----

// The local expert in whose zone the row is.
int zone_of(const oracle::HtRankDispatch& rank, size_t row_idx) {
  const auto& offsets = rank.expert_offsets;
  return int(std::upper_bound(offsets.begin(), offsets.end(), int64_t(row_idx)) - offsets.begin()) - 1;
}

float gradient_of(uint64_t seed, oracle::TokenRef token, int rank, uint64_t expert) {
  std::mt19937_64 engine = expert_engine(seed + 100, token, rank, expert);
  return expert_value(engine);
}

void append_outputs(uint64_t seed, const oracle::HtCase& c, const oracle::HtDispatch& dispatch, int rank,
                    oracle::HtExpertOutputs& outputs) {
  const oracle::HtRankDispatch& received = dispatch.ranks[size_t(rank)];
  const bool flat = c.layout == oracle::HtLayout::kFlat;
  std::vector<uint8_t>& rows = outputs.rows.emplace_back();
  std::vector<float>& gradients = outputs.weight_gradients.emplace_back();
  const float nobodys = std::numeric_limits<float>::quiet_NaN();
  for (size_t row_idx = 0; row_idx < received.rows.size(); ++row_idx) {
    const std::optional<oracle::TokenRef>& token = received.rows[row_idx];
    const auto expert = flat ? 0 : uint64_t(zone_of(received, row_idx));
    const std::vector<uint8_t> row = token ? expert_row(seed, c, *token, rank, expert)
                                           : std::vector<uint8_t>(c.combine_row_bytes(), 0xff);
    rows.insert(rows.end(), row.begin(), row.end());
    if (!flat) {
      gradients.push_back(token ? gradient_of(seed, *token, rank, expert) : nobodys);
      continue;
    }
    for (int i = 0; i < c.topk; ++i) {
      const int64_t id = received.topk_idx[row_idx * size_t(c.topk) + size_t(i)];
      gradients.push_back(id >= 0 ? gradient_of(seed, *token, rank, uint64_t(id)) : nobodys);
    }
  }
}

// By the rule of rails: who takes the rows of `source` from the network on that node.
int forwarder(const oracle::HtCase& c, int source, int node) {
  const auto first_of = [&](int of) {
    int first = 0;
    while (c.node_of(first) != of) ++first;
    return first;
  };
  int num_there = 0;
  for (int rank = 0; rank < c.num_ranks; ++rank) num_there += c.node_of(rank) == node;
  return first_of(node) + (source - first_of(c.node_of(source))) % num_there;
}

bool know_each_other(const oracle::Masks& masks, int one, int other) {
  return masks[size_t(one)][size_t(other)] != 0 && masks[size_t(other)][size_t(one)] != 0;
}

// Everybody whom `earlier` leaves out.
bool include(const oracle::Masks& masks, const oracle::Masks& earlier) {
  for (size_t rank = 0; rank < masks.size(); ++rank) {
    for (size_t peer = 0; peer < masks[rank].size(); ++peer) {
      if (masks[rank][peer] != 0 && earlier[rank][peer] == 0) return false;
    }
  }
  return true;
}

bool has_way(const oracle::HtCase& c, const oracle::Masks& masks, int source, int owner) {
  if (!know_each_other(masks, source, owner)) return false;
  if (c.node_of(source) == c.node_of(owner)) return true;
  const int between = forwarder(c, source, c.node_of(owner));
  return know_each_other(masks, source, between) && know_each_other(masks, between, owner);
}

// ---- the scene ----

constexpr int kMaxTokens = 9;
constexpr int kTopk = 3;
constexpr int kAlignment = 4;

oracle::HtCase case_for(uint64_t seed, const LifeOptions& options) {
  oracle::HtShape shape;
  shape.num_ranks = options.num_ranks;
  shape.num_experts = 2 * options.num_ranks + 1;
  shape.topk = kTopk;
  shape.hidden = options.hidden;
  shape.max_tokens = kMaxTokens;
  const bool flat = options.layout != oracle::Layout::kExpertMajor;
  shape.layout = flat ? oracle::HtLayout::kFlat : oracle::HtLayout::kExpertMajor;
  shape.alignment = flat ? 1 : kAlignment;
  if (options.two_nodes) {
    shape.node_of_rank.assign(size_t(options.num_ranks), 0);
    shape.node_of_rank.back() = 1;
  }
  oracle::HtCase c =
      oracle::make_ht_case(seed, shape, oracle::Routing::kUniform, oracle::Fill::kPartial, oracle::Budget::kEager);
  // One for all scenes of a group: of what they can need, or hardly more than the least that is allowed.
  const int worst = options.num_ranks * kMaxTokens * kTopk + shape.num_local(0) * kAlignment;
  c.budget = options.drops ? kMaxTokens + 1 : worst;
  c.overflow = options.drops ? oracle::Overflow::kDrop : oracle::Overflow::kTrap;
  return c;
}

// With masks nobody writes to another's output, so that it can't be required.
std::optional<ep::ZeroCopy> zero_copy_of(const LifeOptions& options) {
  return options.masks ? std::optional(ep::ZeroCopy::kAuto) : std::nullopt;
}

// Update, dispatch and combine; and, where varied, a backward pass.
class HtScene final : public Scene {
 public:
  HtScene(uint64_t seed, const LifeOptions& options)
      : mode_{.windows = options.windows, .zero_copy = zero_copy_of(options)},
        options_(options),
        seed_(seed),
        unmasked_(scenario_under(masks_of_pairs(options.num_ranks, 0))),
        masked_(scenario_under(everyone_masks(options.num_ranks, options.victim))),
        expected_(unmasked_) {}

  std::optional<ep::GroupConfig> group_config() const override { return group_config_for(unmasked_.c, mode_); }
  void equip(Communicator& comm, StreamRef stream) override {
    rank_ = comm.rank();
    io_ = std::make_unique<HtRank>(comm, stream, expected_, mode_);
  }
  Status open(ep::Group* group) override { return io_->open(*group); }
  void close() override {
    if (io_) io_->close();
  }
  void unequip() override { io_.reset(); }

  int begin(int round, bool varied) override {
    io_->start_round(round);
    return varied ? 5 : 3;
  }
  Status run(int idx) override { return io_->take_ending(post(idx)); }
  bool asks_to_repeat(const Status& status) const override {
    return status.message().find("ncclEpUpdateHandle") != std::string::npos;
  }
  std::string check(int idx, bool masked) override {
    if (idx != kUpdate && ranks_disagree_) return "an operation went on with an update in which peers had masked the victim and this rank had not";
    if (idx == kUpdate) return check_update(masked);
    const std::string fault = check_rows(idx);
    if (fault.empty() || !peers_may_not_know_) return fault;
    // A peer that had heard of the victim's rows before it died keeps room for them, and may drop others for that.
    for (const oracle::Masks& masks : views_of_others(/*this_rank_has_masked=*/true)) {
      expected_ = scenario_under(masks);
      if (io_->check_update().empty() && check_rows(idx).empty()) return "";
    }
    return fault;
  }

 private:
  enum { kUpdate, kDispatch, kCombine, kDispatchBackward, kCombineBackward };

  std::string check_rows(int idx) const {
    switch (idx) {
      case kDispatch: return io_->check_dispatch(Pass::kForward);
      case kCombine: return io_->check_combine(Pass::kForward);
      case kDispatchBackward: return io_->check_dispatch(Pass::kBackward);
      default: return io_->check_combine(Pass::kBackward);
    }
  }

  HtScenario scenario_under(const oracle::Masks& masks) const {
    return make_masked_ht_scenario(seed_, case_for(seed_, options_), masks);
  }
  // Every way in which the others may have masked the victim, or not.
  std::vector<oracle::Masks> views_of_others(bool this_rank_has_masked) const {
    const auto victim = size_t(options_.victim);
    std::vector<oracle::Masks> views{masks_of_pairs(options_.num_ranks, 0)};
    if (this_rank_has_masked) views[0][size_t(rank_)][victim] = 0;
    for (int peer = 0; peer < options_.num_ranks; ++peer) {
      if (peer == rank_ || peer == options_.victim) continue;
      for (size_t i = views.size(); i-- > 0;) {
        views.push_back(views[i]);
        views.back()[size_t(peer)][victim] = 0;
      }
    }
    return views;
  }
  // Whoever is masked later makes operations with this plan fail.
  std::string check_update(bool masked) {
    ranks_disagree_ = false;
    expected_ = masked ? masked_ : unmasked_;
    peers_may_not_know_ = masked && !was_masked_ && options_.drops;
    was_masked_ = masked;
    const std::string fault = io_->check_update();
    if (fault.empty() || masked || !options_.masks) return fault;
    // Peers, any of them, may have noticed a death that this rank has not: before their rows were counted, or after that.
    const std::vector<oracle::Masks> views = views_of_others(/*this_rank_has_masked=*/false);
    for (const oracle::Masks& counting : views) {
      const HtScenario counted = scenario_under(counting);
      for (const oracle::Masks& keeping : views) {
        if (!include(keeping, counting)) continue;
        expected_ = counted;
        leave_out(keeping);
        ranks_disagree_ = io_->check_update().empty();
        if (ranks_disagree_) return "";
      }
    }
    return fault;
  }
  // Rows that were counted, and then not kept, because their source or this rank has no way any more: where rows can be dropped,
  // experts of a flat layout are told of what is kept, while the total is of what was counted.
  void leave_out(const oracle::Masks& keeping) {
    const oracle::HtCase& c = expected_.c;
    if (c.layout != oracle::HtLayout::kFlat || !options_.drops) return;
    oracle::HtRankDispatch& received = expected_.dispatch.ranks[size_t(rank_)];
    for (size_t row_idx = 0; row_idx < received.rows.size(); ++row_idx) {
      if (has_way(c, keeping, received.rows[row_idx]->rank, rank_)) continue;
      for (int i = 0; i < c.topk; ++i) {
        const int64_t expert = received.topk_idx[row_idx * size_t(c.topk) + size_t(i)];
        if (expert >= 0) --received.expert_counters[size_t(expert)];
      }
    }
  }
  Status post(int idx) {
    switch (idx) {
      case kUpdate: return io_->post_update();
      case kDispatch: return io_->post_dispatch(Pass::kForward);
      case kCombine: return io_->post_combine(Pass::kForward);
      case kDispatchBackward: return io_->post_dispatch(Pass::kBackward);
      default: return io_->post_combine(Pass::kBackward);
    }
  }

  const HtMode mode_;
  const LifeOptions options_;
  const uint64_t seed_;
  const HtScenario unmasked_, masked_;
  HtScenario expected_;  // one of the two, or between them; what io_ refers to
  bool ranks_disagree_ = false;  // about the victim, in the last update
  bool was_masked_ = false;  // by this rank
  bool peers_may_not_know_ = false;  // of this rank's mask, in the last update: it was the first with it
  int rank_ = 0;
  std::unique_ptr<HtRank> io_;
};

}  // namespace

HtScenario make_masked_ht_scenario(uint64_t seed, oracle::HtCase c, const oracle::Masks& masks) {
  const std::vector<std::vector<int64_t>> named_idx = c.topk_idx;
  for (int source = 0; source < c.num_ranks; ++source) {
    for (int64_t& expert : c.topk_idx[size_t(source)]) {
      if (expert >= 0 && !has_way(c, masks, source, c.owner(expert))) expert = -1;
    }
  }
  HtScenario scenario = make_ht_scenario(seed, c);
  scenario.named_idx = named_idx;
  for (size_t i = 0; i < scenario.contents.size(); ++i) {
    HtContents& contents = scenario.contents[i];
    contents.outputs = {};
    for (int rank = 0; rank < c.num_ranks; ++rank) {
      append_outputs(2 * seed + i, c, scenario.dispatch, rank, contents.outputs);
    }
    contents.combined = oracle::expected_ht_combine(c, scenario.dispatch, contents.outputs);
  }
  return scenario;
}

std::unique_ptr<Scene> make_ht_scene(uint64_t seed, const LifeOptions& options) {
  return std::make_unique<HtScene>(seed, options);
}

}  // namespace switchyard::testing
