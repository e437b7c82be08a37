// Collectives of one node, written on the device API: every rank stages a piece in its own part of a window, all meet,
// everybody reads what it needs, all meet again. Reductions add up in rank order, so every rank gets the same bits.
#pragma once
#include <cstdint>

#include "switchyard/device/barrier.hpp"
#include "switchyard/device/coop.hpp"
#include "switchyard/numeric.hpp"

namespace switchyard::coll {

struct LsaStage {
  DeviceComm comm;
  WindowView window;
  uint64_t num_bytes;  // of each rank's part
};

enum class ReduceOp : int32_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

// Runs body(offset, num_bytes) for pieces that fit the stage: after all staged theirs, before anybody stages the next.
template <class P, class Body>
SWITCHYARD_DEVICE BarrierResult in_pieces(const P& p, const LsaStage& stage, const char* input, uint64_t num_bytes,
                                          Body body) {
  Barrier<P> barrier(p, stage.comm, 0);
  for (uint64_t offset = 0; offset < num_bytes; offset += stage.num_bytes) {
    const uint64_t piece = num_bytes - offset < stage.num_bytes ? num_bytes - offset : stage.num_bytes;
    if (input != nullptr) p.copy_together(CoopWarp{}, stage.window.local(0), input + offset, piece);
    p.drain();
    if (const BarrierResult met = barrier.lsa(); met != BarrierResult::kOk) return met;
    body(offset, piece);
    p.drain();
    if (const BarrierResult met = barrier.lsa(); met != BarrierResult::kOk) return met;
  }
  return BarrierResult::kOk;
}

template <class P>
SWITCHYARD_DEVICE BarrierResult all_gather(const P& p, const LsaStage& stage, const char* in, char* out,
                                           uint64_t num_bytes) {
  return in_pieces(p, stage, in, num_bytes, [&](uint64_t offset, uint64_t piece) {
    for (int rank = 0; rank < stage.comm.world.num_ranks; ++rank) {
      p.copy_together(CoopWarp{}, out + rank * num_bytes + offset, stage.window.lsa(0, rank), piece);
    }
  });
}

template <class P>
SWITCHYARD_DEVICE BarrierResult broadcast(const P& p, const LsaStage& stage, const char* in, char* out,
                                          uint64_t num_bytes, int root) {
  const char* mine = stage.comm.world.rank == root ? in : nullptr;
  return in_pieces(p, stage, mine, num_bytes, [&](uint64_t offset, uint64_t piece) {
    p.copy_together(CoopWarp{}, out + offset, stage.window.lsa(0, root), piece);
  });
}

// Accumulates in Acc and converts once at the end.
template <class P, class T, class Acc, class Load, class Store>
SWITCHYARD_DEVICE void reduce_piece(const P& p, const LsaStage& stage, char* out, uint64_t stage_offset,
                                    uint64_t num_elements, ReduceOp op, Load load, Store store) {
  const int num_ranks = stage.comm.world.num_ranks;
  for (uint64_t i = uint64_t(p.lane()); i < num_elements; i += P::kLanes) {
    Acc sum{};
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Acc value = load(p.read(stage.window.lsa_as<T>(stage_offset, rank) + i));
      if (rank == 0) sum = value;
      else if (op == ReduceOp::kProd) sum = sum * value;
      else if (op == ReduceOp::kMax) sum = value > sum ? value : sum;
      else if (op == ReduceOp::kMin) sum = value < sum ? value : sum;
      else sum = sum + value;
    }
    if (op == ReduceOp::kAvg) sum = Acc(sum / Acc(num_ranks));
    p.write(reinterpret_cast<T*>(out) + i, store(sum));
  }
}

}  // namespace switchyard::coll
