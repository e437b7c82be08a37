// A rank of a group with masks, as a thread, step by step: for tests that mask, stay away and come back.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ep/ht_harness.hpp"
#include "ep/ll_harness.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {

inline bool run_round(Steps& steps, LlRank& io) { return steps(io.run_dispatch()) && steps(io.run_combine()); }
inline bool run_round(Steps& steps, HtRank& io) { return run_ht_round(steps, io, HtMode{}, /*updates=*/true); }

// One rank's group with masks, and the scenario of the moment.
template <class Io, class Scenario, class Mode>
class MaskRank {
 public:
  using ScenarioType = Scenario;

  MaskRank(Communicator& comm, StreamRef stream, const Scenario& scenario, uint64_t timeout_ns)
      : steps(comm),
        expected(scenario),
        comm_(comm),
        stream_(stream),
        io_(std::make_unique<Io>(comm, stream, expected, Mode{})),
        mask_(comm, size_t(comm.num_ranks()) * sizeof(int32_t)) {
    ep::GroupConfig config = group_config_for(scenario.c);
    config.enable_mask = true;
    config.timeout_ns = timeout_ns;
    group_ = ep::Group::create(comm, config);
    if (steps(group_)) steps(io_->open(group()));
  }
  ep::Group& group() { return *group_.value(); }
  Io& io() { return *io_; }

  bool update(const std::vector<int>& mask) {
    const std::vector<int32_t> values(mask.begin(), mask.end());
    return steps(group().mask_update(values.data(), stream_));
  }
  std::vector<int> query() {
    steps(group().mask_query(mask_.span<int32_t>().data(), stream_)) && steps(io_->synchronize());
    return {mask_.span<int32_t>().begin(), mask_.span<int32_t>().end()};
  }
  bool round_trip() { return run_round(steps, *io_); }
  // All ranks meet, masked or not.
  bool meet() { return steps(comm_.barrier()); }
  Status clean() { return group().mask_clean(stream_); }
  int async_error() { return group().async_error().value(); }
  std::string leave() { return steps.leave(std::move(group_), std::move(io_)); }

  Steps steps;
  Scenario expected;

 private:
  Communicator& comm_;
  StreamRef stream_;
  std::unique_ptr<Io> io_;
  Buffer mask_;
  Result<std::unique_ptr<ep::Group>> group_ = Status::internal("not created");
};

// Runs the body on every rank, each with a new group.
template <class Rank>
void on_mask_ranks(ThreadRanks& ranks, const typename Rank::ScenarioType& scenario, uint64_t timeout_ns,
                   const std::function<void(Rank&, int)>& body) {
  ranks.on_all([&](int rank) {
    auto self = std::make_unique<Rank>(ranks.comm(rank), ranks.stream_ref(rank), scenario, timeout_ns);
    if (self->steps.ok()) body(*self, rank);
    const std::string fault = self->leave();
    EXPECT_EQ(fault, "");
    if (!fault.empty()) (void)self.release();  // operations may still use it, as leave() explains
  });
}

}  // namespace switchyard::testing
