#include "coll/coll_rank.hpp"

namespace switchyard::testing {

Result<CollRank> CollRank::join(const RankProcess& self, const Communicator::Options& options) {
  SWITCHYARD_ASSIGN(auto comm, Communicator::create(self.id, self.rank, self.num_ranks, options));
  SWITCHYARD_ASSIGN(CollRank rank, create(*comm));
  rank.own_comm_ = std::move(comm);
  return rank;
}

Result<CollRank> CollRank::create(Communicator& comm) {
  CollRank rank;
  rank.comm_ = &comm;
  SWITCHYARD_ASSIGN(rank.stream_, Stream::create());
  SWITCHYARD_ASSIGN(rank.collectives_, coll::Collectives::create(comm, {.stage_bytes = 64 << 10}));
  return rank;
}

std::vector<Bytes> CollRank::inputs(const CollRound& round) const {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < comm_->num_ranks(); ++rank) {
    inputs.push_back(make_input(round.dtype, rank, round.count * size_t(comm_->num_ranks()), round.seed));
  }
  return inputs;
}

CollRank::Outputs CollRank::empty_outputs(const CollRound& round) const {
  const auto num_ranks = size_t(comm_->num_ranks());
  const size_t share_bytes = round.count * dtype_bytes(round.dtype), input_bytes = share_bytes * num_ranks;
  const auto untouched = [](size_t num_bytes) { return Bytes(num_bytes, uint8_t{0xee}); };
  return {.gathered = untouched(input_bytes * num_ranks),
          .reduced = untouched(input_bytes),
          .share = untouched(share_bytes),
          .turned = untouched(input_bytes),
          .turned_in_part = untouched(input_bytes),
          .broadcast = untouched(input_bytes),
          .received = untouched(input_bytes)};
}

CollRank::Outputs CollRank::expected(const CollRound& round, const std::vector<int>& node_of_rank) const {
  const std::vector<Bytes> in = inputs(round);
  Outputs out = empty_outputs(round);
  const size_t width = dtype_bytes(round.dtype), share_bytes = round.count * width;
  const auto share_of_mine = [&](const Bytes& bytes) { return bytes.data() + share_bytes * size_t(comm_->rank()); };
  for (size_t sender = 0; sender < in.size(); ++sender) {
    std::copy(in[sender].begin(), in[sender].end(), out.gathered.data() + sender * in[sender].size());
    const uint8_t* const to_me = share_of_mine(in[sender]);
    std::copy(to_me, to_me + share_bytes, out.turned.data() + sender * share_bytes);
    const size_t part_bytes = num_between(round, int(sender), comm_->rank()) * width;
    std::copy(to_me, to_me + part_bytes, out.turned_in_part.data() + sender * share_bytes);
  }
  out.reduced = reduce(round.dtype, round.op, in, node_of_rank);
  out.share.assign(share_of_mine(out.reduced), share_of_mine(out.reduced) + share_bytes);
  out.broadcast = in[size_t(root())];
  out.received = in[size_t(previous())];
  return out;
}

Status CollRank::post_all(const CollRound& round, const Bytes& in, Outputs& out) {
  const StreamRef stream{stream_.get()};
  const size_t count = round.count, in_all = count * size_t(comm_->num_ranks());
  const DType dtype = round.dtype;
  SWITCHYARD_TRY(collectives_->all_gather(in.data(), out.gathered.data(), in_all, dtype, stream));
  SWITCHYARD_TRY(collectives_->all_reduce(in.data(), out.reduced.data(), in_all, dtype, round.op, stream));
  SWITCHYARD_TRY(collectives_->reduce_scatter(in.data(), out.share.data(), count, dtype, round.op, stream));
  SWITCHYARD_TRY(collectives_->all_to_all(in.data(), out.turned.data(), count, dtype, stream));
  std::vector<coll::Part> sent, received;
  for (int peer = 0; peer < comm_->num_ranks(); ++peer) {
    sent.push_back({size_t(peer) * count, num_between(round, comm_->rank(), peer)});
    received.push_back({size_t(peer) * count, num_between(round, peer, comm_->rank())});
  }
  SWITCHYARD_TRY(collectives_->all_to_all_v(in.data(), sent, out.turned_in_part.data(), received, dtype, stream));
  SWITCHYARD_TRY(collectives_->broadcast(in.data(), out.broadcast.data(), in_all, dtype, root(), stream));
  // Once around all ranks.
  const std::vector<coll::PairCall> calls{{true, next(), const_cast<uint8_t*>(in.data()), in_all, dtype},
                                          {false, previous(), out.received.data(), in_all, dtype}};
  return collectives_->send_and_receive(calls, stream);
}

Status CollRank::run(const CollRound& round) {
  const Bytes in = make_input(round.dtype, comm_->rank(), round.count * size_t(comm_->num_ranks()), round.seed);
  out_ = empty_outputs(round);
  const Status posted = post_all(round, in, out_);
  // Also of what was posted before one was refused. For longer than an operation waits for others, so that none still runs
  // when this rank ends.
  const Status ended = stream_->synchronize(Deadline::after_ns(60 * kSecond));
  return posted.ok() ? ended : posted;
}

std::string CollRank::check(const CollRound& round, const std::vector<int>& node_of_rank) const {
  const Outputs wanted = expected(round, node_of_rank);
  if (out_.gathered != wanted.gathered) return "all-gather is wrong";
  if (out_.reduced != wanted.reduced) return "all-reduce is wrong";
  if (out_.share != wanted.share) return "reduce-scatter is wrong";
  if (out_.turned != wanted.turned) return "all-to-all is wrong";
  if (out_.turned_in_part != wanted.turned_in_part) return "all-to-all-v is wrong";
  if (out_.broadcast != wanted.broadcast) return "broadcast is wrong";
  return out_.received == wanted.received ? "" : "send and receive are wrong";
}

Verdict CollRank::run_and_check(const CollRound& round, const std::vector<int>& node_of_rank) {
  const Status status = run(round);
  return status.ok() ? Verdict(check(round, node_of_rank)) : Verdict(status);
}

}  // namespace switchyard::testing
