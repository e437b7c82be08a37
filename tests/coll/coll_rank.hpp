// One rank with collectives, and every operation of theirs against plain loops.
//
// THREADS    as a communicator: one thread a rank.
// OWNERSHIP  owns what join() or create() made; the communicator that create() is given must outlive it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "coll/collectives.hpp"
#include "coll/reference.hpp"
#include "platform/host/stream.hpp"
#include "support/process_ranks.hpp"
#include "support/verdict.hpp"

namespace switchyard::testing {

struct CollRound {
  size_t count = 1;  // elements between each two ranks
  DType dtype = DType::kBfloat16;
  coll::ReduceOp op = coll::ReduceOp::kSum;
  uint64_t seed = 1;

  std::string name() const { return text(dtype_name(dtype), ", op ", int(op), ", ", count); }
};

class CollRank {
 public:
  // COLLECTIVE. With a communicator of its own, or on that one.
  static Result<CollRank> join(const RankProcess& self, const Communicator::Options& options);
  static Result<CollRank> create(Communicator& comm);
  Communicator& comm() { return *comm_; }

  // COLLECTIVE. Every operation once, each posted behind the one before, until the last has ended.
  Status run(const CollRound& round);
  // Empty, or what was wrong. REQUIRES  run() has succeeded.
  std::string check(const CollRound& round, const std::vector<int>& node_of_rank) const;
  Verdict run_and_check(const CollRound& round, const std::vector<int>& node_of_rank);

 private:
  struct Outputs {
    Bytes gathered, reduced, share, turned, turned_in_part, broadcast, received;
  };
  std::vector<Bytes> inputs(const CollRound& round) const;
  Outputs empty_outputs(const CollRound& round) const;
  Outputs expected(const CollRound& round, const std::vector<int>& node_of_rank) const;
  Status post_all(const CollRound& round, const Bytes& in, Outputs& out);
  // Of an all-to-all-v: every other part is only half as long.
  static size_t num_between(const CollRound& round, int sender, int receiver) {
    return (sender + receiver) % 2 == 0 ? round.count : round.count / 2;
  }
  int previous() const { return (comm_->rank() + comm_->num_ranks() - 1) % comm_->num_ranks(); }
  int next() const { return (comm_->rank() + 1) % comm_->num_ranks(); }
  int root() const { return comm_->num_ranks() - 1; }

  std::unique_ptr<Communicator> own_comm_;  // of join()
  Communicator* comm_ = nullptr;
  std::unique_ptr<coll::Collectives> collectives_;
  Outputs out_;  // of the last run()
  std::unique_ptr<Stream> stream_;  // last: nothing runs any more when the rest goes
};

}  // namespace switchyard::testing
