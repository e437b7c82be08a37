// Both algorithms and the collectives over a network that makes mistakes, with checksums on: every result is the model's,
// or there is an error in time.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "ep/buffer.hpp"
#include "faults/life.hpp"
#include "net/fault.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using FaultCounts = std::array<uint64_t, kNumFaults>;
constexpr int kNumRanks = 4;
const std::vector<int> kNodes = {0, 0, 0, 1};  // as LifeOptions::two_nodes says

struct Story {
  uint64_t seed = 0;
  Algorithm algorithm = Algorithm::kLowLatency;
  const char* net = "ofi";
  const char* gin = "direct";
  FaultPlan plan{};
  bool masks = false;
  bool windows = false;
  bool varied = false;
  int cutter = -1;  // a rank that cuts one off in the middle, and restores it if `flap`
  bool flap = false;
  int num_rounds = 8;
  uint64_t timeout_ns = 20 * kSecond;

  LifeOptions life() const {
    return {.num_ranks = kNumRanks,
            .masks = masks,
            .windows = windows,
            .layout = seed % 2 ? oracle::Layout::kExpertMajor : oracle::Layout::kRankMajor,
            .hidden = 64,
            .algorithm = algorithm,
            .two_nodes = true};
  }
  bool has_group() const { return algorithm != Algorithm::kCollectives; }
};

struct Ending {
  FaultCounts counts{};
  int num_good = 0;            // operations of a rank that gave what the model says
  int num_begun = 0;           // and all
  std::vector<Status> errors;  // how ranks ended that did not get through
  std::vector<std::string> wrong;
  uint64_t longest_ns = 0;  // operation
};

// One rank's part, until the first error, which frees the others by an abort.
class Rank {
 public:
  Rank(Communicator& comm, StreamRef stream, const Story& story)
      : comm_(comm),
        stream_(stream),
        story_(story),
        scene_(make_scene(story.seed, story.life())),
        mask_(comm, kNumRanks * sizeof(int32_t)) {
    scene_->equip(comm, stream);
  }

  void live() {
    if (std::optional<ep::GroupConfig> config = scene_->group_config()) {
      config->timeout_ns = story_.timeout_ns;
      config->enable_mask = story_.masks;
      auto group = ep::Group::create(comm_, *config);
      if (!step(group.status())) return;
      group_ = std::move(group).value();
    }
    if (!step(scene_->open(group_.get()))) return;
    for (int round = 0; round < story_.num_rounds; ++round) {
      if (comm_.rank() == story_.cutter && round == story_.num_rounds / 2) cut();
      const int num_operations = scene_->begin(round, story_.varied);
      for (int idx = 0; idx < num_operations; ++idx) {
        if (!operation(idx)) return;
      }
    }
  }
  // COLLECTIVE, when all ranks are through: what one has may be in use until then.
  void leave() {
    scene_->close();
    group_.reset();
    scene_->unequip();
  }

  Status error;
  std::string wrong;
  int num_good = 0, num_begun = 0;
  uint64_t longest_ns = 0;

 private:
  bool step(const Status& status) {
    if (status.ok()) return true;
    error = status;
    comm_.abort(status.message());
    return false;
  }
  bool operation(int idx) {
    ++num_begun;
    const uint64_t began_ns = now_ns();
    Status done = scene_->run(idx);
    longest_ns = std::max(longest_ns, now_ns() - began_ns);
    if (story_.masks && scene_->asks_to_repeat(done)) done = Status::remote("a rank was given up: " + done.message());
    if (done.ok() && group_ != nullptr && story_.masks) done = look_at_mask();
    if (!step(done)) return false;
    wrong = scene_->check(idx, /*masked=*/false);
    if (!wrong.empty()) return step(Status::internal(wrong));
    ++num_good;
    return true;
  }
  // A rank that was given up sends nothing, and what the others then get is another test's subject.
  Status look_at_mask() {
    SWITCHYARD_TRY(group_->mask_query(mask_.span<int32_t>().data(), stream_));
    SWITCHYARD_TRY(comm_.runtime().synchronize(stream_, Deadline::after_ns(60 * kSecond)));
    for (const int32_t present : mask_.span<int32_t>()) {
      if (present == 0) return Status::remote("a rank was given up");
    }
    return group_->async_error().value() == 0 ? Status() : Status::remote("an asynchronous error");
  }
  void cut() {
    FaultEndpoint* faults = find_faults(comm_.net());
    const int last = kNumRanks - 1, peer = comm_.rank() == last ? int(story_.seed) % last : last;
    faults->cut(peer, story_.seed % 2 ? Cut::kRefuse : Cut::kSilent);
    if (story_.flap) faults->restore(peer);
  }

