#include "bench/ep/bound_run.hpp"

#include <algorithm>
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
  // Over the network low-latency rows go through the group's own buffers, windows or not.
  const EpSpec& spec = rank.spec();
  SWITCHYARD_TRY(bound.list_rows(rank, spec.zero_copy && (spec.nodes == 1 || spec.high_throughput())));
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

// Rows on the way are numbered as they are met, the same in both passes: first they are counted, then they have memory.
Status EpBound::list_rows(const EpRank& rank, bool windows) {
  const EpSpec& spec = rank.spec();
  const EpPlan& plan = rank.plan();
  const int me = rank.rank();
  const size_t arriving_bytes = spec.arriving_bytes(), scale_bytes = spec.scale_bytes();
  const size_t contribution_bytes = spec.contribution_bytes(), result_bytes = spec.result_bytes();
  // Wide enough for a row of either direction.
  const size_t stride = round_up(std::max(arriving_bytes + scale_bytes, result_bytes), 64);
  for (const bool counting : {true, false}) {
    size_t num_out = 0, num_in = 0;
    const auto out_row = [&] { return counting ? nullptr : sent_->row(num_out, stride); };
    const auto in_row = [&] { return counting ? nullptr : received_->row(num_in, stride); };
    const auto deliver = [&](const std::byte* row, int owner, size_t slot) {
      const auto place = [&](const Buffer& buffer, size_t bytes) {
        return owner == me ? buffer.row(slot, bytes) : buffer.row_at(owner, slot, bytes);
      };
      dispatch_moves_.push_back({row, place(rank.arrived(), arriving_bytes), arriving_bytes});
      if (scale_bytes > 0) dispatch_moves_.push_back({row, place(rank.arrived_scales(), scale_bytes), scale_bytes});
    };
    dispatch_moves_.clear();
    combine_moves_.clear();
    combine_reads_.clear();
    combine_writes_.clear();
    int source = -1, token = -1;
    std::vector<std::pair<int, const std::byte*>> crossed;  // other nodes of the token, and its row there if I forward it
    for (const RowRoute& route : plan.rows()) {
      if (route.source != source || route.token != token) crossed.clear();
      source = route.source, token = route.token;
      const std::byte* row = rank.tokens().row(size_t(token), spec.input_bytes());
      const int node = plan.node_of(route.owner);
      const int writer = spec.high_throughput() ? plan.forwarder(source, node) : source;
      if (writer != source) {
        auto found = std::find_if(crossed.begin(), crossed.end(), [&](const auto& one) { return one.first == node; });
        if (found == crossed.end()) {
          if (source == me) {
            dispatch_moves_.push_back({row, out_row(), arriving_bytes});
            combine_reads_.push_back({out_row(), contribution_bytes});
            num_out++;
          }
          if (writer == me) {
            combine_writes_.push_back({in_row(), result_bytes});
            crossed.emplace_back(node, in_row());
            num_in++;
          } else {
            crossed.emplace_back(node, nullptr);
          }
          found = crossed.end() - 1;
        }
        row = found->second;
      }
      const bool direct = windows || route.owner == writer;  // the writer reaches the output
      if (writer == me && direct) {
        deliver(row, route.owner, route.row);
        combine_reads_.push_back({route.owner == me ? rank.results().row(route.row, result_bytes)
                                                    : rank.results().row_at(route.owner, route.row, result_bytes),
                                  contribution_bytes});
      } else if (writer == me) {
        dispatch_moves_.push_back({row, out_row(), arriving_bytes + scale_bytes});
        combine_reads_.push_back({out_row(), contribution_bytes});
        num_out++;
      } else if (route.owner == me && !direct) {
        deliver(in_row(), me, route.row);
        combine_moves_.push_back({rank.results().row(route.row, result_bytes), in_row(), contribution_bytes});
        num_in++;
      }
    }
    if (!counting) break;
    SWITCHYARD_ASSIGN(sent_, make_rows(rank.comm(), num_out, stride));
    SWITCHYARD_ASSIGN(received_, make_rows(rank.comm(), num_in, stride));
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
