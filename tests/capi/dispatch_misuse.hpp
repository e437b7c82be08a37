// What the tests of wrong dispatches share.
#pragma once
#include "capi/ep_rank.hpp"

namespace switchyard::testing {

using DispatchMisuses = std::vector<Misuse<DispatchCall>>;

// Makes the misuses of a sound dispatch of this scenario; a verified round trip follows each table.
inline void expect_dispatch_refusals(const Scenario& scenario, bool windows,
                                     const std::vector<const DispatchMisuses*>& tables,
                                     ncclEpZeroCopyMode_t zero_copy = NCCL_EP_ZERO_COPY_AUTO) {
  const CommRanks ranks(scenario.c.num_ranks);
  ranks.on_all([&](int rank) {
    ncclEpGroupConfig_t config = group_config_for(scenario.c);
    config.zero_copy = zero_copy;
    const GroupOwner group = make_group(ranks.comm(rank), config);
    EpRank ep(scenario, ranks.comm(rank), rank, windows);
    const HandleOwner handle = ep.open(group.get());
    const StreamOwner stream;
    for (const DispatchMisuses* table : tables) {
      ep.spoil_dispatch_outputs();
      ep.combined.fill(kUntouched);
      expect_refusals<DispatchCall>(*table, [&] { return DispatchCall(ep, handle.get(), stream); });
      EXPECT_EQ(run_round_trip(ep, handle.get(), stream), "");
    }
  });
}

}  // namespace switchyard::testing
