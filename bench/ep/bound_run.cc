#include "bench/ep/bound_run.hpp"

#include <cstring>

#include "base/checked.hpp"

namespace switchyard::bench {

namespace {

Result<std::unique_ptr<Buffer>> make_rows(Communicator& comm, size_t num_rows, size_t row_bytes) {
  SWITCHYARD_ASSIGN(std::unique_ptr<Buffer> buffer, Buffer::create(comm, num_rows * row_bytes));
  std::memset(buffer->span().data(), 1, buffer->span().size());  // else the first pass would pay for the pages
  return buffer;
}

template <class Row>
size_t num_bytes(const std::vector<Row>& rows) {
  size_t sum = 0;
  for (const Row& row : rows) sum += row.bytes;
  return sum;
}

}  // namespace

Result<EpBound> EpBound::create(const EpRank& rank) {
  EpBound bound(rank);
  // Over the network rows go through the group's own buffers, windows or not.
  if (rank.spec().zero_copy && rank.spec().nodes == 1) bound.list_windows(rank);
  else SWITCHYARD_TRY(bound.list_plain(rank));
  const size_t result_bytes = rank.spec().result_bytes();
  for (int token = 0; token < rank.spec().tokens; token++) {
    bound.combine_writes_.push_back({rank.combined().row(size_t(token), result_bytes), result_bytes});
  }
  if (bound.on_device()) SWITCHYARD_TRY(bound.prepare_device(rank));
  return bound;
}

Status EpBound::dispatch(Method method) const {
  if (on_device()) return copy_on_device(num_bytes(dispatch_moves_));
  copy_list_ns(dispatch_moves_, method);
  return {};
}

Status EpBound::combine(Method method) const {
  // A copy reads and writes each byte; a reduction reads more than it writes.
  if (on_device()) {
    return copy_on_device(num_bytes(combine_moves_) + (num_bytes(combine_reads_) + num_bytes(combine_writes_)) / 2);
  }
  copy_list_ns(combine_moves_, method);
  read_list_ns(combine_reads_, combine_writes_, method);
  return {};
}

Status EpBound::prepare_device(const EpRank& rank) {
  const size_t most = std::max(num_bytes(dispatch_moves_), num_bytes(combine_moves_) + num_bytes(combine_reads_) +
                                                               num_bytes(combine_writes_));
  SWITCHYARD_ASSIGN(sent_, Buffer::create(rank.comm(), most));
  SWITCHYARD_ASSIGN(received_, Buffer::create(rank.comm(), most));
  return {};
}

Status EpBound::copy_on_device(size_t num_bytes) const {
  SWITCHYARD_TRY(runtime_.copy_async(received_->device_memory(), sent_->device_memory(), num_bytes, stream_));
  return runtime_.synchronize(stream_, Deadline::after_ns(10 * kSecond));
}

void EpBound::list_windows(const EpRank& rank) {
  const EpSpec& spec = rank.spec();
  const size_t arriving_bytes = spec.arriving_bytes(), scale_bytes = spec.scale_bytes();
  for (const RowRoute& route : rank.plan().rows()) {
    if (route.source != rank.rank()) continue;
    const std::byte* token = rank.tokens().row(size_t(route.token), spec.input_bytes());
    dispatch_moves_.push_back({token, rank.arrived().row_at(route.owner, route.row, arriving_bytes), arriving_bytes});
    if (scale_bytes > 0) {
      dispatch_moves_.push_back(
          {token, rank.arrived_scales().row_at(route.owner, route.row, scale_bytes), scale_bytes});
    }
    combine_reads_.push_back(
        {rank.results().row_at(route.owner, route.row, spec.result_bytes()), spec.contribution_bytes()});
  }
}

Status EpBound::list_plain(const EpRank& rank) {
  const EpSpec& spec = rank.spec();
  const size_t arriving_bytes = spec.arriving_bytes(), scale_bytes = spec.scale_bytes();
  const size_t contribution_bytes = spec.contribution_bytes();
  // Wide enough for a row of either direction.
  const size_t stride = round_up(std::max(arriving_bytes + scale_bytes, spec.result_bytes()), 64);
  size_t num_out = 0, num_in = 0;
  for (const RowRoute& route : rank.plan().rows()) {
    num_out += route.source == rank.rank();
    num_in += route.owner == rank.rank();
  }
  SWITCHYARD_ASSIGN(sent_, make_rows(rank.comm(), num_out, stride));
  SWITCHYARD_ASSIGN(received_, make_rows(rank.comm(), num_in, stride));

  size_t out_idx = 0, in_idx = 0;
  for (const RowRoute& route : rank.plan().rows()) {
    const bool mine = route.source == rank.rank(), here = route.owner == rank.rank();
    const std::byte* token = rank.tokens().row(size_t(route.token), spec.input_bytes());
    if (mine) {
      std::byte* on_the_way = sent_->row(out_idx++, stride);
      if (!here) dispatch_moves_.push_back({token, on_the_way, arriving_bytes + scale_bytes});
      const std::byte* result = here ? rank.results().row(route.row, spec.result_bytes()) : on_the_way;
      combine_reads_.push_back({result, contribution_bytes});
    }
    if (here) {
      std::byte* on_the_way = received_->row(in_idx++, stride);
      const std::byte* arrived = mine ? token : on_the_way;
      dispatch_moves_.push_back({arrived, rank.arrived().row(route.row, arriving_bytes), arriving_bytes});
      if (scale_bytes > 0) {
        dispatch_moves_.push_back({arrived, rank.arrived_scales().row(route.row, scale_bytes), scale_bytes});
      }
      if (!mine) {
        combine_moves_.push_back({rank.results().row(route.row, spec.result_bytes()), on_the_way, contribution_bytes});
      }
    }
  }
  return {};
}

std::vector<RowPush> EpBound::pushes() const {
  std::vector<RowPush> pushes;
  for (const RowMove& move : dispatch_moves_) {
    if (pushes.empty() || pushes.back().src != move.src) pushes.push_back({move.src, {}});
    pushes.back().dsts.push_back(move.dst);
  }
  return pushes;
}

}  // namespace switchyard::bench
