// The C++ face of collectives: in stream order, deterministic (docs/collectives.md).
//
//   switchyard::coll::CollGroup coll(comm);
//   coll.all_reduce(gradients, gradients, num_elements, switchyard::DType::kFloat32, switchyard::coll::ReduceOp::kSum,
//   stream); stream.synchronize();
//
// THREADS    one call at a time, in the same order on all ranks.
// OWNERSHIP  must outlive what it posted, and go before its Comm.
// ERRORS     switchyard::Error for what can't be; what fails later is thrown by the stream and by every later call.
// BLOCKING   the constructor until the deadline; the operations never.
#pragma once
#include <memory>
#include <span>

#include "switchyard/coll/config.hpp"
#include "switchyard/comm.hpp"
#include "switchyard/dtype.hpp"

namespace switchyard::coll {

class Collectives;

class CollGroup {
 public:
  // COLLECTIVE.
  explicit CollGroup(const Comm& comm);
  ~CollGroup();
  CollGroup(CollGroup&&) noexcept;

  // num_elements: of each rank. In place: `in` is this rank's place in `out`.
  void all_gather(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream);
  // In place: in == out.
  void all_reduce(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op, StreamRef stream);
  // `out` gets this rank's share of num_elements. In place: it is that share of `in`.
  void reduce_scatter(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op,
                      StreamRef stream);
  // In place at the root: in == out. `in` of other ranks is not used.
  void broadcast(const void* in, void* out, size_t num_elements, DType dtype, int root, StreamRef stream);
  // num_elements: between each two ranks, side by side in the order of ranks. In place: in == out.
  void all_to_all(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream);
  // One part for each rank, read before the call returns. No overlap of in and out, nor of parts of `out`.
  void all_to_all_v(const void* in, std::span<const Part> sent, void* out, std::span<const Part> received, DType dtype,
                    StreamRef stream);

 private:
  std::unique_ptr<Collectives> collectives_;
};

}  // namespace switchyard::coll
