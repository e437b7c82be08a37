#include "bench/gin/job.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "bench/gin/path.hpp"
#include "base/log.hpp"
#include "bench/stats.hpp"
#include "comm/coordinator.hpp"

namespace switchyard::bench {
namespace {

constexpr int kRoundTrips = 40;  // of a round
constexpr uint64_t kStreamBytes = 8u << 20;
constexpr uint64_t kMaxStreamPuts = 512;
constexpr uint64_t kPosts = 256;  // fewer than a ring has slots
constexpr uint64_t kBulkBytes = 256u << 10;

// One path and what was measured on it. Rank 0 leads, rank 1 follows; both must call the same in the same order.
class Meter {
 public:
  Meter(GinPathPtr path, bool leads, std::string name) : path_(std::move(path)), leads_(leads), name_(std::move(name)) {}

  Status round_trips(uint64_t num_bytes, int count, std::vector<double>& us) {
    for (int i = 0; i < count; ++i) {
      const uint64_t begin_ns = now_ns();
      if (leads_ && !path_->put(num_bytes)) return failed("a put");
      if (!path_->await(++num_told_)) return failed("a wait");
      if (!leads_ && !path_->put(num_bytes)) return failed("a put");
      if (leads_) us.push_back(double(now_ns() - begin_ns) / 1e3);
    }
    return path_->flush() ? Status() : failed("a flush");
  }

  // Seconds from the first put until the follower has said that the last has arrived.
  Status stream(uint64_t num_bytes, uint64_t count, std::vector<double>& seconds, std::vector<double>* post_ns = nullptr) {
    if (leads_) {
      const uint64_t begin_ns = now_ns();
      for (uint64_t i = 0; i < count; ++i) {
        if (!path_->put(num_bytes)) return failed("a put");
      }
      if (post_ns != nullptr) post_ns->push_back(double(now_ns() - begin_ns) / double(count));
      if (!path_->await(++num_told_)) return failed("a wait");
      seconds.push_back(double(now_ns() - begin_ns) / 1e9);
    } else {
      num_told_ += count;
      if (!path_->await(num_told_)) return failed("a wait");
      if (!path_->put(8)) return failed("a put");
    }
    return path_->flush() ? Status() : failed("a flush");
  }

  Status failed(const char* what) const {
    const Status status = Status::remote(text("bench gin: ", what, " over ", name_, " failed: ", path_->why()));
    log(LogLevel::kError, status.message());
    return status;
  }
  GinPath& path() { return *path_; }

 private:
  GinPathPtr path_;
  bool leads_;
  std::string name_;
  uint64_t num_told_ = 0;
};

nlohmann::json quantiles(const std::vector<double>& samples) {
  return {{"p50", percentile(samples, 50)}, {"p95", percentile(samples, 95)}};
}

// The median over the rounds of ours / raw: both of a round ran side by side.
double median_ratio(const std::vector<double>& ours, const std::vector<double>& raw) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(ours.size(), raw.size()); ++i) ratios.push_back(ours[i] / raw[i]);
  return percentile(ratios, 50);
}

// Medians of each round.
std::vector<double> by_round(const std::vector<double>& samples) {
  std::vector<double> medians;
  for (size_t i = 0; i + kRoundTrips <= samples.size(); i += kRoundTrips) {
    medians.push_back(percentile({samples.begin() + long(i), samples.begin() + long(i) + kRoundTrips}, 50));
  }
  return medians;
}

// What was measured at one size: by rank 0, of all rounds.
struct SizeSamples {
  uint64_t num_bytes;
  std::vector<double> rtt{}, raw_rtt{}, seconds{}, raw_seconds{}, post_ns{}, raw_post_ns{};

  uint64_t num_puts() const { return std::clamp<uint64_t>(kStreamBytes / num_bytes, 4, kMaxStreamPuts); }

