#include "faults/life.hpp"

#include <cstdlib>
#include <filesystem>
#include <random>
#include <regex>

#include "oracle/float_formats.hpp"

namespace switchyard::testing {
namespace {

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

std::vector<uint8_t> expert_row(uint64_t seed, const oracle::Case& c, oracle::TokenRef token, int rank,
                                size_t block_idx) {
  // Rank-major blocks are sources, which the token names already.
  const uint64_t expert = c.layout == oracle::Layout::kExpertMajor ? uint64_t(block_idx) : 0;
  std::mt19937_64 engine(seed << 56 | uint64_t(token.rank) << 48 | uint64_t(token.token_idx) << 32 | uint64_t(rank) << 16 | expert);
  std::vector<float> values(size_t(c.combine_hidden ? c.combine_hidden : c.hidden));
  for (float& value : values) value = float(int64_t(engine() % 4001) - 2000) / 16;
  return oracle::encode_row(c.combine_dtype, values);
}

oracle::ExpertOutputs make_outputs(uint64_t seed, const oracle::Case& c, const oracle::Dispatch& dispatch) {
  oracle::ExpertOutputs outputs;
  outputs.rows.resize(dispatch.ranks.size());
  outputs.global_scales.resize(dispatch.ranks.size());
  for (size_t rank = 0; rank < dispatch.ranks.size(); ++rank) {
    for (size_t block_idx = 0; block_idx < dispatch.ranks[rank].blocks.size(); ++block_idx) {
      std::vector<uint8_t>& rows = outputs.rows[rank].emplace_back();
      outputs.global_scales[rank].emplace_back();
      for (const oracle::TokenRef& token : dispatch.ranks[rank].blocks[block_idx]) {
        const std::vector<uint8_t> row = expert_row(seed, c, token, int(rank), block_idx);
        rows.insert(rows.end(), row.begin(), row.end());
      }
    }
  }
  return outputs;
}

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

// ---- LifeOptions ----

std::vector<std::string> LifeOptions::to_arguments() const {
  return {std::to_string(num_ranks),
          std::to_string(victim),
          masks ? "masks" : "no-masks",
          windows ? "windows" : "plain",
          layout == oracle::Layout::kExpertMajor ? "expert-major" : "rank-major",
          std::to_string(timeout_ns),
          std::to_string(comm_timeout_ns),
          std::to_string(hidden)};
}

LifeOptions LifeOptions::from_arguments(const std::vector<std::string>& arguments) {
  return {.num_ranks = std::stoi(arguments.at(0)),
          .victim = std::stoi(arguments.at(1)),
          .masks = arguments.at(2) == "masks",
          .windows = arguments.at(3) == "windows",
          .layout = arguments.at(4) == "expert-major" ? oracle::Layout::kExpertMajor : oracle::Layout::kRankMajor,
          .timeout_ns = std::stoull(arguments.at(5)),
          .comm_timeout_ns = std::stoull(arguments.at(6)),
          .hidden = std::stoi(arguments.at(7))};
}

std::string LifeOptions::name() const {
  return text(masks ? "masks" : "no masks", windows ? ", windows" : ", plain",
              layout == oracle::Layout::kExpertMajor ? ", expert-major" : ", rank-major", ", rank ", victim, " of ",
              num_ranks);
}

// ---- Life ----

Life::Life(const LifeOptions& options, const UniqueId& id, int rank) : options_(options), id_(id), rank_(rank) {
  for (int scene = 0; scene < kNumScenes; ++scene) scenes_.push_back(make_scene(uint64_t(scene)));
}

Life::Scene Life::make_scene(uint64_t seed) const {
  const oracle::Case c =
      oracle::make_case(seed, shape_for(options_), oracle::Routing::kUniform, oracle::Fill::kPartial);
  const oracle::Masks masks = everyone_masks(options_.num_ranks, options_.victim);
  const oracle::Masks nobody(size_t(options_.num_ranks), std::vector<int>(size_t(options_.num_ranks), 1));
  Scene scene;
  scene.unmasked = make_masked_scenario(seed, c, nobody, nobody);
  scene.masked_later = make_masked_scenario(seed, c, nobody, masks);
  scene.masked_throughout = make_masked_scenario(seed, c, masks, masks);
  scene.expected = scene.unmasked;
  return scene;
}

void Life::Scene::expect(bool masked_at_dispatch, bool masked_at_combine) {
  expected = masked_at_dispatch ? masked_throughout : masked_at_combine ? masked_later : unmasked;
}

Status Life::connect() {
  SWITCHYARD_ASSIGN(comm_, Communicator::create(id_, rank_, options_.num_ranks,
                                                {.timeout_ns = options_.comm_timeout_ns}));
  return {};
}

Status Life::settle() {
  SWITCHYARD_ASSIGN(stream_, Stream::create());
  SWITCHYARD_ASSIGN(split_, comm_->split(0, rank_));
  ep::GroupConfig config = group_config_for(shape_for(options_));
  config.enable_mask = options_.masks;
  config.timeout_ns = options_.timeout_ns;
  SWITCHYARD_ASSIGN(group_, ep::Group::create(*split_, config));
  mask_ = std::make_unique<Buffer>(*split_, size_t(options_.num_ranks) * sizeof(int32_t));
  for (Scene& scene : scenes_) {
    scene.io = std::make_unique<LlRank>(*split_, stream(), scene.expected, options_.windows);
  }
  for (Scene& scene : scenes_) SWITCHYARD_TRY(scene.io->open(*group_));
  round_ = 0;
  return {};
}

Status Life::join() {
  SWITCHYARD_TRY(connect());
  return settle();
}

Status Life::look_at_mask() {
  masked_ = false;
  if (!options_.masks) return {};
  SWITCHYARD_TRY(group_->mask_query(mask_->span<int32_t>().data(), stream()));
  SWITCHYARD_TRY(stream_->synchronize(Deadline::after_ns(60 * kSecond)));
  masked_ = mask_->span<int32_t>()[size_t(options_.victim)] == 0;
  if (is_victim_) return {};
  if (masked_ && !async_error()) compare("the victim is masked without an async error");
  for (int peer = 0; peer < options_.num_ranks; ++peer) {
    if (peer != options_.victim && mask_->span<int32_t>()[size_t(peer)] == 0) compare(text("rank ", peer, " is masked"));
  }
  return {};
}

void Life::compare(const std::string& fault) {
  if (fault.empty() || !wrong_.empty() || (is_victim_ && async_error())) return;
  wrong_ = text("rank ", rank_, " (", options_.name(), "): ", fault);
}

Status Life::half(LlRank& io, Status posted, bool staged) {
  SWITCHYARD_TRY(posted);
  if (staged) SWITCHYARD_TRY(io.complete());
  SWITCHYARD_TRY(io.synchronize());
  return look_at_mask();
}

Status Life::round_trip(bool staged) {
  Scene& scene = scenes_[size_t(round_++ % kNumScenes)];
  LlRank& io = *scene.io;
  SWITCHYARD_TRY(half(io, io.post_dispatch(staged), staged));
  const bool masked_at_dispatch = masked_;
  scene.expect(masked_at_dispatch, masked_at_dispatch);
  compare(io.check_dispatch());
  SWITCHYARD_TRY(half(io, io.post_combine(staged), staged));
  scene.expect(masked_at_dispatch, masked_);
  compare(io.check_combine());
  num_masked_rounds_ += masked_at_dispatch;
  return {};
}

Status Life::run() {
  SWITCHYARD_TRY(join());
  SWITCHYARD_TRY(round_trip(false));
  if (options_.masks) SWITCHYARD_TRY(clean_masks());
  SWITCHYARD_TRY(round_trip(true));
  return round_trip(false);
}

void Life::unsettle() {
  // What was posted still uses the handle; how it ends has been told, or is of no interest any more.
  if (stream_) (void)stream_->synchronize(Deadline::after_ns(2 * options_.timeout_ns + kSecond));
  for (Scene& scene : scenes_) {
    if (scene.io) scene.io->close();
  }
  group_.reset();
  mask_.reset();
  for (Scene& scene : scenes_) scene.io.reset();
  split_.reset();
  stream_.reset();
}

void Life::leave() {
  unsettle();
  comm_.reset();
}

// ---- what tests ask of a process ----

Result<FreshJob> FreshJob::create(Communicator& meeting) {
  FreshJob job;
  if (meeting.rank() == 0) {
    SWITCHYARD_ASSIGN(job.coordinator, Coordinator::start());
    job.id = job.coordinator->id();
  }
  SWITCHYARD_ASSIGN(const std::vector<UniqueId> ids, meeting.exchange(job.id));
  job.id = ids[0];
  return job;
}

bool names_rank(const std::string& message, int rank) {
  // Also in a list, as in "missing: rank 0, 2".
  const std::regex named(text("\\brank (\\d+, )*", rank, "(?!\\d)"));
  return std::regex_search(message, named);
}

bool soaking() { return getenv("SWITCHYARD_FAULTS_SOAK") != nullptr; }

int num_open_fds() {
  const std::filesystem::directory_iterator fds("/proc/self/fd"), end;
  return int(std::distance(fds, end)) - 1;  // less the one that reads the folder
}

}  // namespace switchyard::testing
