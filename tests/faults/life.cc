#include "faults/life.hpp"

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <utility>

namespace switchyard::testing {

std::unique_ptr<Scene> make_scene(uint64_t seed, const LifeOptions& options) {
  constexpr decltype(&make_ll_scene) kMake[] = {make_ll_scene, make_ht_scene, make_coll_scene};  // as Algorithm
  return kMake[size_t(options.algorithm)](seed, options);
}

// ---- Life ----

Life::Life(const LifeOptions& options, const UniqueId& id, int rank) : options_(options), id_(id), rank_(rank) {
  for (int scene = 0; scene < kNumScenes; ++scene) scenes_.push_back(make_scene(uint64_t(scene), options));
}

Status Life::connect() {
  SWITCHYARD_ASSIGN(comm_, Communicator::create(id_, rank_, options_.num_ranks,
                                                {.timeout_ns = options_.comm_timeout_ns}));
  return {};
}

Status Life::settle() {
  SWITCHYARD_ASSIGN(stream_, Stream::create());
  SWITCHYARD_ASSIGN(split_, comm_->split(0, rank_));
  if (std::optional<ep::GroupConfig> config = scenes_[0]->group_config()) {
    config->enable_mask = options_.masks;
    config->timeout_ns = options_.timeout_ns;
    SWITCHYARD_ASSIGN(group_, ep::Group::create(*split_, *config));
  }
  mask_ = std::make_unique<Buffer>(*split_, size_t(options_.num_ranks) * sizeof(int32_t));
  for (const auto& scene : scenes_) scene->equip(*split_, stream());
  for (const auto& scene : scenes_) SWITCHYARD_TRY(scene->open(group_.get()));
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

Status Life::round_trip(bool varied) {
  const int round = round_++;
  Scene& scene = *scenes_[size_t(round % kNumScenes)];
  const int num_operations = scene.begin(round, varied);
  bool is_good = true, masked_at_first = false;
  for (int idx = 0; idx < num_operations; ++idx) {
    const Status done = scene.run(idx);
    if (!done.ok()) {
      if (!options_.masks || !scene.asks_to_repeat(done)) return done;
      is_good = false;
    }
    SWITCHYARD_TRY(look_at_mask());
    if (idx == 0) masked_at_first = masked_;
    if (!is_good) continue;
    compare(scene.check(idx, masked_));
  }
  num_masked_rounds_ += is_good && masked_at_first;
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
  for (const auto& scene : scenes_) scene->close();
  group_.reset();
  mask_.reset();
  for (const auto& scene : scenes_) scene->unequip();
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
