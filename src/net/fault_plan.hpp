// What a network shall get wrong, for tests: how often, by which seed. SWITCHYARD_NET_FAULTS (docs/networks.md) or
// Communicator::Options.
//
// ERRORS  parse() refuses what it does not know, and numbers out of range, and says what is allowed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

// How a peer that is cut off looks to who posts to it.
enum class Cut {
  kNone,
  kRefuse,  // posts fail
  kSilent,  // posts are taken and never arrive
};

struct FaultPlan {
  uint64_t seed = 1;  // mixed with the rank: ranks of one seed differ, and each does the same again
  // Probability that a post ...
  double delay = 0;      // ... goes out later, by a random time up to max_delay_ns
  double drop = 0;       // ... is never sent, and never completes
  double duplicate = 0;  // ... is sent twice, its signal too
  double reorder = 0;    // ... changes places with the next one, if that comes within max_delay_ns and the plugin's
                         //     capabilities promise no order
  double truncate = 0;   // ... carries only a part of its bytes
  double flip = 0;       // ... carries one wrong bit
  uint64_t max_delay_ns = kMillisecond;
  struct CutPeer {
    int peer;
    Cut how;
    uint64_t from_ns = 0;              // since the endpoint was made
    uint64_t until_ns = ~uint64_t{0};  // then it is restored
  };
  std::vector<CutPeer> cut{};

  // "seed=1,flip=0.01,drop=0.001,delay=0.05:2ms,duplicate=0.01,truncate=0.01,reorder=0.05,cut=2,cut=3:silent@100ms-2s"
  static Result<FaultPlan> parse(const std::string& list);
};

}  // namespace switchyard
