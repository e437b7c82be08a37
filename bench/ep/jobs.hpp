// The measurements that the ranks of a benchmark make together.
//
//   round_trip  dispatch and combine, their bounds in between, the result checked (all of the spec matters)
//   overlap     a staged dispatch that has 10 ms to itself: what of it the caller still sees
//   late_rank   what a rank that is 5 ms late costs the others' staged sends
//   post        the time of the call itself, with the stream's worker awake and asleep
//   push        the device API's push over the rows of a dispatch
//   barrier     the device API's world barrier
//
// THREADS    one per rank; COLLECTIVE.
// ERRORS     a rank that fails aborts the communicator, so that all end.
// BLOCKING   until done; every wait inside has the library's deadline.
#pragma once
#include <nlohmann/json.hpp>

#include "bench/ep/meeting.hpp"
#include "bench/ep/rank.hpp"
#include "bench/ep/spec.hpp"

namespace switchyard::bench {

// Makes the measurement that spec.job names. Every rank gets the result.
Result<nlohmann::json> run_job(const EpSpec& spec, Communicator& comm);

// The jobs, by name; each with its rank made by run_job(), except barrier, which has no group.
Result<nlohmann::json> measure_round_trip(EpRank& rank, Meeting& meeting);
Result<nlohmann::json> measure_overlap(EpRank& rank, Meeting& meeting);
Result<nlohmann::json> measure_late_rank(EpRank& rank, Meeting& meeting);
Result<nlohmann::json> measure_post(EpRank& rank, Meeting& meeting);
Result<nlohmann::json> measure_push(EpRank& rank, Meeting& meeting);
Result<nlohmann::json> measure_barrier(const EpSpec& spec, Meeting& meeting);

// {"p50", "p95"} of samples in ns, in us.
nlohmann::json percentiles_us(const std::vector<double>& samples_ns);
// The times of posting a dispatch in ns, of all ranks, after a pause each.
Result<std::vector<double>> time_posts(EpRank& rank, Meeting& meeting, int num_posts, uint64_t pause_ns);
// Both methods of a bound, sampled in turns.
struct BoundSamples {
  std::vector<double> ordinary, streaming;
  const std::vector<double>& faster() const;
};

}  // namespace switchyard::bench
