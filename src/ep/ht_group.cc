#include "ep/ht_group.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "base/checked.hpp"
#include "base/digest.hpp"
#include "base/failpoint.hpp"

namespace switchyard::ep {
namespace {

constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 46;
constexpr uint64_t kMaxSlots = uint64_t{1} << 30;  // slots are numbered in 32 bits
constexpr uint64_t kMinChunkBytes = 256 * 1024;    // enough for a network to be busy with, small enough to overlap

uint64_t next_group_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

Status check_ht_config(const GroupConfig& config, const Communicator& comm) {
  if (comm.runtime().device().kind != DeviceKind::kHost) {
    return Status::invalid_usage("high-throughput groups run on CPUs today; on a GPU use NCCL_EP_ALGO_LOW_LATENCY");
  }
  if (config.max_token_bytes % 16 != 0) {
    return Status::invalid_argument(text("max_token_bytes is ", config.max_token_bytes, ", must be a multiple of 16"));
  }
  if (config.num_topk > config.num_experts || config.num_topk > unsigned(kMaxTopk)) {
    return Status::invalid_argument(text("num_topk is ", config.num_topk, ", allowed 0..",
                                         std::min(config.num_experts, unsigned(kMaxTopk))));
  }
  if (config.zero_copy == ZeroCopy::kOn && config.enable_mask) {
    return Status::invalid_usage("zero_copy ON and enable_mask exclude each other in a high-throughput group: a masked rank that "
                                 "writes late must not reach the output");
  }
  const uint32_t budget = config.max_recv_tokens_per_rank;
  if (budget == 0 && config.overflow == Overflow::kDrop) {
    return Status::invalid_usage("overflow policy DROP needs max_recv_tokens_per_rank: without a budget nothing is dropped");
  }
  if (budget != 0 && (budget < config.max_tokens_per_rank || budget > kMaxSlots)) {
    return Status::invalid_argument(text("max_recv_tokens_per_rank is ", budget, ", allowed ", config.max_tokens_per_rank,
                                         " (max_dispatch_tokens_per_rank) .. ", kMaxSlots, ", or 0"));
  }
  return {};
}

}  // namespace

HtGroup::HtGroup(Communicator& comm, const GroupConfig& config)
    : Group(comm, config), launcher_(make_host_ht_launcher(*this, comm.trace())), number_(next_group_number()) {}

HtGroup::~HtGroup() { close_or_log(); }

Result<std::unique_ptr<Group>> HtGroup::create(Communicator& comm, const GroupConfig& config) {
  SWITCHYARD_TRY(check_ht_config(config, comm));
  std::unique_ptr<HtGroup> group(new HtGroup(comm, config));
  SWITCHYARD_TRY(group->make_state());
  return std::unique_ptr<Group>(std::move(group));
}

// Rows that a rank can receive, of whichever handle.
Result<uint64_t> HtGroup::max_slots() const {
  if (!is_eager()) return uint64_t(config_.max_recv_tokens_per_rank);
  const uint64_t local = div_up(config_.num_experts, uint64_t(num_ranks()));
  const uint64_t per_token = std::min<uint64_t>(std::max(1u, config_.num_topk), local);
  const uint64_t padding = config_.num_topk == 0 ? 0 : local * (kMaxEagerAlignment - 1);  // without it there is no expert-major
  const uint64_t slots = uint64_t(num_ranks()) * uint64_t(max_tokens()) * per_token + padding;
  if (slots > kMaxSlots) {
    return Status::invalid_argument(text("a rank could receive ", slots, " rows, allowed are ", kMaxSlots,
                                         ": set max_recv_tokens_per_rank, or lower num_topk or max_dispatch_tokens_per_rank"));
  }
  return slots;
}

Status HtGroup::make_state() {
  const Topology& topology = comm_.topology();
  const int max_local = num_local_experts(0);  // the first ranks hold most
  HtState state{};
  SWITCHYARD_TRY(make_control(view_, HtBoard{max_local}.num_words(), state, sizeof(state)));

  SWITCHYARD_ASSIGN(const uint64_t slots, max_slots());
  HtLayout& layout = view_.layout;
  layout.num_ranks = num_ranks();
  layout.max_tokens = max_tokens();
  layout.spans_nodes = topology.num_nodes() > 1;
  layout.max_slots = slots;
  layout.max_row_bytes = config_.max_token_bytes;
  const uint64_t widest = config_.max_token_bytes + uint64_t(kMaxTopk) * 3 * sizeof(int32_t);
  layout.chunk_bytes = round_up(std::max(kMinChunkBytes, widest), HtLayout::kPage);
  const uint64_t rows = std::max(slots, uint64_t(num_ranks()) * uint64_t(max_tokens()));
  if (rows > kMaxPayloadBytes / 4 / config_.max_token_bytes) {
    return Status::invalid_argument(text("the group's buffers would need more than ", kMaxPayloadBytes,
                                         " bytes; lower max_token_bytes, max_dispatch_tokens_per_rank or the budget"));
  }
  SWITCHYARD_FAILPOINT_TRY("group.before_payload");
  SWITCHYARD_ASSIGN(const Shared payload, share(layout.payload_bytes()));
  SWITCHYARD_FAILPOINT_TRY("group.after_payload");
  view_.payload = payload.window->bases();
  view_.payload_id = payload.window->id();
  view_.windows = comm_.window_table();

  const auto carve_table = [&](const std::vector<int32_t>& table) -> Result<int32_t*> {
    SWITCHYARD_ASSIGN(char* memory, carve(std::max<size_t>(1, table.size()) * sizeof(int32_t)));
    if (!table.empty()) SWITCHYARD_TRY(comm_.runtime().upload(memory, table.data(), table.size() * sizeof(int32_t)));
    return reinterpret_cast<int32_t*>(memory);
  };
  std::vector<int32_t> node_first, rail_sources;
  for (int node = 0; node < topology.num_nodes(); ++node) node_first.push_back(topology.node_first(node));
  node_first.push_back(num_ranks());
  SWITCHYARD_ASSIGN(view_.node_first, carve_table(node_first));
  view_.node = topology.my_node();
  view_.num_nodes = topology.num_nodes();
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (!view_.is_local(peer) && view_.forwarder(peer, view_.node) == rank()) rail_sources.push_back(peer);
  }
  SWITCHYARD_ASSIGN(view_.rail_sources, carve_table(rail_sources));
  view_.num_rail_sources = int(rail_sources.size());
  SWITCHYARD_ASSIGN(char* rail_ends, carve(2 * size_t(num_ranks()) * sizeof(RailEnd)));
  view_.rail_ends = reinterpret_cast<RailEnd*>(rail_ends);
  SWITCHYARD_ASSIGN(view_.numbers, carve_table(std::vector<int32_t>(size_t(HtNumbers{num_ranks(), num_experts()}.num_words()))));
  SWITCHYARD_ASSIGN(char* zeros, carve(config_.max_token_bytes));
  const std::vector<char> nothing(config_.max_token_bytes, 0);
  SWITCHYARD_TRY(comm_.runtime().upload(zeros, nothing.data(), nothing.size()));
  view_.zeros = zeros;
  view_.max_local = max_local;
  view_.budget = is_eager() ? std::numeric_limits<int32_t>::max() : int32_t(config_.max_recv_tokens_per_rank);
  view_.drops = drops();
  return {};
}

