#include "bench/ep/jobs.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "bench/ep/bound_run.hpp"
#include "bench/stats.hpp"
#include "platform/host/futex.hpp"
#include "switchyard/device/barrier.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::bench {
namespace {

constexpr uint64_t kOverlapNs = 10 * kMillisecond;
constexpr uint64_t kLatenessNs = 5 * kMillisecond;
constexpr uint64_t kIdleNs = 50 * kMillisecond;  // far beyond what a worker polls for
constexpr int kBarriersPerSample = 50;

double p50_us(const std::vector<double>& samples_ns) { return percentile(samples_ns, 50) / 1e3; }

// A staged dispatch with time to work on its own: the parts during which the caller is held up.
Status staged_dispatch(EpRank& rank, double& visible_ns) {
  const uint64_t send_begin_ns = now_ns();
  SWITCHYARD_TRY(rank.post_dispatch(/*send_only=*/true));
  const uint64_t send_end_ns = now_ns();
  sleep_ns(kOverlapNs);
  const uint64_t receive_begin_ns = now_ns();
  SWITCHYARD_TRY(rank.complete(0));
  SWITCHYARD_TRY(rank.synchronize());
  visible_ns = double(send_end_ns - send_begin_ns + now_ns() - receive_begin_ns);
  return {};
}

// Two staged sends, one behind the other; the time until the second was through. One bank is free for each, so neither
// should have to wait for a rank that has not begun yet.
Status two_sends(EpRank& rank, double& sends_ns) {
  const uint64_t begin_ns = now_ns();
  for (const int handle_idx : {0, 1}) {
    SWITCHYARD_TRY(rank.post_dispatch(/*send_only=*/true, handle_idx));
    SWITCHYARD_TRY(rank.synchronize());
  }
  sends_ns = double(now_ns() - begin_ns);
  for (const int handle_idx : {0, 1}) SWITCHYARD_TRY(rank.complete(handle_idx));
  return rank.synchronize();
}

// What waking a sleeping thread costs the waker on this machine, after the same pauses as a cold post: its bound.
std::vector<double> time_wakes(int num_wakes) {
  std::atomic<uint32_t> word{0};
  std::atomic<bool> over{false};
  std::thread sleeper([&] {
    while (!over.load(std::memory_order_relaxed)) {
      futex_wait(word, 0, Deadline::after_ns(kSecond));
      word.store(0, std::memory_order_relaxed);
    }
  });
  std::vector<double> wakes;
  for (int i = 0; i < num_wakes; i++) {
    sleep_ns(kIdleNs);
    const uint64_t begin_ns = now_ns();
    word.store(1, std::memory_order_relaxed);
    futex_wake_all(word);
    wakes.push_back(double(now_ns() - begin_ns));
  }
  over.store(true, std::memory_order_relaxed);
  word.store(1, std::memory_order_relaxed);
  futex_wake_all(word);
  sleeper.join();
  return wakes;
}

}  // namespace

nlohmann::json percentiles_us(const std::vector<double>& samples_ns) {
  return {{"p50", percentile(samples_ns, 50) / 1e3}, {"p95", percentile(samples_ns, 95) / 1e3}};
}

const std::vector<double>& BoundSamples::faster() const {
  return percentile(ordinary, 50) <= percentile(streaming, 50) ? ordinary : streaming;
}

Result<std::vector<double>> time_posts(EpRank& rank, Meeting& meeting, int num_posts, uint64_t pause_ns) {
  std::vector<double> mine, everyones;
  SWITCHYARD_TRY(rank.dispatch());
  for (int i = 0; i < num_posts; i++) {
    if (pause_ns > 0) sleep_ns(pause_ns);
    const uint64_t begin_ns = now_ns();
    SWITCHYARD_TRY(rank.post_dispatch());
    mine.push_back(double(now_ns() - begin_ns));
    SWITCHYARD_TRY(rank.synchronize());
  }
  for (const double post_ns : mine) {
    SWITCHYARD_ASSIGN(const std::vector<double> posts, meeting.comm().exchange(post_ns));
    everyones.insert(everyones.end(), posts.begin(), posts.end());
  }
  return everyones;
}

Result<nlohmann::json> measure_overlap(EpRank& rank, Meeting& meeting) {
  std::vector<double> alone, visible;
  const auto touch = [&] { return rank.touch_stream(); };
  for (int i = 0; i < rank.spec().warmup + rank.spec().iters; i++) {
    SWITCHYARD_ASSIGN(const double alone_ns, meeting.time([&] { return rank.dispatch(); }, touch));
    double visible_ns = 0;
    SWITCHYARD_TRY(meeting.time([&] { return staged_dispatch(rank, visible_ns); }, touch).status());
    SWITCHYARD_ASSIGN(visible_ns, meeting.greatest(visible_ns));
    if (i < rank.spec().warmup) continue;
    alone.push_back(alone_ns);
    visible.push_back(visible_ns);
  }
  return nlohmann::json{
      {"alone_us", p50_us(alone)}, {"visible_us", p50_us(visible)}, {"share", p50_us(visible) / p50_us(alone)}};
}

