#include "bench/ep/network_bound.hpp"

#include <algorithm>

namespace switchyard::bench {
namespace {

constexpr uint64_t kPieceBytes = 1u << 20;  // in turns, so that all peers are served at the same time

uint64_t num_pieces(uint64_t num_bytes) { return (num_bytes + kPieceBytes - 1) / kPieceBytes; }

}  // namespace

Result<NetworkBound> NetworkBound::create(EpRank& rank) {
  const EpSpec& spec = rank.spec();
  const Topology& topology = rank.comm().topology();
  const auto num_ranks = size_t(spec.ranks);
  const int me = rank.comm().rank();
  std::vector<uint64_t> there(num_ranks * num_ranks), back(num_ranks * num_ranks);  // [from][to]
  const EpPlan& plan = rank.plan();
  if (spec.high_throughput()) {
    for_each_crossing(plan, [&](int source, int forwarder) {
      there[size_t(source) * num_ranks + size_t(forwarder)] += spec.arriving_bytes();
      back[size_t(forwarder) * num_ranks + size_t(source)] += spec.contribution_bytes();
    });
  }
  for (const RowRoute& row : plan.rows()) {
    if (spec.high_throughput() || topology.node_of(row.source) == topology.node_of(row.owner)) continue;
    const size_t forward = size_t(row.source) * num_ranks + size_t(row.owner);
    if (row.first_to_owner) there[forward] += spec.arriving_bytes() + spec.scale_bytes();
    back[size_t(row.owner) * num_ranks + size_t(row.source)] += spec.contribution_bytes();
  }
  const auto traffic_of = [&](const std::vector<uint64_t>& bytes) {
    Traffic traffic;
    for (size_t other = 0; other < num_ranks; ++other) {
      traffic.bytes_to.push_back(bytes[size_t(me) * num_ranks + other]);
      traffic.num_arriving += num_pieces(bytes[other * num_ranks + size_t(me)]);
    }
    for (const uint64_t one : bytes) traffic.total_bytes += one;
    return traffic;
  };
  NetworkBound bound;
  bound.dispatch_ = traffic_of(there);
  bound.combine_ = traffic_of(back);
  SWITCHYARD_ASSIGN(bound.raw_, RawOfi::create(rank.comm(), spec.net));
  return bound;
}

Status NetworkBound::exchange(const Traffic& traffic) {
  const auto failed = [&] { return Status::remote("plain libfabric calls failed: " + raw_->error().message()); };
  std::vector<uint64_t> left = traffic.bytes_to;
  for (bool any = true; any;) {
    any = false;
    for (size_t rank = 0; rank < left.size(); ++rank) {
      if (left[rank] == 0) continue;
      const uint64_t piece = std::min(left[rank], kPieceBytes);
      if (!raw_->put(int(rank), piece)) return failed();
      left[rank] -= piece;
      any = true;
    }
  }
  num_arrived_ += traffic.num_arriving;
  return raw_->await(num_arrived_) && raw_->flush() ? Status() : failed();
}

}  // namespace switchyard::bench