RailTraffic HtGroup::rail_traffic() const { return view_.ht_state().rail_traffic; }

HtRecord HtGroup::record_layout(int topk) const {
  return {num_ranks(), max_tokens(), topk, view_.max_local, view_.num_rail_sources};
}

HtOp HtGroup::new_operation(Layout layout, int topk) const {
  HtOp op{};
  op.group = view_;
  op.num_local = num_local_experts(rank());
  op.topk = topk;
  op.expert_major = layout == Layout::kExpertMajor;
  const uint64_t what = digest({number_, uint64_t(topk), uint64_t(layout)});
  op.plan_stamp = int32_t(what >> 32 | 1);
  return op;
}

Status HtGroup::post(const HtOp& op, StreamRef stream) {
  SWITCHYARD_TRY(health());
  SWITCHYARD_FAILPOINT_TRY("ep.before_post");
  SWITCHYARD_TRY(order(stream));
  SWITCHYARD_TRY(launcher_->launch(op, stream));
  num_updates_ += op.kind == HtKind::kRoute;
  return {};
}

Result<HtGroup::Plan> HtGroup::look_at_plan(const HtOp& op) {
  SWITCHYARD_TRY(await_posted());
  SWITCHYARD_TRY(health());
  const HtRecord at = record_layout(op.topk);
  std::vector<int32_t> head(at.entry(HtRecord::kExpert, 0));
  SWITCHYARD_TRY(comm_.runtime().download(head.data(), op.record, head.size() * sizeof(int32_t)));
  if (head[at.valid()] != op.plan_stamp) {
    return Status::invalid_usage(
        "the handle's memory has no routing of this group, layout and num_topk: the last ncclEpUpdateHandle did not succeed, or was "
        "of another handle; call it again");
  }
  return Plan{size_t(head[at.num_slots()]), size_t(head[at.num_tokens()])};
}

Status HtGroup::post_admission(Admission what, uint64_t admit_tag, StreamRef stream) {
  SWITCHYARD_TRY(health());
  SWITCHYARD_TRY(order(stream));
  return launcher_->launch_admission(view_, what, admit_tag, stream);
}

}  // namespace switchyard::ep
