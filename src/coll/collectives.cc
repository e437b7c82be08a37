#include "coll/collectives.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/checked.hpp"
#include "base/digest.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "coll/exchange.hpp"
#include "coll/pairs.hpp"
#include "coll/reduce.hpp"
#include "platform/host/stream.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::coll {
namespace {

using HostContext = Context<HostPlatform>;

enum Operation : uint64_t { kAllGather = 1, kBroadcast, kAllReduce, kReduceScatter, kAllToAll, kAllToAllV };

// What a rank stages at a time. Large, to make barriers and messages cheap: with slices of 64 KiB a reduce-scatter
// takes half as long again as with these, and larger ones gain nothing (docs/collectives.md).
constexpr uint64_t kSliceBytes = 256 << 10, kMinStageBytes = 1 << 20, kMaxStageBytes = 4 << 20;
constexpr uint64_t kMinSliceBytes = 4 << 10;
// Of all messages of shares that a rank may have to hold.
constexpr uint64_t kInboxBytes = 32 << 20;
// The same of sends to one rank.
constexpr uint64_t kPairBytes = 128 << 10;

Layout layout_of(const Topology& topology, int num_ranks, uint64_t stage_bytes) {
  if (stage_bytes == 0) stage_bytes = std::clamp(kSliceBytes * uint64_t(num_ranks), kMinStageBytes, kMaxStageBytes);
  Layout layout{num_ranks, topology.num_nodes(), 1, stage_bytes, std::min(stage_bytes, kPairBytes)};
  int largest = 1, smallest = num_ranks;
  for (int node = 0; node < topology.num_nodes(); ++node) {
    largest = std::max(largest, topology.node_size(node));
    smallest = std::min(smallest, topology.node_size(node));
  }
  layout.max_senders = int(div_up(uint64_t(largest), uint64_t(smallest)));
  if (layout.num_nodes > 1) {
    const uint64_t num_messages = uint64_t(layout.num_nodes) * uint64_t(layout.max_senders) * kDepth;
    layout.stage_bytes = std::min(layout.stage_bytes, kInboxBytes / num_messages);
  }
  layout.stage_bytes = std::max(layout.stage_bytes, kMinSliceBytes * uint64_t(num_ranks));
  layout.stage_bytes = round_up(layout.stage_bytes, Layout::kLine);
  const uint64_t even_bytes = kInboxBytes / (uint64_t(num_ranks) * kDepth);
  layout.pair_bytes = round_up(std::max(kMinSliceBytes, std::min(layout.pair_bytes, even_bytes)), Layout::kLine);
  return layout;
}

Status check_reduction(const void* in, const void* out, DType dtype, ReduceOp op) {
  if (int(op) < int(ReduceOp::kSum) || int(op) > int(ReduceOp::kAvg)) {
    return Status::invalid_argument(text("unknown reduction ", int(op)));
  }
  if (dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2 || dtype == DType::kFloat4x2) {
    return Status::invalid_argument(text("reductions of ", dtype_name(dtype), " are not supported"));
  }
  for (const void* buffer : {in, out}) {
    if (reinterpret_cast<uintptr_t>(buffer) % dtype_bytes(dtype) == 0) continue;
    return Status::invalid_argument(text("buffer ", buffer, " is not aligned to elements of ", dtype_name(dtype)));
  }
  return {};
}

// The tables of one all-to-all-v, in bytes.
struct PairTables {
  std::vector<Extent> sent, expected;
  std::vector<Announcement> told, heard;
};

Status disagreement(const PairTables& tables, int rank, size_t width) {
  for (size_t sender = 0; sender < tables.heard.size(); ++sender) {
    if (tables.heard[sender].to_you == tables.expected[sender].num_bytes) continue;
    return Status::invalid_usage(text("all-to-all-v: rank ", sender, " sends rank ", rank, " ",
                                      tables.heard[sender].to_you / width, " elements, but ",
                                      tables.expected[sender].num_bytes / width, " are expected"));
  }
  return {};
}

Result<std::vector<Extent>> in_bytes(const char* what, const void* buffer, std::span<const Part> parts, int num_ranks,
                                     size_t width) {
  if (parts.size() != size_t(num_ranks)) {
    return Status::invalid_argument(
        text(what, " has ", parts.size(), " parts, needed is one for each of ", num_ranks, " ranks"));
  }
  std::vector<Extent> extents;
  for (const Part& part : parts) {
    const auto offset = checked_mul(part.offset, width), num_bytes = checked_mul(part.num_elements, width);
    if (!offset || !num_bytes || !checked_add(*offset, *num_bytes)) {
      return Status::invalid_argument(text("the part for rank ", extents.size(), " in ", what, " is too large"));
    }
    if (*num_bytes > 0 && buffer == nullptr) return Status::invalid_argument(text(what, " is NULL"));
    extents.push_back({*offset, *num_bytes});
  }
  return extents;
}

const char* in_words(Waiting waiting) {
  switch (waiting) {
    case Waiting::kNone: break;
    case Waiting::kNode: return "to come to the next step";
    case Waiting::kArrival: return "to send its part";
    case Waiting::kRoom: return "to read what it was sent";
    case Waiting::kNetwork: return "to be reached by the network";
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<Collectives>> Collectives::create(Communicator& comm, const CollectivesOptions& options) {
  if (comm.runtime().device().kind != DeviceKind::kHost) {
    return Status::invalid_usage("collectives run on CPUs only; on GPUs use NCCL's");
  }
  std::unique_ptr<Collectives> made(new Collectives(comm));
  View& view = made->view_;
  view.layout = layout_of(comm.topology(), comm.num_ranks(), options.stage_bytes);
  SWITCHYARD_ASSIGN(view.comm, comm.create_device_comm({.num_contexts = kNumContexts,
                                                        .num_signals = view.layout.num_signals(),
                                                        .num_counters = kNumBanks,
                                                        .num_barriers = 1}));
  SWITCHYARD_ASSIGN(made->memory_, comm.runtime().allocate(view.layout.num_bytes()));
  SWITCHYARD_ASSIGN(made->window_, comm.register_window(made->memory_, view.layout.num_bytes()));
  view.window = comm.view(*made->window_);

  const auto num_ranks = size_t(comm.num_ranks());
  const size_t words_bytes = view.layout.num_words() * sizeof(uint64_t);
  SWITCHYARD_ASSIGN(made->own_, comm.runtime().allocate(words_bytes + num_ranks * (sizeof(char*) + sizeof(float))));
  view.words = static_cast<uint64_t*>(made->own_);
  view.sources = reinterpret_cast<const char**>(view.words + view.layout.num_words());
  auto* const ones = reinterpret_cast<float*>(view.sources + num_ranks);
  std::fill(ones, ones + num_ranks, 1.0f);
  view.ones = ones;
  made->pairs_view_ = view;
  // In a collective everybody depends on everybody, through others too: a rank may wait for one that waits for the dead.
  view.comm.abort = comm.health().incomplete_word();
  return made;
}

Collectives::~Collectives() {
  const auto warn = [](const Status& status) {
    if (!status.ok()) log(LogLevel::kWarn, "while collectives end: ", status.to_string());
  };
  const bool peers_are_done = window_ != nullptr && first_failure().ok();
  const Status gone = window_ == nullptr ? Status() : comm_.deregister_window(window_);
  warn(gone);
  if (memory_ != nullptr) warn(comm_.release(memory_, peers_are_done && gone.ok()));
  if (own_ != nullptr) warn(comm_.runtime().free(own_));
}

Status Collectives::first_failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Collectives::end(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = why;
}

Status Collectives::describe(const char* name, const Failure& failure) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the release in Health::raise()
  // An abort takes the network down, too.
  if (comm_.aborted()) return Status::remote(text(name, ": the communicator was aborted"));
  const std::string who = failure.rank < 0 ? "a rank of another node" : text("rank ", failure.rank);
  const std::string waited = text(name, ": rank ", comm_.rank(), " waited for ", who, " ", in_words(failure.waiting));
  const std::string gone = who_is_gone(), beside = gone.empty() ? "" : "; " + gone;
  if (failure.status == GinStatus::kTimeout) {
    return Status::remote(text(waited, " for more than ", view_.comm.timeout_ns / kMillisecond, " ms", beside));
  }
  if (failure.status == GinStatus::kFailed || gone.empty()) {
    const NetEndpoint* net = comm_.net();
    Status lost = comm_.net_loss();
    if (lost.ok() && net != nullptr) lost = failure.rank < 0 ? net->error() : net->why_lost(failure.rank);
    return Status::remote(
        text(waited, ", but ", lost.ok() ? "the network does not reach it any more" : lost.message(), beside));
  }
  return Status::remote(text(waited, ", but ", gone));
}

// All of them: the one that was waited for may have left because of another.
std::string Collectives::who_is_gone() const {
  std::string all;
  for (int rank = 0; rank < comm_.num_ranks(); ++rank) {
    if (comm_.health().gone(rank)) all += text(all.empty() ? "" : "; ", comm_.why_gone(rank));
  }
  return all;
}

// On one node the ranks all know, and go on with the next operation; between nodes something may be on its way already.
Status Collectives::describe_disagreement(const char* name, int rank) const {
  return Status::invalid_usage(text(name, ": rank ", rank, " calls another collective than rank ", comm_.rank(),
                                    ", or the same one with another count, type, reduction or root: nothing was exchanged, results are not to be used"));
}

// Kernel: Status(HostContext&); the Status is of what ends nothing, the context has what does. `what`: all that ranks must agree on.
template <class Kernel>
Status Collectives::post(const View& view, const char* name, std::initializer_list<uint64_t> what, StreamRef stream,
                         Kernel kernel) {
  SWITCHYARD_TRY(first_failure());
  if (comm_.aborted()) return Status::remote(text(name, ": the communicator was aborted"));
  SWITCHYARD_TRY(comm_.runtime().order_after(stream, last_stream_));
  SWITCHYARD_TRY(
      static_cast<Stream*>(stream.handle)->post([this, &view, name, about = digest(what), kernel = std::move(kernel)](Stream& self) mutable {
        if (const Status earlier = first_failure(); !earlier.ok()) return self.fail(earlier);
        set_failpoint_rank(comm_.rank());
        const HostPlatform platform;
        HostContext context(platform, view, about);
        const Status fault = kernel(context);
        const bool disagrees = context.disagrees() >= 0;
        if (disagrees && context.one_node()) {
          self.fail(describe_disagreement(name, context.disagrees()));
        } else if (disagrees || context.failure().status != GinStatus::kOk) {
          const Status why = disagrees ? describe_disagreement(name, context.disagrees()) : describe(name, context.failure());
          end(why);
          comm_.report_async_error(why);
          self.fail(why);
        } else if (!fault.ok()) {
          self.fail(fault);
        }
      }));
  last_stream_ = stream;
  return {};
}

Status Collectives::check(const void* in, const void* out, size_t num_elements, DType dtype) const {
  if (dtype_bytes(dtype) == 0) return Status::invalid_argument(text("unknown datatype ", int(dtype)));
  if (num_elements > 0 && (in == nullptr || out == nullptr)) return Status::invalid_argument("a buffer is NULL");
  if (!checked_mul(num_elements, dtype_bytes(dtype) * size_t(comm_.num_ranks()))) {
    return Status::invalid_argument(text("count ", num_elements, " is too large"));
  }
  return {};
}

Status Collectives::all_gather(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream) {
  SWITCHYARD_TRY(check(in, out, num_elements, dtype));
  return post(view_, "all-gather", {kAllGather, num_elements, uint64_t(dtype)}, stream, [=](HostContext& c) {
    coll::all_gather(c, static_cast<const char*>(in), static_cast<char*>(out), num_elements * dtype_bytes(dtype));
    return Status();
  });
}

Status Collectives::broadcast(const void* in, void* out, size_t num_elements, DType dtype, int root, StreamRef stream) {
  if (root < 0 || root >= comm_.num_ranks()) {
    return Status::invalid_argument(text("root is ", root, ", allowed 0..", comm_.num_ranks() - 1));
  }
  SWITCHYARD_TRY(check(comm_.rank() == root ? in : out, out, num_elements, dtype));
  return post(view_, "broadcast", {kBroadcast, num_elements, uint64_t(dtype), uint64_t(root)}, stream, [=](HostContext& c) {
    coll::broadcast(c, static_cast<const char*>(in), static_cast<char*>(out), num_elements * dtype_bytes(dtype), root);
    return Status();
  });
}

Status Collectives::all_reduce(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op,
                               StreamRef stream) {
  SWITCHYARD_TRY(check(in, out, num_elements, dtype));
  SWITCHYARD_TRY(check_reduction(in, out, dtype, op));
  return post(view_, "all-reduce", {kAllReduce, num_elements, uint64_t(dtype), uint64_t(op)}, stream, [=](HostContext& c) {
    coll::all_reduce(c, static_cast<const char*>(in), static_cast<char*>(out), num_elements, {dtype, op, 1});
    return Status();
  });
}

Status Collectives::reduce_scatter(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op,
                                   StreamRef stream) {
  SWITCHYARD_TRY(check(in, out, num_elements, dtype));
  SWITCHYARD_TRY(check_reduction(in, out, dtype, op));
  return post(view_, "reduce-scatter", {kReduceScatter, num_elements, uint64_t(dtype), uint64_t(op)}, stream, [=](HostContext& c) {
    coll::reduce_scatter(c, static_cast<const char*>(in), static_cast<char*>(out), num_elements, {dtype, op, 1});
    return Status();
  });
}

Status Collectives::all_to_all(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream) {
  SWITCHYARD_TRY(check(in, out, num_elements, dtype));
  return post(view_, "all-to-all", {kAllToAll, num_elements, uint64_t(dtype)}, stream, [=](HostContext& c) {
    const uint64_t num_bytes = num_elements * dtype_bytes(dtype);
    coll::all_to_all(c, static_cast<const char*>(in), static_cast<char*>(out), num_bytes, EvenPlan{num_bytes});
    return Status();
  });
}

Status Collectives::all_to_all_v(const void* in, std::span<const Part> sent, void* out, std::span<const Part> received,
                                 DType dtype, StreamRef stream) {
  SWITCHYARD_TRY(check(in, out, 0, dtype));
  const auto num_ranks = size_t(comm_.num_ranks());
  const size_t width = dtype_bytes(dtype);
  auto tables = std::make_unique<PairTables>();
  SWITCHYARD_ASSIGN(tables->sent, in_bytes("the send buffer", in, sent, comm_.num_ranks(), width));
  SWITCHYARD_ASSIGN(tables->expected, in_bytes("the receive buffer", out, received, comm_.num_ranks(), width));
  tables->told.resize(num_ranks);
  tables->heard.resize(num_ranks);
  const size_t mine = size_t(comm_.rank());
  if (sent[mine].num_elements != received[mine].num_elements) {
    return Status::invalid_argument(text("rank ", mine, " sends itself ", sent[mine].num_elements,
                                         " elements and expects ", received[mine].num_elements));
  }
  return post(view_, "all-to-all-v", {kAllToAllV, uint64_t(dtype)}, stream, [=, tables = std::move(tables)](HostContext& c) {
    const bool ran = coll::all_to_all_v(c, static_cast<const char*>(in), static_cast<char*>(out), tables->sent.data(),
                                        tables->expected.data(), tables->told.data(), tables->heard.data());
    return ran ? disagreement(*tables, c.rank(), width) : Status();
  });
}

Status Collectives::check(const PairCall& call) const {
  if (call.peer < 0 || call.peer >= comm_.num_ranks()) {
    return Status::invalid_argument(text("peer is ", call.peer, ", allowed 0..", comm_.num_ranks() - 1));
  }
  return check(call.buffer, call.buffer, call.num_elements, call.dtype);
}

Status Collectives::send_and_receive(std::span<const PairCall> calls, StreamRef stream) {
  auto transfers = std::make_unique<std::vector<Transfer>>();
  for (const PairCall& call : calls) {
    SWITCHYARD_TRY(check(call));
    const uint64_t num_bytes = call.num_elements * dtype_bytes(call.dtype);
    if (num_bytes > 0) {
      transfers->push_back({static_cast<char*>(call.buffer), num_bytes, call.peer, call.is_send ? 1 : 0});
    }
  }
  // Beginning with the next rank, so that not all send to the same one at first.
  const auto turn = [&](const Transfer& transfer) {
    const int distance = (transfer.peer - comm_.rank() + comm_.num_ranks()) % comm_.num_ranks();
    return 2 * distance + transfer.is_send;
  };
  std::stable_sort(transfers->begin(), transfers->end(),
                   [&](const Transfer& a, const Transfer& b) { return turn(a) < turn(b); });
  return post(pairs_view_, "send/receive", {}, stream, [transfers = std::move(transfers)](HostContext& c) {
    if (!PairTransfers<HostPlatform>(c, transfers->data(), int(transfers->size())).run()) return Status();
    for (const Transfer& transfer : *transfers) {
      if (transfer.is_send || transfer.num_coming == transfer.num_bytes) continue;
      return Status::invalid_usage(text("rank ", transfer.peer, " sends rank ", c.rank(), " ", transfer.num_coming,
                                        " bytes, but ", transfer.num_bytes, " are expected"));
    }
    return Status();
  });
}

}  // namespace switchyard::coll
