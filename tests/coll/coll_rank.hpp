// One rank with collectives, alone in its process.
//
// THREADS    as a communicator: one thread a rank.
// OWNERSHIP  owns all that its rank has.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "coll/collectives.hpp"
#include "coll/reference.hpp"
#include "platform/host/stream.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {

struct CollRound {
  size_t count = 1;  // elements between each two ranks
  DType dtype = DType::kBfloat16;
  coll::ReduceOp op = coll::ReduceOp::kSum;

  std::string name() const { return text(dtype_name(dtype), ", op ", int(op), ", ", count); }
};

class CollRank {
 public:
  // COLLECTIVE.
  static Result<CollRank> join(const RankProcess& self, const Communicator::Options& options);
  Communicator& comm() { return *comm_; }

  // COLLECTIVE. Every operation once, each posted behind the one before, against plain loops. Empty, or what is wrong.
  std::string run(const CollRound& round, const std::vector<int>& node_of_rank);

 private:
  struct Outputs {
    Bytes gathered, reduced, share, turned, broadcast, received;
  };
  Outputs expected(const CollRound& round, const std::vector<Bytes>& inputs,
                   const std::vector<int>& node_of_rank) const;
  Status post_all(const CollRound& round, const Bytes& in, Outputs& out);
  int previous() const { return (comm_->rank() + comm_->num_ranks() - 1) % comm_->num_ranks(); }
  int next() const { return (comm_->rank() + 1) % comm_->num_ranks(); }
  int root() const { return comm_->num_ranks() - 1; }

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<coll::Collectives> collectives_;
};

}  // namespace switchyard::testing
