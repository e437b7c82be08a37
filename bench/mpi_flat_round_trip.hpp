// The same scheme with one row per token and rank (per-rank deduplication), as high throughput's flat layout has it: what a
// framework does that expands rows to experts only where they have arrived. Rows arrive in their final order, (source, token), so
// the second permutation falls away.
//
// THREADS, OWNERSHIP, ERRORS  as MpiRoundTrip.
#pragma once
#include "bench/mpi_round_trip.hpp"

namespace switchyard::bench {

class MpiFlatRoundTrip {
 public:
  MpiFlatRoundTrip(MPI_Comm comm, Placement placement, const Tokens& tokens)
      : comm_(comm), placement_(placement), tokens_(tokens), send_(tokens.hidden), rows(tokens.hidden), combined(tokens.hidden) {
    MPI_Type_contiguous(int(tokens.hidden), MPI_UINT16_T, &row_type_);
    MPI_Type_commit(&row_type_);
    MPI_Type_contiguous(int(label_bytes()), MPI_BYTE, &label_type_);
    MPI_Type_commit(&label_type_);
    combined.ensure(size_t(tokens.num_tokens));
    for (std::vector<int>* counts : {&to_, &to_first_, &from_, &from_first_}) counts->resize(size_t(placement.num_ranks));
  }
  ~MpiFlatRoundTrip() {
    MPI_Type_free(&row_type_);
    MPI_Type_free(&label_type_);
  }
  MpiFlatRoundTrip(const MpiFlatRoundTrip&) = delete;
  MpiFlatRoundTrip& operator=(const MpiFlatRoundTrip&) = delete;

  // EFFECTS rows holds what has an expert here, by (source, token); labels all ids and weights of each row.
  void dispatch() {
    plan();
    MPI_Alltoall(to_.data(), 1, MPI_INT, from_.data(), 1, MPI_INT, comm_);
    const int num_sent = scan(to_, to_first_), num_received = scan(from_, from_first_);
    send_.ensure(size_t(num_sent));
    rows.ensure(size_t(num_received));
    sent_labels_.resize(size_t(num_sent) * label_bytes());
    labels.resize(size_t(num_received) * label_bytes());
    next_ = to_first_;
    slot_.clear();
    for (size_t i = 0; i < owner_.size(); i++) {
      const auto slot = size_t(next_[size_t(owner_[i])]++);
      const size_t token = token_[i], topk = size_t(tokens_.topk);
      memcpy(send_.row(slot), tokens_.rows.row(token), tokens_.hidden * sizeof(uint16_t));
      std::byte* label = &sent_labels_[slot * label_bytes()];
      memcpy(label, &tokens_.experts[token * topk], topk * sizeof(int64_t));
      memcpy(label + topk * sizeof(int64_t), &tokens_.weights[token * topk], topk * sizeof(float));
      slot_.push_back(slot);
    }
    MPI_Alltoallv(send_.row(0), to_.data(), to_first_.data(), row_type_, rows.row(0), from_.data(), from_first_.data(),
                  row_type_, comm_);
    MPI_Alltoallv(sent_labels_.data(), to_.data(), to_first_.data(), label_type_, labels.data(), from_.data(),
                  from_first_.data(), label_type_, comm_);
  }

  // REQUIRES dispatch() before it; what experts made of `rows` is in `rows`.
  // EFFECTS combined holds this rank's tokens: the plain sums of their rows.
  void combine() {
    MPI_Alltoallv(rows.row(0), from_.data(), from_first_.data(), row_type_, send_.row(0), to_.data(), to_first_.data(),
                  row_type_, comm_);
    const std::vector<float> ones(size_t(tokens_.topk), 1.0f);
    std::vector<const uint16_t*> summands;
    for (size_t i = 0; i < token_.size();) {
      const size_t token = token_[i];
      summands.clear();
      for (; i < token_.size() && token_[i] == token; i++) summands.push_back(send_.row(slot_[i]));
      sum_rows(combined.row(token), summands, ones.data(), tokens_.hidden);
    }
  }

  size_t num_received() const { return size_t(std::accumulate(from_.begin(), from_.end(), 0)); }

 private:
  size_t label_bytes() const { return size_t(tokens_.topk) * (sizeof(int64_t) + sizeof(float)); }

  // The (token, rank) pairs, in the order of tokens and of k.
  void plan() {
    std::fill(to_.begin(), to_.end(), 0);
    token_.clear();
    owner_.clear();
    const auto topk = size_t(tokens_.topk);
    for (size_t token = 0; token < size_t(tokens_.num_tokens); token++) {
      const size_t first = owner_.size();
      for (size_t k = 0; k < topk; k++) {
        const int owner = placement_.owner(int(tokens_.experts[token * topk + k]));
        if (std::find(owner_.begin() + ptrdiff_t(first), owner_.end(), owner) != owner_.end()) continue;
        token_.push_back(token);
        owner_.push_back(owner);
        to_[size_t(owner)]++;
      }
    }
  }
  static int scan(const std::vector<int>& counts, std::vector<int>& first) {
    std::exclusive_scan(counts.begin(), counts.end(), first.begin(), 0);
    return first.back() + counts.back();
  }

  MPI_Comm comm_;
  MPI_Datatype row_type_ = MPI_DATATYPE_NULL, label_type_ = MPI_DATATYPE_NULL;
  Placement placement_;
  const Tokens& tokens_;
  std::vector<int> to_, to_first_, from_, from_first_, next_;  // rows per rank, as MPI_Alltoallv wants them
  std::vector<size_t> token_, slot_;                           // of each pair
  std::vector<int> owner_;
  RowBuffer send_;
  std::vector<std::byte> sent_labels_;

 public:
  RowBuffer rows;
  std::vector<std::byte> labels;
  RowBuffer combined;
};

}  // namespace switchyard::bench
