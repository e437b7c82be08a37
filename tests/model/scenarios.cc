#include "model/scenarios.hpp"

#include "model/coll_model.hpp"
#include "model/device_model.hpp"
#include "model/ht_model.hpp"
#include "model/ll_model.hpp"
#include "model/ring_model.hpp"
#include "model/signal_model.hpp"

namespace switchyard::model {
namespace {

Scenario low_latency(std::string name, LlCase c, bool is_long = false) {
  return {std::move(name), is_long,
          [=](const Kernels& kernels, const Options& options) { return explore_ll(c, kernels, options); }};
}
Scenario high_throughput(std::string name, HtCase c, bool is_long = false) {
  return {std::move(name), is_long,
          [=](const Kernels& kernels, const Options& options) { return explore_ht(c, kernels, options); }};
}
Scenario meetings(std::string name, CollCase c, bool is_long = false) {
  return {std::move(name), is_long,
          [=](const Kernels& kernels, const Options& options) { return explore_meetings(c, kernels, options); }};
}
Scenario barrier(std::string name, int num_members, bool is_world) {
  return {std::move(name), false, [=](const Kernels& kernels, const Options& options) {
            return explore_barrier(num_members, 3, is_world, kernels, options);
          }};
}
Scenario puts(std::string name, bool by_value) {
  return {std::move(name), false, [=](const Kernels& kernels, const Options& options) {
            return explore_puts(4, by_value, kernels, options);
          }};
}
Scenario ring(std::string name, RingCase c, bool is_long = false) {
  return {std::move(name), is_long,
          [=](const Kernels& kernels, const Options& options) { return explore_ring(c, kernels, options); }};
}
Scenario reserved(std::string name, ReservedCase c, bool is_long = false) {
  return {std::move(name), is_long,
          [=](const Kernels& kernels, const Options& options) { return explore_reserved(c, kernels, options); }};
}
Scenario arrivals(std::string name, ArrivalCase c, bool is_long = false) {
  return {std::move(name), is_long,
          [=](const Kernels& kernels, const Options& options) { return explore_arrivals(c, kernels, options); }};
}

constexpr bool kLong = true;

}  // namespace

const std::vector<Scenario>& low_latency_scenarios() {
  static const std::vector<Scenario> scenarios = {
      low_latency("ExpertMajorThroughInboxes", {}),
      low_latency("ExpertMajorThroughInboxesTop2", {.topk = 2}),
      low_latency("RankMajorThroughInboxesTop2", {.topk = 2, .expert_major = false}),
      low_latency("ExpertMajorInPlace", {.in_place = true}),
      low_latency("ExpertMajorInPlaceTop2", {.topk = 2, .in_place = true}),
      low_latency("RankMajorInPlaceTop2", {.topk = 2, .expert_major = false, .in_place = true}),
      low_latency("DispatchesThroughInboxes", {.script = "DDDD"}),
      low_latency("DispatchesInPlace", {.in_place = true, .script = "DDDD"}),
      low_latency("SixOperationsThroughInboxes", {.script = "DCDCDC"}),
      low_latency("SixOperationsInPlace", {.in_place = true, .script = "DCDCDC"}),
      low_latency("CombinesThroughInboxes", {.script = "DCCC"}),
      low_latency("CombinesInPlace", {.in_place = true, .script = "DCCC"}),
      low_latency("StagedDispatches", {.script = "drdrdr"}),
      low_latency("TwoDispatchesInFlight", {.script = "ddrdrdrr"}),
      low_latency("TwoDispatchesInFlightInPlace", {.in_place = true, .script = "ddrdrdrr"}),
      low_latency("TwoDispatchesInFlightRankMajor", {.topk = 2, .expert_major = false, .script = "ddrdrdrr"}),
      low_latency("TwoCombinesInFlight", {.script = "Dccrcrr"}),
      low_latency("TwoCombinesInFlightRankMajor", {.topk = 2, .expert_major = false, .script = "Dccrcrr"}),
      low_latency("StagedCombineOverlapsDispatch", {.script = "DcdrrCD"}),
      low_latency("StagedCombineOverlapsDispatchInPlace", {.in_place = true, .script = "DcdrrCD"}),
      low_latency("StagedInPlaceWithoutConsent", {.in_place = true, .script = "drCdrC", .num_ticks = 2}),
      low_latency("StagedInPlaceWithoutConsentTop2", {.topk = 2, .in_place = true, .script = "drCdrC", .num_ticks = 2}),
      low_latency("StagedInPlaceWithoutConsentRankMajor",
                  {.topk = 2, .expert_major = false, .in_place = true, .script = "drCdrC", .num_ticks = 2}),
      low_latency("SuspectedRank", {.masks = true, .suspects = true}),
      low_latency("SuspectedRankRankMajor", {.topk = 2, .expert_major = false, .masks = true, .suspects = true}),
      low_latency("TwoWarpsAlone", {.num_ranks = 1, .num_warps = 2, .script = "DCD"}),
      low_latency("TwoWarpsAloneInPlace", {.num_ranks = 1, .num_warps = 2, .in_place = true, .script = "DCD"}),
      low_latency("TwoWarpsAloneRankMajor", {.num_ranks = 1, .num_warps = 2, .expert_major = false, .script = "DCD"}),
      low_latency("TwoWarpsAndAPeer", {.num_warps = 2, .script = "D"}),
      low_latency("TwoWarpsAndAPeerInPlace", {.num_warps = 2, .in_place = true, .script = "D"}),
      low_latency("TwoWarpsAndAPeerOneToken", {.num_warps = 2, .num_tokens = 1, .script = "DC"}),
      low_latency("ThreeRanksOneToken", {.num_ranks = 3, .num_tokens = 1, .script = "D"}),
      low_latency("ThreeRanksOneTokenTwoOperations", {.num_ranks = 3, .num_tokens = 1, .script = "DC"}),
      low_latency("ThreeRanksInPlace", {.num_ranks = 3, .num_tokens = 1, .in_place = true, .script = "DC"}),
      low_latency("ThreeRanksOneSuspected",
                  {.num_ranks = 3, .num_tokens = 1, .script = "D", .masks = true, .suspects = true}),
      low_latency("TwoWarpsAndAPeerTwoOperations", {.num_warps = 2, .script = "DC"}),
      low_latency("TwoWarpsAndAPeerTwoOperationsInPlace", {.num_warps = 2, .in_place = true, .script = "DC"}),
      low_latency("ThreeRanksThreeOperations", {.num_ranks = 3, .num_tokens = 1, .script = "DCD"}, kLong),
      low_latency("ThreeRanksTwoDispatchesInFlight", {.num_ranks = 3, .num_tokens = 1, .script = "ddrdrr"}, kLong),
      low_latency("ThreeRanksThreeOperationsInPlace",
                  {.num_ranks = 3, .num_tokens = 1, .in_place = true, .script = "DCD"}, kLong),
      low_latency("ThreeRanksOneSuspectedTwoOperations",
                  {.num_ranks = 3, .num_tokens = 1, .script = "DC", .masks = true, .suspects = true}, kLong),
      low_latency("TwoWarpsAndAPeerFourOperations", {.num_warps = 2, .script = "DCDC"}, kLong),
      low_latency("TwoWarpsAndAPeerFourOperationsTop2", {.num_warps = 2, .topk = 2, .script = "DCDC"}, kLong),
      low_latency("TwoWarpsAndAPeerInFlight", {.num_warps = 2, .script = "ddrdrr"}, kLong),
      low_latency("TwoWarpsAndAPeerFourOperationsInPlace", {.num_warps = 2, .in_place = true, .script = "DCDC"}, kLong),
  };
  return scenarios;
}

const std::vector<Scenario>& high_throughput_scenarios() {
  static const std::vector<Scenario> scenarios = {
      high_throughput("FlatThroughInboxes", {}),
      high_throughput("FlatThroughInboxesTop2", {.topk = 2}),
      high_throughput("FlatInPlace", {.in_place = true}),
      high_throughput("FlatInPlaceTop2", {.topk = 2, .in_place = true}),
      high_throughput("ZonesThroughInboxes", {.topk = 2, .num_local = 2, .expert_major = true}),
      high_throughput("ZonesInPlace", {.topk = 2, .num_local = 2, .expert_major = true, .in_place = true}),
      high_throughput("FlatBackward", {.topk = 2, .num_local = 2, .script = "DCdc"}),
      high_throughput("ZonesBackwardInPlace",
                      {.topk = 2, .num_local = 2, .expert_major = true, .in_place = true, .script = "DCdc"}),
      high_throughput("FlatDispatches", {.script = "DDDD"}),
      high_throughput("FlatDispatchesInPlace", {.in_place = true, .script = "DDDD"}),
      high_throughput("FlatCombines", {.script = "CCCC"}),
      high_throughput("FlatCombinesInPlace", {.in_place = true, .script = "CCCC"}),
      high_throughput("FlatCombinesBackward", {.script = "cccc"}),
      high_throughput("Updates", {.script = "UUUU"}),
      high_throughput("UpdatesThreeRanks", {.nodes = {3}, .num_tokens = 1, .script = "UU"}),
      high_throughput("UpdatesWithMasks", {.masks = true, .script = "UUUU"}),
      high_throughput("UpdatesThatDrop", {.budget = 3, .script = "UUUU", .routes = "ls"}),
      high_throughput("UpdatesOfZones", {.topk = 2, .num_local = 2, .expert_major = true, .script = "UUUU"}),
      high_throughput("UpdatesOfZonesWithMasks",
                      {.topk = 2, .num_local = 2, .expert_major = true, .masks = true, .script = "UUUU"}),
      high_throughput("UpdatesOfZonesThatDrop",
                      {.topk = 2, .num_local = 2, .expert_major = true, .budget = 5, .script = "UUUU", .routes = "ls"}),
      high_throughput("UpdatesAndUse", {.script = "UDCUDC"}),
      high_throughput("UpdateAndUseTwice", {.script = "UDDCCUDC"}),
      high_throughput("UpdatesAndUseInPlace", {.in_place = true, .script = "UDCUDC"}),
      high_throughput("UpdateAndUseOfZonesThatDrop",
                      {.topk = 2, .num_local = 2, .expert_major = true, .budget = 5, .script = "UDC", .routes = "ls"}),
      high_throughput("FlatThreeRanks", {.nodes = {3}, .num_tokens = 1, .script = "D"}),
      high_throughput("FlatThreeRanksInPlace", {.nodes = {3}, .num_tokens = 1, .in_place = true, .script = "D"}),
      high_throughput("TwoNodes", {.nodes = {1, 1}, .script = "DC"}),
      high_throughput("TwoNodesTop2", {.nodes = {1, 1}, .num_tokens = 1, .topk = 2, .script = "DC"}),
      high_throughput("TwoNodesZones", {.nodes = {1, 1}, .num_tokens = 1, .topk = 2, .num_local = 2, .expert_major = true,
                                        .script = "DC"}),
      high_throughput("TwoNodesBackward", {.nodes = {1, 1}, .num_tokens = 1, .topk = 2, .num_local = 2, .script = "dc"}),
      high_throughput("TwoNodesCombines", {.nodes = {1, 1}, .script = "CCC"}),
      high_throughput("TwoNodesCombinesInPlace", {.nodes = {1, 1}, .in_place = true, .script = "CCC"}),
      high_throughput("TwoNodesUpdates", {.nodes = {1, 1}, .script = "UUU"}),
      high_throughput("TwoNodesUpdateThatDrops", {.nodes = {1, 1}, .budget = 3, .script = "UU", .routes = "ls"}),
      high_throughput("TwoNodesUpdateAndUse", {.nodes = {1, 1}, .script = "UDC"}),
      high_throughput("RailOfRows", {.nodes = {1, 1}, .num_tokens = 6, .script = "D", .routes = "l"}),
      high_throughput("RailOfSums", {.nodes = {1, 1}, .num_tokens = 5, .chunk_bytes = 16, .script = "C", .routes = "l"}),
      high_throughput("RailOfTables", {.nodes = {1, 1}, .num_tokens = 5, .chunk_bytes = 16, .script = "U", .routes = "l"}),
      high_throughput("RailOfPairs", {.nodes = {1, 1}, .num_tokens = 3, .chunk_bytes = 64, .script = "DC", .routes = "l"}),
      high_throughput("RailTwice", {.nodes = {1, 1}, .num_tokens = 3, .script = "DD", .routes = "l"}),
      high_throughput("RailOfPairsBackward", {.nodes = {1, 1}, .num_tokens = 9, .script = "d", .routes = "l"}),
      high_throughput("RailsBothWays", {.nodes = {1, 1}, .script = "D", .routes = "a"}),
      high_throughput("SumsBothWays", {.nodes = {1, 1}, .script = "C", .routes = "a"}),
      high_throughput("Forwarded", {.nodes = {1, 2}, .num_tokens = 1, .script = "D", .routes = "l"}),
      high_throughput("ForwardedInPlace", {.nodes = {1, 2}, .num_tokens = 1, .in_place = true, .script = "D", .routes = "l"}),
      high_throughput("FlatThreeRanksCombine", {.nodes = {3}, .num_tokens = 1, .script = "C", .routes = "l"}, kLong),
      high_throughput("TwoNodesTwoTokensTop2", {.nodes = {1, 1}, .topk = 2, .script = "DC"}, kLong),
      high_throughput("TwoNodesTwoTokensZones",
                      {.nodes = {1, 1}, .topk = 2, .num_local = 2, .expert_major = true, .script = "DC"}, kLong),
      high_throughput("TwoNodesTwoTokensBackward", {.nodes = {1, 1}, .topk = 2, .num_local = 2, .script = "dc"}, kLong),
      high_throughput("TwoNodesFourOperations", {.nodes = {1, 1}, .script = "DCDC"}, kLong),
      high_throughput("RailsBothWaysThreeRows", {.nodes = {1, 1}, .num_tokens = 3, .script = "D", .routes = "a"}, kLong),
      high_throughput("UnevenNodes", {.nodes = {2, 1}, .num_tokens = 1, .script = "D"}, kLong),
      high_throughput("ForwardedSums", {.nodes = {1, 2}, .num_tokens = 1, .script = "C", .routes = "l"}, kLong),
  };
  return scenarios;
}

const std::vector<Scenario>& collective_scenarios() {
  static const std::vector<Scenario> scenarios = {
      meetings("MeetingsOfTwo", {.script = "mmsmm"}),
      meetings("MeetingsOfTwoThatAnnounce", {.script = "aamsa"}),
      meetings("MeetingsOfThree", {.nodes = {3}, .script = "m"}),
      meetings("AnnouncementsBetweenNodes", {.nodes = {1, 1}, .script = "aaaa"}),
      meetings("AnnouncementsBetweenNodesOnceInAWhile", {.nodes = {1, 1}, .script = "amasa"}),
      meetings("AnnouncementsBetweenUnevenNodes", {.nodes = {2, 1}, .script = "a"}),
      meetings("WorldBarriersBetweenNodes", {.nodes = {1, 1}, .script = "wwww"}),
      meetings("WorldBarriersBetweenUnevenNodes", {.nodes = {2, 1}, .script = "www"}),
      meetings("WorldBarriersBetweenTwoPairs", {.nodes = {2, 2}, .script = "ww"}, kLong),
      meetings("MeetingsOfThreeTwice", {.nodes = {3}, .script = "ms"}, kLong),
      meetings("AnnouncementsBetweenUnevenNodesTwice", {.nodes = {2, 1}, .script = "aa"}, kLong),
  };
  return scenarios;
}

const std::vector<Scenario>& device_scenarios() {
  static const std::vector<Scenario> scenarios = {
      barrier("BarrierOfTwo", 2, false),
      barrier("BarrierOfThree", 3, false),
      barrier("WorldBarrierOfThree", 3, true),
      puts("Puts", false),
      puts("PutsOfValues", true),
  };
  return scenarios;
}

const std::vector<Scenario>& network_scenarios() {
  static const std::vector<Scenario> scenarios = {
      ring("RingOfTwo", {.producers = {"pppppp"}}),
      ring("RingOfTwoOneByOne", {.producers = {"pppppp"}, .batch = 1}),
      ring("RingOfFour", {.num_slots = 4, .producers = {"pppppppp"}}),
      ring("RingOfTwoExtensions", {.producers = {"PPPP"}}),
      ring("RingOfFourMixed", {.num_slots = 4, .producers = {"pPpPp"}}),
      ring("RingFlushes", {.producers = {"pfPfpf"}}),
      ring("TwoProducers", {.producers = {"pp", "pp"}}),
      ring("TwoProducersExtensions", {.producers = {"PP", "PP"}}),
      ring("TwoProducersMixed", {.producers = {"pP", "pP"}}),
      ring("TwoProducersRingOfFour", {.num_slots = 4, .producers = {"pPp", "Pp"}}),
      ring("TwoProducersFlush", {.producers = {"pf", "pf"}}),
      ring("ThreeProducers", {.producers = {"pp", "P", "p"}}),
      reserved("ReservedRing", {.script = "psps"}),
      reserved("ReservedRingExtensions", {.script = "PSps"}),
      reserved("ReservedRingSignalOfAnother", {.script = "pp", .others_script = "ss"}),
      reserved("ReservedRingLong", {.script = "psPsps"}),
      arrivals("Arrivals", {}),
      arrivals("ArrivalsRoundTheNumbers", {.num_writes = 9, .unsignalled = 0b011110111}),
      arrivals("ArrivalsSomeUnsignalled", {.unsignalled = 0b010110}),
      arrivals("ArrivalsOneTwice", {.num_writes = 3, .twice = 1}),
      arrivals("ArrivalsAStray", {.num_writes = 3, .stray = 7}),
      ring("TwoProducersThreeLaps", {.producers = {"ppp", "ppp"}}, kLong),
      ring("TwoProducersMixedFlush", {.producers = {"Pf", "ppf"}}, kLong),
      arrivals("ArrivalsRoundTheNumbersSignalled", {.num_writes = 9}, kLong),
  };
  return scenarios;
}

const Scenario* find_scenario(const std::string& name) {
  for (const auto* list : {&low_latency_scenarios(), &high_throughput_scenarios(), &collective_scenarios(), &device_scenarios(),
                           &network_scenarios()}) {
    for (const Scenario& scenario : *list) {
      if (scenario.name == name) return &scenario;
    }
  }
  return nullptr;
}

}  // namespace switchyard::model
