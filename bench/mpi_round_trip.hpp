// One mixture-of-experts round trip the way frameworks do it without a library for it: permute the rows, let
// MPI_Alltoallv carry them, permute again; and the same backwards with a weighted sum at the end.
//
// Written to be as fast as this scheme allows: whole rows and runs of rows by memcpy, buffers that are kept, the
// last permutation fused into the sum. A slow baseline would prove nothing.
//
// THREADS    the one that initialised MPI. Every call is collective.
// OWNERSHIP  holds its own buffers; views returned are valid until the next dispatch().
// ERRORS     MPI's default handler ends the job.
#pragma once
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "bench/routing.hpp"
#include "switchyard/numeric.hpp"

namespace switchyard::bench {

// BF16 rows that start on cache lines. Grows and never shrinks, so a steady run allocates nothing.
class RowBuffer {
 public:
  explicit RowBuffer(size_t hidden) : hidden_(hidden) {}

  void ensure(size_t num_rows) {
    if (num_rows <= capacity_rows_) return;
    const size_t bytes = (num_rows * hidden_ * sizeof(uint16_t) + 63) / 64 * 64;
    data_.reset(static_cast<uint16_t*>(std::aligned_alloc(64, bytes)));
    if (!data_) throw std::bad_alloc();
    capacity_rows_ = num_rows;
  }
  uint16_t* row(size_t row_idx) { return data_.get() + row_idx * hidden_; }
  const uint16_t* row(size_t row_idx) const { return data_.get() + row_idx * hidden_; }
  void poison() {
    if (data_) memset(data_.get(), 0xff, capacity_rows_ * hidden_ * sizeof(uint16_t));
  }

 private:
  struct Free {
    void operator()(uint16_t* data) const { std::free(data); }
  };
  size_t hidden_;
  size_t capacity_rows_ = 0;
  std::unique_ptr<uint16_t, Free> data_;
};

struct Tokens {
  int num_tokens;
  int topk;
  size_t hidden;
  std::vector<int64_t> experts;  // [num_tokens, topk]
  std::vector<float> weights;    // [num_tokens, topk]
  RowBuffer rows;                // [num_tokens, hidden]
};

// Not inlined on purpose: GCC 12 otherwise jams the loops over rows and over columns into one that is not vectorised, five
// times slower.
__attribute__((noinline)) inline void add_scaled(float* __restrict sum, const uint16_t* __restrict src, float weight,
                                                 size_t num) {
  for (size_t i = 0; i < num; i++) sum[i] = std::fmaf(bf16_to_float(src[i]), weight, sum[i]);
}

// EFFECTS dst = the weighted sum of the rows: FP32, in order, rounded once. Column chunks keep the accumulators in the nearest
// cache over all rows.
inline void sum_rows(uint16_t* dst, std::span<const uint16_t* const> rows, const float* weights, size_t hidden) {
  constexpr size_t kChunk = 1024;
  float sum[kChunk];
  for (size_t begin = 0; begin < hidden; begin += kChunk) {
    const size_t num = std::min(kChunk, hidden - begin);
    std::fill_n(sum, num, 0.0f);
    for (size_t i = 0; i < rows.size(); i++) add_scaled(sum, rows[i] + begin, weights[i], num);
    for (size_t i = 0; i < num; i++) dst[begin + i] = float_to_bf16(sum[i]);
  }
}

class MpiRoundTrip {
 public:
  MpiRoundTrip(MPI_Comm comm, Placement placement, const Tokens& tokens)
      : comm_(comm), placement_(placement), tokens_(tokens), rank_(comm_rank(comm)),
        send_counts_(num_blocks()), recv_counts_(num_blocks()), send_(tokens.hidden), received_(tokens.hidden),
        expert_input(tokens.hidden), expert_output(tokens.hidden), combined(tokens.hidden) {
    MPI_Type_contiguous(int(tokens.hidden), MPI_UINT16_T, &row_type_);
    MPI_Type_commit(&row_type_);
    send_.ensure(num_entries());
    combined.ensure(size_t(tokens.num_tokens));
  }
  ~MpiRoundTrip() { MPI_Type_free(&row_type_); }
  MpiRoundTrip(const MpiRoundTrip&) = delete;
  MpiRoundTrip& operator=(const MpiRoundTrip&) = delete;

  // EFFECTS expert_input holds the rows for this rank's experts, ordered by (expert, source rank, token).
  void dispatch() {
    plan_send();
    MPI_Alltoall(send_counts_.data(), placement_.max_local(), MPI_INT, recv_counts_.data(), placement_.max_local(),
                 MPI_INT, comm_);
    for (size_t t = 0, entry = 0; t < size_t(tokens_.num_tokens); t++) {
      for (int k = 0; k < tokens_.topk; k++, entry++) copy_rows(send_.row(slot_[entry]), tokens_.rows.row(t), 1);
    }
    plan_receive();
    exchange(send_, to_, received_, from_);
    for_each_block([&](size_t by_source, size_t by_expert, size_t num_rows) {
      copy_rows(expert_input.row(by_expert), received_.row(by_source), num_rows);
    });
  }