  nlohmann::json summary(const GinSpec& spec) const {
    const double puts = double(num_puts()), bits = puts * double(num_bytes) * 8;
    return {{"backend", spec.backend},
            {"net", spec.net},
            {"size", num_bytes},
            {"rtt_us", quantiles(rtt)},
            {"raw_rtt_us", percentile(raw_rtt, 50)},
            {"raw_rtt_p95_us", percentile(raw_rtt, 95)},
            {"rtt_ratio", median_ratio(by_round(rtt), by_round(raw_rtt))},
            {"rate_mps", puts / percentile(seconds, 50)},
            {"raw_rate_mps", puts / percentile(raw_seconds, 50)},
            {"gbps", bits / percentile(seconds, 50) / 1e9},
            {"raw_gbps", bits / percentile(raw_seconds, 50) / 1e9},
            {"bandwidth_ratio", median_ratio(raw_seconds, seconds)},
            {"post_ns", percentile(post_ns, 50)},
            {"raw_post_ns", percentile(raw_post_ns, 50)}};
  }
};

// Raw first or ours first: who comes second finds the machine warm.
Status measure_pair(Meter& raw, Meter& ours, bool raw_first, SizeSamples& samples) {
  const uint64_t num_bytes = samples.num_bytes, num_puts = samples.num_puts();
  std::vector<double> ignored;
  for (Meter* meter : {&raw, &ours}) {  // pages are touched, buffers have grown
    SWITCHYARD_TRY(meter->round_trips(num_bytes, kRoundTrips, ignored));
    SWITCHYARD_TRY(meter->stream(num_bytes, num_puts, ignored));
  }
  for (const bool is_raw : {raw_first, !raw_first}) {
    SWITCHYARD_TRY((is_raw ? raw : ours).round_trips(num_bytes, kRoundTrips, is_raw ? samples.raw_rtt : samples.rtt));
  }
  for (const bool is_raw : {raw_first, !raw_first}) {
    SWITCHYARD_TRY((is_raw ? raw : ours).stream(num_bytes, num_puts, is_raw ? samples.raw_seconds : samples.seconds));
  }
  const uint64_t num_posts = std::min(num_puts, kPosts);
  SWITCHYARD_TRY(raw.stream(num_bytes, num_posts, ignored, &samples.raw_post_ns));
  return ours.stream(num_bytes, num_posts, ignored, &samples.post_ns);
}

// The same two ranks once more.
Result<std::unique_ptr<Communicator>> join_again(const GinSpec& spec, Communicator& comm, int node_id) {
  UniqueId id;
  if (comm.rank() == 0) {
    SWITCHYARD_ASSIGN(id, create_unique_id());
  }
  SWITCHYARD_ASSIGN(const std::vector<UniqueId> ids, comm.exchange(id));
  return Communicator::create(ids[0], comm.rank(), comm.num_ranks(), {.node_id = node_id, .net = spec.net, .gin = spec.gin()});
}

// One pair of raw and ours at every size, over connections of their own: a connection of TCP is fast or slow for as long as it
// lives, raw or ours (docs/figures.md).
Status measure_round(const GinSpec& spec, Communicator& comm, int round, std::vector<SizeSamples>& sizes) {
  SWITCHYARD_ASSIGN(const std::unique_ptr<Communicator> far, join_again(spec, comm, comm.topology().node_of(comm.rank())));
  SWITCHYARD_ASSIGN(const DeviceComm device, far->create_device_comm({.num_contexts = 1, .num_signals = 1}));
  std::unique_ptr<Communicator> near;
  GinPathPtr raw_path;
  if (spec.net == "mem") {
    SWITCHYARD_ASSIGN(near, join_again(spec, comm, 0));
    SWITCHYARD_ASSIGN(raw_path, make_store_path(*near));
  } else {
    SWITCHYARD_ASSIGN(raw_path, make_ofi_path(*far, spec.net));
  }
  SWITCHYARD_ASSIGN(GinPathPtr our_path, make_gin_path(*far, device, 0));
  const bool leads = comm.rank() == 0;
  Meter raw(std::move(raw_path), leads, spec.net == "mem" ? "plain stores" : "plain libfabric calls");
  Meter ours(std::move(our_path), leads, text("gin ", spec.backend, " ", spec.net));
  for (SizeSamples& samples : sizes) {
    SWITCHYARD_TRY(comm.barrier());
    SWITCHYARD_TRY(measure_pair(raw, ours, round % 2 == 0, samples));
  }
  return comm.barrier();  // nobody leaves while the other still listens
}

