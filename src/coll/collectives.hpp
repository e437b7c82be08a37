// Collectives on a stream: all-gather, all-reduce, reduce-scatter, broadcast, over the ranks of one node.
//
// THREADS    as the communicator: one call at a time, in the same order on all ranks.
// OWNERSHIP  owns its staging memory; the communicator must outlive it.
// ERRORS     a rank that does not come is reported by the stream after the communicator's time limit.
// BLOCKING   create() until the deadline; the operations never.
#pragma once
#include <memory>

#include "coll/lsa_kernels.hpp"
#include "comm/communicator.hpp"
#include "switchyard/dtype.hpp"

namespace switchyard::coll {

class Collectives {
 public:
  // COLLECTIVE.
  static Result<std::unique_ptr<Collectives>> create(Communicator& comm);
  ~Collectives();

  Status all_gather(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream);
  Status all_reduce(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op, StreamRef stream);
  // `out` gets this rank's share of num_elements.
  Status reduce_scatter(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op, StreamRef stream);
  Status broadcast(const void* in, void* out, size_t num_elements, DType dtype, int root, StreamRef stream);

 private:
  explicit Collectives(Communicator& comm) : comm_(comm) {}
  template <class Kernel>
  Status post(StreamRef stream, Kernel kernel);

  Communicator& comm_;
  void* memory_ = nullptr;
  Window* window_ = nullptr;
  LsaStage stage_{};
};

}  // namespace switchyard::coll
