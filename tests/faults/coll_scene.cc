#include "coll/coll_rank.hpp"
#include "faults/scene.hpp"

namespace switchyard::testing {
namespace {

// All collectives, and a message to the next rank, as one operation: none can go on without a rank.
class CollScene final : public Scene {
 public:
  CollScene(uint64_t seed, const LifeOptions& options) : nodes_(size_t(options.num_ranks), 0), seed_(seed) {
    if (options.two_nodes) nodes_.back() = 1;
  }

  std::optional<ep::GroupConfig> group_config() const override { return std::nullopt; }
  void equip(Communicator& comm, StreamRef /*stream*/) override { comm_ = &comm; }
  Status open(ep::Group* /*group*/) override {
    SWITCHYARD_ASSIGN(io_, CollRank::create(*comm_));
    return {};
  }
  void close() override { io_.reset(); }
  void unequip() override {}

  // What goes in one piece, or in several where varied.
  int begin(int round, bool varied) override {
    round_ = {.count = varied ? 20'000u : 700u, .dtype = DType::kFloat32, .seed = 10 * seed_ + uint64_t(round) + 1};
    return 1;
  }
  Status run(int /*idx*/) override { return io_->run(round_); }
  bool asks_to_repeat(const Status& /*status*/) const override { return false; }
  std::string check(int /*idx*/, bool /*masked*/) override { return io_->check(round_, nodes_); }

 private:
  std::vector<int> nodes_;  // by rank
  const uint64_t seed_;
  Communicator* comm_ = nullptr;
  std::optional<CollRank> io_;
  CollRound round_;
};

}  // namespace

std::unique_ptr<Scene> make_coll_scene(uint64_t seed, const LifeOptions& options) {
  return std::make_unique<CollScene>(seed, options);
}

}  // namespace switchyard::testing
