// The memory bound of a run (bench/bound.hpp), over the run's own rows and at their real addresses.
//
//   dispatch, windows   the sender copies every row to its slot in the owner's window
//   dispatch, plain     no rank can write another's tensor: what a token sends to another rank is copied once more, to
//                       memory on the way; then the owner copies every row to its slot
//   combine, windows    every result is read where the expert left it, and every token's row is written
//   combine, plain      as above, but results of another rank are copied once more before they are read
//   high throughput     what crosses to another node is copied once more at its source, to be sent, and brought to its slots by
//                       the rank that forwards it; back, that rank writes one sum per token, and the source reads it
//
// On a GPU the rows' addresses do not matter: the bound is one copy of as many bytes as are read and written here, by the
// device's own copy engine or kernel.
//
// Memory on the way is private: with no waiting and no sharing, whoever has to wait and share can't be faster.
//
// THREADS    as the rank; ranks run their bounds at the same time. REQUIRES idle streams on all ranks.
// OWNERSHIP  owns the memory on the way; writes the rank's outputs, in windows also its peers'.
// ERRORS     create() where memory lacks.
#pragma once
#include <memory>
#include <vector>

#include "bench/bound.hpp"
#include "bench/ep/rank.hpp"

namespace switchyard::bench {

// One token's row and all its slots, for what copies it to all of them at once.
struct RowPush {
  const void* src;
  std::vector<void*> dsts;
};

class EpBound {
 public:
  // REQUIRES with windows: load and store reach all ranks.
  static Result<EpBound> create(const EpRank& rank);

  Status dispatch(Method method) const;
  Status combine(Method method) const;
  // With windows: the rows of dispatch(), grouped by token.
  std::vector<RowPush> pushes() const;

 private:
  explicit EpBound(const EpRank& rank) : runtime_(rank.comm().runtime()), stream_(rank.stream_ref()) {}
  bool on_device() const { return runtime_.device().kind != DeviceKind::kHost; }
  Status prepare_device(const EpRank& rank);
  Status copy_on_device(size_t num_bytes) const;
  // `windows`: load and store reach the outputs of the ranks of a node.
  Status list_rows(const EpRank& rank, bool windows);

  Runtime& runtime_;
  const StreamRef stream_;
  std::unique_ptr<Buffer> sent_, received_;  // rows on the way: out of this rank, and into it
  std::vector<RowMove> dispatch_moves_, combine_moves_;
  std::vector<RowRead> combine_reads_;
  std::vector<RowWrite> combine_writes_;
};

}  // namespace switchyard::bench