Result<nlohmann::json> measure_late_rank(EpRank& rank, Meeting& meeting) {
  const bool is_late_one = rank.rank() == rank.spec().ranks - 1;
  std::vector<double> on_time, late;
  for (int i = 0; i < rank.spec().warmup + rank.spec().iters; i++) {
    for (std::vector<double>* samples : {&on_time, &late}) {
      double sends_ns = 0;
      SWITCHYARD_TRY(meeting
                         .time([&] {
                           if (samples == &late && is_late_one) sleep_ns(kLatenessNs);
                           return two_sends(rank, sends_ns);
                         })
                         .status());
      SWITCHYARD_ASSIGN(const double slowest_ns, meeting.greatest(is_late_one ? 0 : sends_ns));
      if (i >= rank.spec().warmup) samples->push_back(slowest_ns);
    }
  }
  return nlohmann::json{{"on_time_us", p50_us(on_time)},
                        {"late_us", p50_us(late)},
                        {"lateness_us", double(kLatenessNs) / 1e3},
                        {"extra_us", p50_us(late) - p50_us(on_time)}};
}

Result<nlohmann::json> measure_post(EpRank& rank, Meeting& meeting) {
  SWITCHYARD_ASSIGN(const std::vector<double> hot, time_posts(rank, meeting, 10 * rank.spec().iters, 0));
  SWITCHYARD_ASSIGN(const std::vector<double> cold, time_posts(rank, meeting, rank.spec().iters, kIdleNs));
  return nlohmann::json{{"hot_us", percentiles_us(hot)},
                        {"cold_us", percentiles_us(cold)},
                        {"wake_us", percentiles_us(time_wakes(rank.spec().iters))}};
}

Result<nlohmann::json> measure_push(EpRank& rank, Meeting& meeting) {
  if (!rank.spec().zero_copy) return Status::invalid_usage("the push job needs windows");
  SWITCHYARD_TRY(rank.dispatch());
  SWITCHYARD_ASSIGN(const EpBound bound, EpBound::create(rank));
  const std::vector<RowPush> pushes = bound.pushes();
  const HostPlatform platform;
  const auto push_all = [&]() -> Status {
    for (const RowPush& push : pushes) {
      platform.push(static_cast<const char*>(push.src), reinterpret_cast<char* const*>(push.dsts.data()),
                    int(push.dsts.size()), rank.spec().arriving_bytes());
    }
    platform.drain();
    return {};
  };
  BoundSamples bounds;
  std::vector<double> pushed;
  for (int i = 0; i < rank.spec().warmup + rank.spec().iters; i++) {
    const auto copy_all = [&](Method method) {
      return meeting.time([&] { return bound.dispatch(method); });
    };
    SWITCHYARD_ASSIGN(const double ordinary_ns, copy_all(Method::kOrdinary));
    SWITCHYARD_ASSIGN(const double streaming_ns, copy_all(Method::kStreaming));
    SWITCHYARD_ASSIGN(const double push_ns, meeting.time(push_all));
    if (i < rank.spec().warmup) continue;
    bounds.ordinary.push_back(ordinary_ns);
    bounds.streaming.push_back(streaming_ns);
    pushed.push_back(push_ns);
  }
  return nlohmann::json{{"bound_us", p50_us(bounds.faster())},
                        {"push_us", p50_us(pushed)},
                        {"share", p50_us(bounds.faster()) / p50_us(pushed)}};
}

Result<nlohmann::json> measure_barrier(const EpSpec& spec, Meeting& meeting) {
  DeviceCommRequirements requirements;
  requirements.num_barriers = 1;
  SWITCHYARD_ASSIGN(const DeviceComm device, meeting.comm().create_device_comm(requirements));
  const HostPlatform platform;
  Barrier<HostPlatform> barrier(platform, device, 0);
  std::vector<double> samples;
  for (int i = 0; i < spec.warmup + spec.iters; i++) {
    SWITCHYARD_ASSIGN(const double elapsed_ns, meeting.time([&]() -> Status {
      for (int pass = 0; pass < kBarriersPerSample; pass++) {
        if (barrier.world() != BarrierResult::kOk) return Status::remote("a world barrier did not come together");
      }
      return {};
    }));
    if (i >= spec.warmup) samples.push_back(elapsed_ns / kBarriersPerSample);
  }
  return nlohmann::json{{"barrier_us", percentiles_us(samples)}};
}

Result<nlohmann::json> run_job(const EpSpec& spec, Communicator& comm) {
  using Measurement = Result<nlohmann::json> (*)(EpRank&, Meeting&);
  static const std::map<std::string, Measurement> kMeasurements{{"round_trip", &measure_round_trip},
                                                                {"overlap", &measure_overlap},
                                                                {"late_rank", &measure_late_rank},
                                                                {"post", &measure_post},
                                                                {"push", &measure_push}};
  Meeting meeting(comm);
  std::unique_ptr<EpRank> rank;  // outlives a failure: its destructor would wait for ranks that wait for this one
  const auto measure = [&]() -> Result<nlohmann::json> {
    if (spec.job == "barrier") return measure_barrier(spec, meeting);
    const auto found = kMeasurements.find(spec.job);
    if (found == kMeasurements.end()) return Status::invalid_argument(text("there is no job '", spec.job, "'"));
    SWITCHYARD_ASSIGN(rank, EpRank::create(spec, comm));
    // Once: rows arrive at the same places every time.
    SWITCHYARD_TRY(rank->dispatch());
    SWITCHYARD_TRY(rank->prepare_results());
    return found->second(*rank, meeting);
  };
  Result<nlohmann::json> result = measure();
  if (!result.ok()) comm.abort(result.status().message());
  return result;
}

}  // namespace switchyard::bench
