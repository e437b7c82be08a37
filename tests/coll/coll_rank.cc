#include "coll/coll_rank.hpp"

namespace switchyard::testing {

Result<CollRank> CollRank::join(const RankProcess& self, const Communicator::Options& options) {
  CollRank rank;
  SWITCHYARD_ASSIGN(rank.stream_, Stream::create());
  SWITCHYARD_ASSIGN(rank.comm_, Communicator::create(self.id, self.rank, self.num_ranks, options));
  SWITCHYARD_ASSIGN(rank.collectives_, coll::Collectives::create(*rank.comm_, {.stage_bytes = 64 << 10}));
  return rank;
}

CollRank::Outputs CollRank::expected(const CollRound& round, const std::vector<Bytes>& inputs,
                                     const std::vector<int>& node_of_rank) const {
  Outputs out;
  const auto share_bytes = std::ptrdiff_t(round.count * dtype_bytes(round.dtype));
  const auto begin_of_mine = [&](const Bytes& bytes) { return bytes.begin() + share_bytes * comm_->rank(); };
  for (const Bytes& input : inputs) {
    out.gathered.insert(out.gathered.end(), input.begin(), input.end());
    out.turned.insert(out.turned.end(), begin_of_mine(input), begin_of_mine(input) + share_bytes);
  }
  out.reduced = reduce(round.dtype, round.op, inputs, node_of_rank);
  out.share.assign(begin_of_mine(out.reduced), begin_of_mine(out.reduced) + share_bytes);
  out.broadcast = inputs[size_t(root())];
  out.received = inputs[size_t(previous())];
  return out;
}

Status CollRank::post_all(const CollRound& round, const Bytes& in, Outputs& out) {
  const StreamRef stream{stream_.get()};
  const auto& [count, dtype, op] = round;
  const size_t in_all = count * size_t(comm_->num_ranks());
  SWITCHYARD_TRY(collectives_->all_gather(in.data(), out.gathered.data(), in_all, dtype, stream));
  SWITCHYARD_TRY(collectives_->all_reduce(in.data(), out.reduced.data(), in_all, dtype, op, stream));
  SWITCHYARD_TRY(collectives_->reduce_scatter(in.data(), out.share.data(), count, dtype, op, stream));
  SWITCHYARD_TRY(collectives_->all_to_all(in.data(), out.turned.data(), count, dtype, stream));
  SWITCHYARD_TRY(collectives_->broadcast(in.data(), out.broadcast.data(), in_all, dtype, root(), stream));
  // Once around all ranks.
  const std::vector<coll::PairCall> calls{{true, next(), const_cast<uint8_t*>(in.data()), in_all, dtype},
                                          {false, previous(), out.received.data(), in_all, dtype}};
  return collectives_->send_and_receive(calls, stream);
}

std::string CollRank::run(const CollRound& round, const std::vector<int>& node_of_rank) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < comm_->num_ranks(); ++rank) {
    inputs.push_back(make_input(round.dtype, rank, round.count * size_t(comm_->num_ranks())));
  }
  const Outputs wanted = expected(round, inputs, node_of_rank);
  Outputs out = wanted;
  for (Bytes* bytes : {&out.gathered, &out.reduced, &out.share, &out.turned, &out.broadcast, &out.received}) {
    std::fill(bytes->begin(), bytes->end(), uint8_t{0xee});
  }
  Status status = post_all(round, inputs[size_t(comm_->rank())], out);
  // For longer than an operation waits for others, so that none still runs when this rank ends.
  if (status.ok()) status = stream_->synchronize(Deadline::after_ns(60 * kSecond));
  if (!status.ok()) return status.to_string();
  if (out.gathered != wanted.gathered) return "all-gather is wrong";
  if (out.reduced != wanted.reduced) return "all-reduce is wrong";
  if (out.share != wanted.share) return "reduce-scatter is wrong";
  if (out.turned != wanted.turned) return "all-to-all is wrong";
  if (out.broadcast != wanted.broadcast) return "broadcast is wrong";
  return out.received == wanted.received ? "" : "send and receive are wrong";
}

}  // namespace switchyard::testing