// Round trips of bare signals on one context, in turns without and with a saturating stream of puts on another.
Result<nlohmann::json> measure_behind_bulk(const GinSpec& spec, Communicator& comm, Meter& signals, GinPathPtr bulk) {
  std::vector<double> idle, loaded, ignored;
  SWITCHYARD_TRY(signals.round_trips(0, kRoundTrips, ignored));  // connections are made
  std::atomic<bool> stop{true}, failed{false};
  std::atomic<uint64_t> num_puts{0};
  for (int round = 0; round < spec.rounds; ++round) {
    SWITCHYARD_TRY(signals.round_trips(0, kRoundTrips, idle));
    stop = comm.rank() != 0;
    std::thread stream([&] {
      while (!stop) {
        if (!bulk->put(kBulkBytes)) failed = stop = true;
        num_puts.fetch_add(1, std::memory_order_relaxed);
      }
    });
    const uint64_t flowing = num_puts.load(std::memory_order_relaxed) + 4;
    while (!stop && num_puts.load(std::memory_order_relaxed) < flowing) std::this_thread::yield();
    const Status done = signals.round_trips(0, kRoundTrips, loaded);
    stop = true;
    stream.join();
    SWITCHYARD_TRY(done);
    if (failed) return Status::remote("bench gin: the stream of bulk data failed");
    SWITCHYARD_TRY(comm.barrier());
  }
  if (comm.rank() != 0) return nlohmann::json();
  return nlohmann::json{{"backend", spec.backend},
                        {"net", spec.net},
                        {"idle_us", quantiles(idle)},
                        {"loaded_us", quantiles(loaded)},
                        {"p95_ratio", percentile(loaded, 95) / percentile(idle, 95)},
                        {"bulk_puts", num_puts.load()},
                        {"bulk_bytes", kBulkBytes}};
}

}  // namespace

Result<nlohmann::json> run_gin_job(const GinSpec& spec, Communicator& comm) {
  if (comm.num_ranks() != 2) return Status::invalid_usage("bench gin needs two ranks");
  std::vector<SizeSamples> sizes;
  for (const uint64_t num_bytes : spec.sizes) sizes.push_back({num_bytes});
  for (int round = 0; round < spec.rounds; ++round) SWITCHYARD_TRY(measure_round(spec, comm, round, sizes));
  nlohmann::json result{{"runs", nlohmann::json::array()}};
  if (comm.rank() == 0) {
    for (const SizeSamples& samples : sizes) result["runs"].push_back(samples.summary(spec));
  }
  if (spec.under_load && spec.backend != "lsa") {
    SWITCHYARD_ASSIGN(const DeviceComm device, comm.create_device_comm({.num_contexts = 2, .num_signals = 1}));
    SWITCHYARD_ASSIGN(GinPathPtr signal_path, make_gin_path(comm, device, 1));
    Meter signals(std::move(signal_path), comm.rank() == 0, "signals");
    SWITCHYARD_ASSIGN(GinPathPtr bulk, make_gin_path(comm, device, 0));
    SWITCHYARD_ASSIGN(result["behind_bulk"], measure_behind_bulk(spec, comm, signals, std::move(bulk)));
    SWITCHYARD_TRY(comm.barrier());
  }
  return result;
}

}  // namespace switchyard::bench