  Communicator& comm_;
  StreamRef stream_;
  const Story& story_;
  const std::unique_ptr<Scene> scene_;
  Buffer mask_;
  std::unique_ptr<ep::Group> group_;
};

Ending tell(const Story& story) {
  // Collectives wait as long as the communicator does.
  const uint64_t timeout_ns = story.has_group() ? 20 * kSecond : std::max(story.timeout_ns, 3 * kSecond);
  ThreadRanks ranks(
      kNumRanks,
      {.timeout_ns = timeout_ns, .net = story.net, .gin = story.gin, .net_decorations = {.faults = story.plan, .checksum = true}},
      kNodes);
  std::vector<std::unique_ptr<Rank>> lives(kNumRanks);
  ranks.on_all([&](int rank) {
    lives[size_t(rank)] = std::make_unique<Rank>(ranks.comm(rank), ranks.stream_ref(rank), story);
    lives[size_t(rank)]->live();
  });
  Ending ending;
  for (int rank = 0; rank < kNumRanks; ++rank) {
    const Rank& life = *lives[size_t(rank)];
    const FaultEndpoint* faults = find_faults(ranks.comm(rank).net());
    for (size_t fault = 0; fault < kNumFaults; ++fault) ending.counts[fault] += faults->count(Fault(fault));
    ending.num_good += life.num_good;
    ending.num_begun += life.num_begun;
    ending.longest_ns = std::max(ending.longest_ns, life.longest_ns);
    if (!life.wrong.empty()) ending.wrong.push_back(text("rank ", rank, ": ", life.wrong));
    else if (!life.error.ok()) ending.errors.push_back(life.error);
  }
  ranks.on_all([&](int rank) { lives[size_t(rank)]->leave(); });
  return ending;
}

uint64_t num_damaged(const FaultCounts& counts) {
  uint64_t sum = 0;
  for (const Fault fault : {Fault::kDrop, Fault::kDuplicate, Fault::kTruncate, Fault::kFlip, Fault::kCut}) {
    sum += counts[size_t(fault)];
  }
  return sum;
}

TEST(NetFaults, LateAndInAnotherOrderIsNoFault) {
  FaultCounts counts{};
  for (uint64_t seed = 1; seed <= (soaking() ? 40u : 8u); ++seed) {
    Story story{.seed = seed,
                .algorithm = Algorithm(seed % 3),
                .net = seed % 2 ? "ofi" : "ofi:net",
                .gin = seed % 4 < 2 ? "direct" : "proxy",
                .masks = seed % 9 < 3,
                .windows = seed % 4 == 0,
                .varied = seed % 5 == 0,
                .num_rounds = 40};
    story.plan = {.seed = seed, .delay = 0.1, .reorder = 0.3, .max_delay_ns = kMillisecond / 2};
    const Ending ending = tell(story);
    for (size_t fault = 0; fault < kNumFaults; ++fault) counts[fault] += ending.counts[fault];
    ASSERT_TRUE(ending.wrong.empty()) << ending.wrong[0] << ", seed " << seed;
    ASSERT_TRUE(ending.errors.empty()) << ending.errors[0].to_string() << ", seed " << seed;
    ASSERT_EQ(ending.num_good, ending.num_begun);
    ASSERT_GE(ending.num_begun, kNumRanks * story.num_rounds);
  }
  EXPECT_GT(counts[size_t(Fault::kDelay)], 1000u);
  EXPECT_GT(counts[size_t(Fault::kReorder)], 1000u);
}

