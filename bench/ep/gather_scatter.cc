#include "bench/ep/gather_scatter.hpp"

#include <algorithm>
#include <cstring>

#include "bench/ep/check.hpp"
#include "platform/host/rows.hpp"

namespace switchyard::bench {

Result<std::unique_ptr<GatherScatter>> GatherScatter::create(EpRank& rank) {
  const EpSpec& spec = rank.spec();
  std::unique_ptr<GatherScatter> made(new GatherScatter(rank));
  SWITCHYARD_ASSIGN(made->collectives_, coll::Collectives::create(rank.comm()));
  const size_t entries = size_t(spec.tokens) * size_t(spec.topk), row_bytes = spec.input_bytes();
  const auto num_ranks = size_t(spec.ranks);
  const auto make = [&](std::unique_ptr<Buffer>& buffer, size_t num_bytes) -> Status {
    SWITCHYARD_ASSIGN(buffer, Buffer::create(rank.comm(), num_bytes));
    std::memset(buffer->span().data(), 0, num_bytes);  // else the first pass would pay for the pages
    return {};
  };
  SWITCHYARD_TRY(make(made->indices_, entries * sizeof(int64_t)));
  SWITCHYARD_TRY(make(made->weights_, entries * sizeof(float)));
  SWITCHYARD_TRY(make(made->all_tokens_, num_ranks * size_t(spec.tokens) * row_bytes));
  SWITCHYARD_TRY(make(made->all_indices_, num_ranks * entries * sizeof(int64_t)));
  SWITCHYARD_TRY(make(made->all_weights_, num_ranks * entries * sizeof(float)));
  SWITCHYARD_TRY(make(made->taken_, num_ranks * size_t(spec.tokens) * row_bytes));
  SWITCHYARD_TRY(make(made->results_, num_ranks * size_t(spec.tokens) * row_bytes));
  SWITCHYARD_TRY(make(made->combined_, size_t(spec.tokens) * row_bytes));
  const auto ids = rank.plan().experts(rank.rank());
  const auto weights = rank.plan().weights(rank.rank());
  std::copy(ids.begin(), ids.end(), made->indices_->span<int64_t>().begin());
  std::copy(weights.begin(), weights.end(), made->weights_->span<float>().begin());
  return made;
}

Status GatherScatter::gather_routing() {
  const size_t entries = size_t(rank_.spec().tokens) * size_t(rank_.spec().topk);
  SWITCHYARD_TRY(collectives_->all_gather(indices_->device_memory(), all_indices_->device_memory(), entries, DType::kInt64,
                                          rank_.stream_ref()));
  return rank_.synchronize();
}

Status GatherScatter::dispatch() {
  const EpSpec& spec = rank_.spec();
  const size_t entries = size_t(spec.tokens) * size_t(spec.topk);
  const StreamRef stream = rank_.stream_ref();
  SWITCHYARD_TRY(collectives_->all_gather(indices_->device_memory(), all_indices_->device_memory(), entries, DType::kInt64, stream));
  SWITCHYARD_TRY(collectives_->all_gather(weights_->device_memory(), all_weights_->device_memory(), entries, DType::kFloat32, stream));
  SWITCHYARD_TRY(collectives_->all_gather(rank_.tokens().device_memory(), all_tokens_->device_memory(),
                                          size_t(spec.tokens) * size_t(spec.hidden), spec.element(), stream));
  SWITCHYARD_TRY(rank_.synchronize());
  const Placement placement = spec.placement();
  const auto ids = all_indices_->span<int64_t>();
  mine_.clear();
  for (size_t token = 0; token < size_t(spec.ranks) * size_t(spec.tokens); token++) {
    const auto named = ids.subspan(token * size_t(spec.topk), size_t(spec.topk));
    const bool here = std::any_of(named.begin(), named.end(), [&](int64_t id) { return placement.owner(int(id)) == rank_.rank(); });
    if (!here) continue;
    rows::copy_streaming(taken_->row(mine_.size(), spec.input_bytes()), all_tokens_->row(token, spec.input_bytes()), spec.input_bytes());
    mine_.push_back(token);
  }
  rows::drain();
  return {};
}

Status GatherScatter::combine() {
  const EpSpec& spec = rank_.spec();
  const std::vector<std::byte> zeros(spec.input_bytes());
  size_t next = 0;
  for (size_t token = 0; token < size_t(spec.ranks) * size_t(spec.tokens); token++) {
    const bool here = next < mine_.size() && mine_[next] == token;
    rows::copy_streaming(results_->row(token, spec.input_bytes()), here ? taken_->row(next, spec.input_bytes()) : zeros.data(),
                         spec.input_bytes());
    next += here;
  }
  rows::drain();
  SWITCHYARD_TRY(collectives_->reduce_scatter(results_->device_memory(), combined_->device_memory(),
                                              size_t(spec.tokens) * size_t(spec.hidden), spec.element(), coll::ReduceOp::kSum,
                                              rank_.stream_ref()));
  return rank_.synchronize();
}

// Experts hand back what they were given, so a sum of n rows is n times the token: exact, since rows have few bits.
uint64_t GatherScatter::count_errors() const {
  const EpSpec& spec = rank_.spec();
  const size_t row_bytes = spec.input_bytes();
  uint64_t num_errors = 0;
  for (int token = 0; token < spec.tokens; token++) {
    std::vector<int> owners;
    for (size_t k = 0; k < size_t(spec.topk); k++) {
      const int64_t id = rank_.plan().experts(rank_.rank())[size_t(token) * size_t(spec.topk) + k];
      const int owner = spec.placement().owner(int(id));
      if (std::find(owners.begin(), owners.end(), owner) == owners.end()) owners.push_back(owner);
    }
    const std::vector<const void*> copies(owners.size(), rank_.tokens().row(size_t(token), row_bytes));
    std::vector<std::byte> expected(row_bytes);
    rows::reduce(spec.element(), expected.data(), copies.data(), nullptr, int(copies.size()), size_t(spec.hidden));
    rows::drain();
    num_errors += std::memcmp(expected.data(), combined_->row(size_t(token), row_bytes), row_bytes) != 0;
  }
  return num_errors;
}

}  // namespace switchyard::bench
