#include "faults/ll_scene.hpp"

#include "faults/expert_rows.hpp"
#include "faults/scene.hpp"

namespace switchyard::testing {
namespace {

oracle::ExpertOutputs make_outputs(uint64_t seed, const oracle::Case& c, const oracle::Dispatch& dispatch) {
  oracle::ExpertOutputs outputs;
  outputs.rows.resize(dispatch.ranks.size());
  outputs.global_scales.resize(dispatch.ranks.size());
  for (size_t rank = 0; rank < dispatch.ranks.size(); ++rank) {
    for (size_t block_idx = 0; block_idx < dispatch.ranks[rank].blocks.size(); ++block_idx) {
      // Rank-major blocks are sources, which the token names already.
      const uint64_t expert = c.layout == oracle::Layout::kExpertMajor ? uint64_t(block_idx) : 0;
      std::vector<uint8_t>& rows = outputs.rows[rank].emplace_back();
      outputs.global_scales[rank].emplace_back();
      for (const oracle::TokenRef& token : dispatch.ranks[rank].blocks[block_idx]) {
        const std::vector<uint8_t> row = expert_row(seed, c, token, int(rank), expert);
        rows.insert(rows.end(), row.begin(), row.end());
      }
    }
  }
  return outputs;
}

oracle::Shape shape_for(const LifeOptions& options) {
  oracle::Shape shape;
  shape.num_ranks = options.num_ranks;
  shape.num_experts = 2 * options.num_ranks + 1;
  shape.topk = 3;
  shape.hidden = options.hidden;
  shape.max_tokens = 9;
  shape.layout = options.layout;
  return shape;
}

// Dispatch and combine, in two halves each where varied.
class LlScene final : public Scene {
 public:
  LlScene(uint64_t seed, const LifeOptions& options) : windows_(options.windows) {
    const oracle::Case c =
        oracle::make_case(seed, shape_for(options), oracle::Routing::kUniform, oracle::Fill::kPartial);
    const oracle::Masks masks = everyone_masks(options.num_ranks, options.victim);
    const oracle::Masks nobody = masks_of_pairs(options.num_ranks, 0);
    unmasked_ = make_masked_scenario(seed, c, nobody, nobody);
    masked_later_ = make_masked_scenario(seed, c, nobody, masks);
    masked_throughout_ = make_masked_scenario(seed, c, masks, masks);
    expected_ = unmasked_;
  }

  std::optional<ep::GroupConfig> group_config() const override { return group_config_for(unmasked_.c); }
  void equip(Communicator& comm, StreamRef stream) override {
    io_ = std::make_unique<LlRank>(comm, stream, expected_, windows_);
  }
  Status open(ep::Group* group) override { return io_->open(*group); }
  void close() override {
    if (io_) io_->close();
  }
  void unequip() override { io_.reset(); }

  int begin(int /*round*/, bool varied) override {
    staged_ = varied;
    return 2;
  }
  Status run(int idx) override {
    SWITCHYARD_TRY(idx == kDispatch ? io_->post_dispatch(staged_) : io_->post_combine(staged_));
    if (staged_) SWITCHYARD_TRY(io_->complete());
    return io_->synchronize();
  }
  bool asks_to_repeat(const Status& /*status*/) const override { return false; }  // operations go on without the victim
  std::string check(int idx, bool masked) override {
    if (idx == kDispatch) masked_at_dispatch_ = masked;
    expected_ = masked_at_dispatch_ ? masked_throughout_ : masked ? masked_later_ : unmasked_;
    return idx == kDispatch ? io_->check_dispatch() : io_->check_combine();
  }

 private:
  static constexpr int kDispatch = 0;

  const bool windows_;
  LlScenario unmasked_, masked_later_, masked_throughout_;
  LlScenario expected_;  // one of the three; what io_ refers to
  std::unique_ptr<LlRank> io_;
  bool staged_ = false;
  bool masked_at_dispatch_ = false;
};

}  // namespace

LlScenario make_masked_scenario(uint64_t seed, oracle::Case c, oracle::Masks at_dispatch, oracle::Masks at_combine) {
  c.mask = std::move(at_dispatch);
  c.combine_mask = std::move(at_combine);
  LlScenario scenario{std::move(c), {}, {}, {}};
  scenario.dispatch = oracle::expected_dispatch(scenario.c);
  scenario.outputs = make_outputs(seed, scenario.c, scenario.dispatch);
  scenario.combined = oracle::expected_combine(scenario.c, scenario.dispatch, scenario.outputs);
  return scenario;
}

oracle::Masks everyone_masks(int num_ranks, int rank) {
  oracle::Masks masks(size_t(num_ranks), std::vector<int>(size_t(num_ranks), 1));
  for (int other = 0; other < num_ranks; ++other) masks[size_t(other)][size_t(rank)] = other == rank;
  return masks;
}

std::unique_ptr<Scene> make_ll_scene(uint64_t seed, const LifeOptions& options) {
  return std::make_unique<LlScene>(seed, options);
}

}  // namespace switchyard::testing