Story random_story(uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto one_in = [&](uint64_t n) { return engine() % n == 0; };
  // Half of them low latency.
  constexpr Algorithm kAlgorithms[] = {Algorithm::kLowLatency, Algorithm::kHighThroughput, Algorithm::kLowLatency,
                                       Algorithm::kCollectives};
  Story story{.seed = seed,
              .algorithm = kAlgorithms[seed % std::size(kAlgorithms)],
              .net = one_in(2) ? "ofi" : "ofi:net",
              .gin = one_in(2) ? "direct" : "proxy",
              .masks = one_in(3),
              .windows = one_in(3),
              .varied = one_in(4),
              .cutter = one_in(6) ? int(engine() % kNumRanks) : -1,
              .flap = one_in(2),
              .timeout_ns = 300 * kMillisecond};
  story.plan = {.seed = seed, .delay = 0.01, .reorder = 0.02, .max_delay_ns = kMillisecond / 4};
  // A mistake here and there, which most operations get past; or a network of which little can be used. Of all kinds,
  // or of one.
  constexpr double kRates[] = {0.004, 0.05, 0.4};
  const double rate = kRates[engine() % std::size(kRates)];
  double FaultPlan::*const kinds[] = {&FaultPlan::drop, &FaultPlan::duplicate, &FaultPlan::truncate, &FaultPlan::flip};
  if (one_in(2)) {
    for (const auto kind : kinds) story.plan.*kind = rate / std::size(kinds);
  } else {
    story.plan.*kinds[engine() % std::size(kinds)] = rate;
  }
  return story;
}

// What came of many stories.
struct Chronicle {
  FaultCounts counts{};
  uint64_t num_faults = 0, num_stories = 0, num_good = 0, num_ended = 0, longest_ns = 0;

  void add(const Story& story, const Ending& ending) {
    for (size_t fault = 0; fault < kNumFaults; ++fault) {
      counts[fault] += ending.counts[fault];
      num_faults += ending.counts[fault];
    }
    ++num_stories;
    num_good += uint64_t(ending.num_good);
    num_ended += !ending.errors.empty();
    longest_ns = std::max(longest_ns, ending.longest_ns);
    EXPECT_TRUE(ending.wrong.empty()) << ending.wrong[0] << ", seed " << story.seed;
    EXPECT_LT(ending.longest_ns, 10 * kSecond) << "seed " << story.seed;
    for (const Status& error : ending.errors) {
      const bool clean = error.code() == Code::kRemoteError || error.message().find("abort") != std::string::npos;
      EXPECT_TRUE(clean) << error.to_string() << ", seed " << story.seed;
    }
  }
};

// Every operation ends with what the model says, or with an error by its time limit. Runs until so many faults were
// injected: a share of them here, 50,000 when soaking. Stories mostly wait, so several are told at a time.
TEST(NetFaults, WithChecksumsResultsAreRightOrThereIsAnErrorInTime) {
  constexpr int kAtATime = 8;
  const uint64_t num_wanted = soaking() ? 50'000 : 1'200;
  Chronicle all;
  std::mutex mutex;  // of it
  std::atomic<uint64_t> next_seed{1};
  const auto tell_stories = [&] {
    const auto is_enough = [&] {
      const std::lock_guard lock(mutex);
      return all.num_faults >= num_wanted || HasFailure();
    };
    while (!is_enough()) {
      const Story story = random_story(next_seed.fetch_add(1));
      const Ending ending = tell(story);
      const std::lock_guard lock(mutex);
      all.add(story, ending);
    }
  };
  std::vector<std::thread> tellers;
  for (int i = 0; i < kAtATime; ++i) tellers.emplace_back(tell_stories);
  for (std::thread& teller : tellers) teller.join();
  for (size_t fault = 0; fault < kNumFaults; ++fault) printf("%s %lu, ", fault_name(Fault(fault)), all.counts[fault]);
  printf("in %lu stories, %lu of them ended by an error; %lu operations right; longest %.0f ms\n", all.num_stories,
         all.num_ended, all.num_good, double(all.longest_ns) / kMillisecond);
  EXPECT_GT(2 * num_damaged(all.counts), all.num_faults) << "late and in another order is no fault";
  EXPECT_GT(all.num_ended, all.num_stories / 4) << "damage that nobody notices is no damage";
  EXPECT_GT(all.num_good, all.num_stories);
}

}  // namespace
}  // namespace switchyard::testing
