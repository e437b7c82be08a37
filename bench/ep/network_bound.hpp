// The network's share of a bound: the time that plain libfabric calls take for the bytes that a run sends between nodes,
// all ranks at the same time.
//
//   dispatch   every token once to each rank of another node that has an expert of it
//   combine    every result of an expert on another node back to the token's rank
//
// THREADS    as the rank. COLLECTIVE.
// ERRORS     create() where there is no libfabric; the others when libfabric's calls fail.
#pragma once
#include <memory>
#include <vector>

#include "bench/ep/rank.hpp"
#include "bench/gin/raw_ofi.hpp"

namespace switchyard::bench {

class NetworkBound {
 public:
  static Result<NetworkBound> create(EpRank& rank);

  Status dispatch() { return exchange(dispatch_); }
  Status combine() { return exchange(combine_); }
  // Over all ranks.
  uint64_t dispatch_bytes() const { return dispatch_.total_bytes; }
  uint64_t combine_bytes() const { return combine_.total_bytes; }

 private:
  struct Traffic {
    std::vector<uint64_t> bytes_to;  // by rank
    uint64_t num_arriving = 0;       // puts
    uint64_t total_bytes = 0;
  };
  Status exchange(const Traffic& traffic);

  std::unique_ptr<RawOfi> raw_;
  Traffic dispatch_, combine_;
  uint64_t num_arrived_ = 0;
};

}  // namespace switchyard::bench
