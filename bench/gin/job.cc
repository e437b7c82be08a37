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
    const Status status = Status::remote(text("bench gin: ", what, " over ", name_, " failed"));
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

Result<nlohmann::json> measure_size(const GinSpec& spec, Communicator& comm, Meter& raw, Meter& ours, uint64_t num_bytes) {
  const uint64_t num_puts = std::clamp<uint64_t>(kStreamBytes / num_bytes, 4, kMaxStreamPuts);
  std::vector<double> rtt, raw_rtt, seconds, raw_seconds, post_ns, ignored;
  SWITCHYARD_TRY(raw.round_trips(num_bytes, kRoundTrips, ignored));  // connections are made, pages are touched
  SWITCHYARD_TRY(ours.round_trips(num_bytes, kRoundTrips, ignored));
  for (int round = 0; round < spec.rounds; ++round) {
    SWITCHYARD_TRY(raw.round_trips(num_bytes, kRoundTrips, raw_rtt));
    SWITCHYARD_TRY(ours.round_trips(num_bytes, kRoundTrips, rtt));
    SWITCHYARD_TRY(raw.stream(num_bytes, num_puts, raw_seconds));
    SWITCHYARD_TRY(ours.stream(num_bytes, num_puts, seconds));
    SWITCHYARD_TRY(ours.stream(num_bytes, std::min(num_puts, kPosts), ignored, &post_ns));
    SWITCHYARD_TRY(comm.barrier());
  }
  if (comm.rank() != 0) return nlohmann::json();
  const double bits = double(num_bytes * num_puts) * 8;
  return nlohmann::json{{"backend", spec.backend},
                        {"net", spec.net},
                        {"size", num_bytes},
                        {"rtt_us", quantiles(rtt)},
                        {"raw_rtt_us", quantiles(raw_rtt)},
                        {"rtt_ratio", median_ratio(by_round(rtt), by_round(raw_rtt))},
                        {"rate_mps", double(num_puts) / percentile(seconds, 50)},
                        {"raw_rate_mps", double(num_puts) / percentile(raw_seconds, 50)},
                        {"gbps", bits / percentile(seconds, 50) / 1e9},
                        {"raw_gbps", bits / percentile(raw_seconds, 50) / 1e9},
                        {"bandwidth_ratio", median_ratio(raw_seconds, seconds)},
                        {"post_ns", percentile(post_ns, 50)}};
}

// Round trips of bare signals on one context, in turns without and with a saturating stream of puts on another.
Result<nlohmann::json> measure_behind_bulk(const GinSpec& spec, Communicator& comm, Meter& signals, GinPathPtr bulk) {
  std::vector<double> idle, loaded;
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

// The same two ranks, as two of one node.
Result<std::unique_ptr<Communicator>> join_on_one_node(Communicator& comm) {
  UniqueId id;
  if (comm.rank() == 0) {
    SWITCHYARD_ASSIGN(id, create_unique_id());
  }
  SWITCHYARD_ASSIGN(const std::vector<UniqueId> ids, comm.exchange(id));
  return Communicator::create(ids[0], comm.rank(), comm.num_ranks(), {.node_id = 0});
}

}  // namespace

Result<nlohmann::json> run_gin_job(const GinSpec& spec, Communicator& comm) {
  if (comm.num_ranks() != 2) return Status::invalid_usage("bench gin needs two ranks");
  SWITCHYARD_ASSIGN(const DeviceComm device, comm.create_device_comm({.num_contexts = 2, .num_signals = 1}));
  const bool leads = comm.rank() == 0;
  std::unique_ptr<Communicator> near;
  GinPathPtr raw_path;
  if (spec.net == "mem") {
    SWITCHYARD_ASSIGN(near, join_on_one_node(comm));
    SWITCHYARD_ASSIGN(raw_path, make_store_path(*near));
  } else {
    SWITCHYARD_ASSIGN(raw_path, make_ofi_path(comm, spec.net));
  }
  Meter raw(std::move(raw_path), leads, spec.net == "mem" ? "plain stores" : "plain libfabric calls");
  SWITCHYARD_ASSIGN(GinPathPtr our_path, make_gin_path(comm, device, 0));
  Meter ours(std::move(our_path), leads, text("gin ", spec.backend, " ", spec.net));
  SWITCHYARD_TRY(comm.barrier());
  nlohmann::json result{{"runs", nlohmann::json::array()}};
  for (const uint64_t num_bytes : spec.sizes) {
    SWITCHYARD_ASSIGN(nlohmann::json run, measure_size(spec, comm, raw, ours, num_bytes));
    result["runs"].push_back(std::move(run));
  }
  if (spec.under_load && spec.backend != "lsa") {
    SWITCHYARD_ASSIGN(GinPathPtr signal_path, make_gin_path(comm, device, 1));
    Meter signals(std::move(signal_path), leads, "signals");
    SWITCHYARD_ASSIGN(GinPathPtr bulk, make_gin_path(comm, device, 0));
    SWITCHYARD_ASSIGN(result["behind_bulk"], measure_behind_bulk(spec, comm, signals, std::move(bulk)));
  }
  SWITCHYARD_TRY(comm.barrier());
  return result;
}

}  // namespace switchyard::bench