  // REQUIRES dispatch() before it, and expert_output filled in the order of expert_input.
  // EFFECTS combined holds this rank's tokens: FP32 sums in the order of k, rounded once.
  void combine() {
    for_each_block([&](size_t by_source, size_t by_expert, size_t num_rows) {
      copy_rows(received_.row(by_source), expert_output.row(by_expert), num_rows);
    });
    exchange(received_, from_, send_, to_);
    for (size_t t = 0; t < size_t(tokens_.num_tokens); t++) sum_token(t);
  }

  size_t num_received() const { return size_t(from_.total); }
  // Rows that local expert `local` got from all ranks.
  size_t num_received(int local) const {
    size_t num_rows = 0;
    for (int source = 0; source < placement_.num_ranks; source++) {
      num_rows += size_t(recv_counts_[block(source, local)]);
    }
    return num_rows;
  }

 private:
  // Rows per rank and where each rank's rows start, as MPI_Alltoallv wants them.
  struct Split {
    std::vector<int> counts, offsets;
    int total = 0;
  };

  static int comm_rank(MPI_Comm comm) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    return rank;
  }
  size_t num_entries() const { return size_t(tokens_.num_tokens) * size_t(tokens_.topk); }
  size_t num_blocks() const { return size_t(placement_.num_ranks) * size_t(placement_.max_local()); }
  // The cell of (rank, that rank's local expert) in a table of counts.
  size_t block(int rank, int local) const { return size_t(rank) * size_t(placement_.max_local()) + size_t(local); }

  void copy_rows(uint16_t* dst, const uint16_t* src, size_t num_rows) const {
    memcpy(dst, src, num_rows * tokens_.hidden * sizeof(uint16_t));
  }

  Split split(const std::vector<int>& counts) const {
    Split result;
    for (int rank = 0; rank < placement_.num_ranks; rank++) {
      const auto begin = counts.begin() + ptrdiff_t(block(rank, 0));
      result.offsets.push_back(result.total);
      result.counts.push_back(std::accumulate(begin, begin + placement_.max_local(), 0));
      result.total += result.counts.back();
    }
    return result;
  }

  // A counting sort of the (token, k) entries by expert; experts of one rank are neighbours, so rank blocks result.
  void plan_send() {
    std::fill(send_counts_.begin(), send_counts_.end(), 0);
    entry_block_.resize(num_entries());
    for (size_t entry = 0; entry < num_entries(); entry++) {
      const int expert = int(tokens_.experts[entry]);
      const int owner = placement_.owner(expert);
      entry_block_[entry] = block(owner, expert - placement_.first(owner));
      send_counts_[entry_block_[entry]]++;
    }
    next_slot_.resize(num_blocks());
    std::exclusive_scan(send_counts_.begin(), send_counts_.end(), next_slot_.begin(), size_t{0});
    slot_.resize(num_entries());
    for (size_t entry = 0; entry < num_entries(); entry++) slot_[entry] = next_slot_[entry_block_[entry]]++;
    to_ = split(send_counts_);
  }

  void plan_receive() {
    from_ = split(recv_counts_);
    received_.ensure(num_received());
    expert_input.ensure(num_received());
  }

  void exchange(const RowBuffer& src, const Split& src_split, RowBuffer& dst, const Split& dst_split) {
    MPI_Alltoallv(src.row(0), src_split.counts.data(), src_split.offsets.data(), row_type_, dst.row(0),
                  dst_split.counts.data(), dst_split.offsets.data(), row_type_, comm_);
  }

  // Visits the runs of rows that stay together between the order of arrival (source, expert) and the order that
  // experts want (expert, source): f(first row by source, first row by expert, number of rows).
  template <class F>
  void for_each_block(F f) {
    next_slot_.resize(num_blocks());
    std::exclusive_scan(recv_counts_.begin(), recv_counts_.end(), next_slot_.begin(), size_t{0});
    size_t by_expert = 0;
    for (int local = 0; local < placement_.num_local(rank_); local++) {
      for (int source = 0; source < placement_.num_ranks; source++) {
        const auto num_rows = size_t(recv_counts_[block(source, local)]);
        f(next_slot_[block(source, local)], by_expert, num_rows);
        by_expert += num_rows;
      }
    }
  }

  void sum_token(size_t t) {
    const auto topk = size_t(tokens_.topk);
    rows_.clear();
    for (size_t k = 0; k < topk; k++) rows_.push_back(send_.row(slot_[t * topk + k]));
    sum_rows(combined.row(t), rows_, &tokens_.weights[t * topk], tokens_.hidden);
  }

  MPI_Comm comm_;
  MPI_Datatype row_type_ = MPI_DATATYPE_NULL;
  Placement placement_;
  const Tokens& tokens_;
  int rank_;
  std::vector<int> send_counts_, recv_counts_;  // [rank, local expert]
  std::vector<size_t> entry_block_, next_slot_;
  std::vector<size_t> slot_;  // of each (token, k) in send_
  Split to_, from_;
  std::vector<const uint16_t*> rows_;  // of the token that is added up
  RowBuffer send_, received_;

 public:
  RowBuffer expert_input, expert_output, combined;
};

}  // namespace switchyard::bench
