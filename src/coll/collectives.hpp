// Collectives on a stream, over the ranks of a communicator: by load and store inside a node, along the rails between
// nodes (docs/collectives.md).
//
// Deterministic: reductions add up in rank order inside a node, then in the order of nodes; all ranks get the same
// bits.
//
// THREADS    as the communicator: one call at a time, in the same order on all ranks. Operations run in the order of
//            the calls, whatever streams they are on.
// OWNERSHIP  owns its memory; it must outlive what it posted, the communicator must outlive it.
// ERRORS     what can't be is refused by the call. What fails later is reported by the stream: a rank that does not
//            come within the communicator's time limit, or is gone, is named where that can be told; one that died is named by
//            all, also by those that did not wait for it. That is the end of these collectives: every later call, and the
//            communicator's async error, says so.
// BLOCKING   create() until the deadline; the operations never.
#pragma once
#include <memory>
#include <mutex>
#include <span>

#include "coll/pipeline.hpp"
#include "coll/reduce_rows.hpp"
#include "comm/communicator.hpp"
#include "switchyard/dtype.hpp"

namespace switchyard::coll {

// A send to one rank, or a receive from it.
struct PairCall {
  bool is_send;
  int peer;
  void* buffer;  // a send only reads it
  size_t num_elements;
  DType dtype;
};

// Equal on all ranks; zero: the default.
struct CollectivesOptions {
  uint64_t stage_bytes = 0;  // what a rank stages at a time; tests cut small vectors into many pieces with it
};

class Collectives {
 public:
  // COLLECTIVE.
  static Result<std::unique_ptr<Collectives>> create(Communicator& comm, const CollectivesOptions& options = {});
  ~Collectives();

  // num_elements: of each rank. In place: `in` is this rank's place in `out`.
  Status all_gather(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream);
  // In place: in == out.
  Status all_reduce(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op, StreamRef stream);
  // `out` gets this rank's share of num_elements. In place: it is that share of `in`.
  Status reduce_scatter(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op, StreamRef stream);
  // In place at the root: in == out. `in` of other ranks is not used.
  Status broadcast(const void* in, void* out, size_t num_elements, DType dtype, int root, StreamRef stream);
  // num_elements: between each two ranks, side by side in the order of ranks. In place: in == out.
  Status all_to_all(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream);
  // One part for each rank, read before the call returns. No overlap of in and out, nor of parts of `out`.
  // ERRORS  the stream reports a rank that sent another number of elements than was expected; that ends nothing.
  Status all_to_all_v(const void* in, std::span<const Part> sent, void* out, std::span<const Part> received,
                      DType dtype, StreamRef stream);
  // All at once; between two ranks and in one direction in the order of the list. Other ranks have no part in it, so
  // that ranks may call this different numbers of times. Read before the call returns. ERRORS  the stream reports a
  // rank that sent another number of bytes than was expected; that ends nothing.
  Status send_and_receive(std::span<const PairCall> calls, StreamRef stream);
  // Ok, or why it can't be.
  Status check(const PairCall& call) const;

  // Put to other nodes so far. REQUIRES  nothing of this object is running.
  uint64_t bytes_sent() const { return view_.words[view_.layout.bytes_word()]; }

 private:
  explicit Collectives(Communicator& comm) : comm_(comm) {}
  Status check(const void* in, const void* out, size_t num_elements, DType dtype) const;
  template <class Kernel>
  Status post(const View& view, const char* name, std::initializer_list<uint64_t> what, StreamRef stream, Kernel kernel);
  Status describe_disagreement(const char* name, int rank) const;
  Status describe(const char* name, const Failure& failure) const;
  std::string who_is_gone() const;
  Status first_failure() const;
  void end(const Status& why);

  Communicator& comm_;
  void* memory_ = nullptr;  // of the window
  void* own_ = nullptr;     // words, sources and ones of the view
  Window* window_ = nullptr;
  View view_{};        // of what all ranks take part in
  View pairs_view_{};  // the same, but a rank that died is nobody's business but its peers'

  StreamRef last_stream_{};
  mutable std::mutex mutex_;  // guards failure_: streams set it, calls read it
  Status failure_;
};

}  // namespace switchyard::coll
