#include "ep/group.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/env.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace switchyard::ep {
namespace {

constexpr uint64_t kDefaultTimeoutNs = 100 * kSecond;

uint64_t resolve_timeout(const GroupConfig& config) {
  if (env().ep_timeout_ms) return *env().ep_timeout_ms * kMillisecond;
  return config.timeout_ns ? config.timeout_ns : kDefaultTimeoutNs;
}

Status check_config(const GroupConfig& config, const Communicator& comm) {
  if (config.algorithm == Algorithm::kHighThroughput) {
    return Status::invalid_usage("high-throughput groups are not there yet; use NCCL_EP_ALGO_LOW_LATENCY");
  }
  if (config.num_experts == 0 || config.num_experts > (1u << 20)) {
    return Status::invalid_argument(text("num_experts is ", config.num_experts, ", allowed 1..", 1u << 20));
  }
  if (config.max_tokens_per_rank == 0 || config.max_tokens_per_rank > (1u << 20)) {
    return Status::invalid_argument(
        text("max_dispatch_tokens_per_rank is ", config.max_tokens_per_rank, ", allowed 1..", 1u << 20));
  }
  if (config.max_token_bytes == 0 || config.max_token_bytes > (1u << 24)) {
    return Status::invalid_argument(text("max_token_bytes is ", config.max_token_bytes, ", allowed 1..", 1u << 24));
  }
  if ((config.alloc.allocate == nullptr) != (config.alloc.free == nullptr)) {
    return Status::invalid_usage("alloc_fn and free_fn must both be given or both be NULL");
  }
  // Expert-major rows are numbered in 32 bits.
  const uint64_t local = div_up(config.num_experts, uint64_t(comm.num_ranks()));
  if (local * uint64_t(comm.num_ranks()) * config.max_tokens_per_rank > (1u << 30)) {
    return Status::invalid_argument(text("experts per rank x ranks x max_dispatch_tokens_per_rank is over ", 1u << 30));
  }
  if (comm.topology().num_nodes() > 1 && comm.runtime().kind() != Runtime::Kind::kHost) {
    return Status::invalid_usage(text("the ranks of this group span ", comm.topology().num_nodes(),
                                      " nodes; kernels on a GPU have no way to the network yet"));
  }
  return {};
}

constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 46;

}  // namespace

Group::Group(Communicator& comm, const GroupConfig& config, uint64_t timeout_ns)
    : comm_(comm),
      config_(config),
      timeout_ns_(timeout_ns),
      placement_(Placement::contiguous(int(config.num_experts), comm.num_ranks())),
      allocator_(comm.runtime(), config.alloc),
      is_verbose_(env().ep_debug),
      launcher_(LlLauncher::create(comm.runtime(), *this, comm.trace())) {}

Result<std::unique_ptr<Group>> Group::create(Communicator& comm, const GroupConfig& config) {
  SWITCHYARD_TRY(check_config(config, comm));
  std::unique_ptr<Group> group(new Group(comm, config, resolve_timeout(config)));
  SWITCHYARD_FAILPOINT_TRY("group.before_agreement");
  SWITCHYARD_TRY(group->agree_on_config());
  SWITCHYARD_FAILPOINT_TRY("group.after_agreement");
  SWITCHYARD_TRY(group->make_state());
  SWITCHYARD_FAILPOINT_TRY("group.after_state");
  if (env().ep_env_verbose && group->rank() == 0) {
    log_line(LogLevel::kInfo, text("environment in effect: ", env().in_effect, "; time limit of a wait: ",
                                   double(group->timeout_ns()) / kMillisecond, " ms"));
  }
  if (config.buffer_bytes > 0) {
    // One share per (bank, rank): the widest message first, what remains is outbox.
    const uint64_t share = config.buffer_bytes / (kNumBanks * uint64_t(group->num_ranks())) / 16 * 16;
    const uint64_t inbox = LlMessage{kMaxTopk, true}.stride(config.max_token_bytes) * config.max_tokens_per_rank;
    if (share <= inbox) {
      return Status::invalid_usage(text("rdma_buffer_size is ", config.buffer_bytes, ", needed are more than ",
                                        inbox * kNumBanks * uint64_t(group->num_ranks()), " bytes; 0 sizes it by need"));
    }
    SWITCHYARD_TRY(group->make_payload(inbox, share - inbox));
  }
  return group;
}

Status Group::agree_on_config() {
  struct Terms {
    uint64_t algorithm, num_experts, max_tokens, max_recv_tokens, max_token_bytes, buffer_bytes, masks;
    bool operator==(const Terms&) const = default;
  };
  const Terms mine{uint64_t(config_.algorithm),    config_.num_experts,  config_.max_tokens_per_rank,
                   config_.max_recv_tokens_per_rank, config_.max_token_bytes, config_.buffer_bytes,
                   uint64_t(config_.enable_mask)};
  SWITCHYARD_ASSIGN(const std::vector<Terms> terms, comm_.exchange(mine));
  for (size_t rank = 0; rank < terms.size(); ++rank) {
    if (terms[rank] == mine) continue;
    return Status::invalid_usage(text("the group's configuration differs between rank ", rank, " and rank ", this->rank(),
                                      ": all ranks must pass the same experts, token limits, bytes and mask setting"));
  }
  return {};
}

Status Group::make_state() {
  Runtime& runtime = comm_.runtime();
  const LlLayout layout{num_ranks(), num_experts(), comm_.topology().num_nodes() > 1, 0, 0};
  SWITCHYARD_ASSIGN(control_memory_, runtime.allocate(layout.control_bytes()));
  SWITCHYARD_ASSIGN(control_window_, comm_.register_window(control_memory_, layout.control_bytes()));
  SWITCHYARD_ASSIGN(void* report, runtime.allocate_shared(sizeof(LlReport)));
  report_ = static_cast<LlReport*>(report);

  const auto carve = [&](size_t num_bytes) -> Result<char*> {
    SWITCHYARD_ASSIGN(void* memory, allocator_.allocate(num_bytes));
    owned_.push_back(memory);
    return static_cast<char*>(memory);
  };
  LlState state{};
  state.tag = state.base = kNumBanks;  // so that tag - kNumBanks never wraps
  SWITCHYARD_ASSIGN(char* state_memory, carve(sizeof(LlState)));
  state_ = reinterpret_cast<LlState*>(state_memory);
  SWITCHYARD_TRY(runtime.upload(state_, &state, sizeof(state)));
  const size_t table_bytes = placement_.owner.size() * sizeof(int32_t);
  SWITCHYARD_ASSIGN(char* owner, carve(table_bytes));
  SWITCHYARD_TRY(runtime.upload(owner, placement_.owner.data(), table_bytes));
  SWITCHYARD_ASSIGN(char* local, carve(table_bytes));
  SWITCHYARD_TRY(runtime.upload(local, placement_.local.data(), table_bytes));
  SWITCHYARD_ASSIGN(char* mask, carve(size_t(num_ranks()) * sizeof(int32_t)));
  const std::vector<int32_t> ones(size_t(num_ranks()), 1);
  SWITCHYARD_TRY(runtime.upload(mask, ones.data(), ones.size() * sizeof(int32_t)));
  const std::vector<uint64_t> zeros(size_t(kNumBanks) * size_t(num_ranks()), 0);
  SWITCHYARD_ASSIGN(char* counters, carve(zeros.size() * sizeof(uint64_t)));
  SWITCHYARD_TRY(runtime.upload(counters, zeros.data(), zeros.size() * sizeof(uint64_t)));
  const LlPlan plan{max_tokens() * kMaxTopk, num_ranks(), num_experts()};
  SWITCHYARD_ASSIGN(char* plans, carve(kNumBanks * plan.num_words() * sizeof(int32_t)));
  const uint64_t scratch_bytes = round_up(config_.max_token_bytes, 64);
  SWITCHYARD_ASSIGN(char* scratch, carve(scratch_bytes * uint64_t(launcher_->num_warps())));

  view_.layout = layout;
  view_.rank = rank();
  view_.num_ranks = num_ranks();
  view_.num_experts = num_experts();
  view_.max_tokens = max_tokens();
  view_.masks_enabled = config_.enable_mask;
  view_.control = control_window_->bases();
  view_.control_id = control_window_->id();
  view_.net = &comm_.net_path();
  view_.owner = reinterpret_cast<int32_t*>(owner);
  view_.local = reinterpret_cast<int32_t*>(local);
  view_.state = state_;
  view_.report = report_;
  view_.mask = reinterpret_cast<int32_t*>(mask);
  view_.counters = reinterpret_cast<uint64_t*>(counters);
  view_.plan = reinterpret_cast<int32_t*>(plans);
  view_.scratch = scratch;
  view_.scratch_bytes = scratch_bytes;
  view_.peer_state = comm_.health().peer_state();
  view_.abort = comm_.health().abort_word();
  view_.timeout_ns = timeout_ns_;
  return {};
}

Status Group::reserve(Layout layout, int topk) {
  const LlMessage message{topk, layout == Layout::kRankMajor};
  const uint64_t inbox = message.stride(config_.max_token_bytes) * config_.max_tokens_per_rank;
  const uint64_t rows = uint64_t(config_.max_tokens_per_rank) * (layout == Layout::kExpertMajor ? uint64_t(topk) : 1);
  const uint64_t outbox = rows * LlMessage::align16(config_.max_token_bytes);
  if (inbox <= view_.layout.inbox_block_bytes && outbox <= view_.layout.outbox_block_bytes) return {};
  if (config_.buffer_bytes > 0) {
    return Status::invalid_usage(
        text("a handle with top-k ", topk, " needs ", (inbox + outbox) * kNumBanks * uint64_t(num_ranks()),
             " bytes, rdma_buffer_size is ", config_.buffer_bytes, "; 0 sizes it by need"));
  }
  if (any_staged()) {
    return Status::invalid_usage("a handle that needs a larger buffer can't be made while a staged operation is open");
  }
  for (const StreamRef stream : streams_) {
    SWITCHYARD_TRY(comm_.runtime().synchronize(stream, drained()));
  }
  return make_payload(std::max(inbox, view_.layout.inbox_block_bytes),
                      std::max(outbox, view_.layout.outbox_block_bytes));
}

Status Group::make_payload(uint64_t inbox_block_bytes, uint64_t outbox_block_bytes) {
  // Far below what would wrap around in the layout's sums, far above any machine.
  const uint64_t most = kMaxPayloadBytes / (kNumBanks * uint64_t(num_ranks()));
  if (inbox_block_bytes > most || outbox_block_bytes > most - inbox_block_bytes) {
    return Status::invalid_argument(text("the group's buffers would need more than ", kMaxPayloadBytes,
                                         " bytes; lower rdma_buffer_size, max_token_bytes or max_dispatch_tokens_per_rank"));
  }
  LlLayout layout = view_.layout;
  layout.inbox_block_bytes = round_up(inbox_block_bytes, 4096);
  layout.outbox_block_bytes = round_up(outbox_block_bytes, 4096);
  SWITCHYARD_FAILPOINT_TRY("group.before_payload");
  SWITCHYARD_ASSIGN(void* memory, comm_.runtime().allocate(layout.payload_bytes()));
  auto window = comm_.register_window(memory, layout.payload_bytes());
  if (!window.ok()) {
    if (const Status freed = comm_.runtime().free(memory); !freed.ok()) log(LogLevel::kWarn, freed.to_string());
    return window.status();
  }
  // Every rank is through with the old window: registration ended in a barrier, and each synchronised before it.
  if (payload_window_ != nullptr) {
    SWITCHYARD_TRY(comm_.deregister_window(payload_window_));
    SWITCHYARD_TRY(comm_.runtime().free(payload_memory_));
  }
  payload_window_ = *window;
  payload_memory_ = memory;
  view_.layout = layout;
  view_.payload = payload_window_->bases();
  view_.payload_id = payload_window_->id();
  SWITCHYARD_FAILPOINT_TRY("group.after_payload");
  return {};
}

Group::~Group() {
  if (const Status closed = close(); !closed.ok()) log(LogLevel::kWarn, "while ending a group: ", closed.to_string());
}

Status Group::close() {
  if (closed_) return {};
  closed_ = true;
  Status first;
  // Goes on after a failure: what can be given back is.
  const auto note = [&](const Status& status) {
    if (first.ok()) first = status;
  };
  for (const StreamRef stream : streams_) {
    if (const Status done = comm_.runtime().synchronize(stream, drained()); failure_.ok()) note(done);
  }
  // Peers may still read this rank's windows: leave together, unless somebody can't come any more.
  if (report_ != nullptr && health().ok() && !any_peer_failed()) note(comm_.barrier());
  for (Window* window : {payload_window_, control_window_}) {
    if (window != nullptr) note(comm_.deregister_window(window));
  }
  for (void* memory : {payload_memory_, control_memory_}) {
    if (memory != nullptr) note(comm_.runtime().free(memory));
  }
  for (void* memory : owned_) allocator_.free(memory);
  if (report_ != nullptr) note(comm_.runtime().free_shared(report_));
  return first;
}

// Operations of a group run in the order in which they were issued, whatever streams they were issued to.
[[gnu::hot]] Status Group::order(StreamRef stream) {
  if (!streams_.empty() && streams_.back() == stream) return {};
  if (!streams_.empty()) SWITCHYARD_TRY(comm_.runtime().order_after(stream, streams_.back()));
  std::erase(streams_, stream);
  streams_.push_back(stream);
  return {};
}

LlOp Group::new_operation() const {
  LlOp op{};
  op.group = view_;
  op.part = LlPart::kBoth;
  return op;
}

// What a post runs through is marked hot, so that the linker puts it side by side: from a cold cache that saves a fifth of
// the call (docs/figures.md).
[[gnu::hot]] Status Group::post(const LlOp& op, StreamRef stream) {
  SWITCHYARD_TRY(health());
  const bool takes_bank = op.part != LlPart::kReceive;
  if (takes_bank) SWITCHYARD_TRY(check_next_bank());
  SWITCHYARD_FAILPOINT_TRY("ep.before_post");
  SWITCHYARD_TRY(order(stream));
  SWITCHYARD_TRY(launcher_->launch(op, stream));
  num_issued_ += takes_bank;
  return {};
}

// An open operation keeps its bank until its receive half has run. Whoever needs that bank would wait for a receive half
// that can only be posted behind it: for ever.
[[gnu::hot]] Status Group::check_next_bank() const {
  for (const uint64_t issued : staged_) {
    if (issued == 0 || num_issued_ + 1 < issued + kNumBanks) continue;
    return Status::invalid_usage(text("the last but one operation of this group was staged and is still open; call "
                                      "ncclEpComplete for it before a third operation"));
  }
  return {};
}

bool Group::any_staged() const {
  return std::any_of(staged_.begin(), staged_.end(), [](uint64_t issued) { return issued != 0; });
}

Result<int> Group::open_staged() {
  for (int slot = 0; slot < kMaxStaged; ++slot) {
    if (staged_[size_t(slot)] != 0) continue;
    staged_[size_t(slot)] = num_issued_ + 1;
    return slot;
  }
  return Status::invalid_usage(text("two staged operations of this group are open; call ncclEpComplete first"));
}

void Group::close_staged(int slot) { staged_[size_t(slot)] = 0; }

void Group::drain() const {
  for (const StreamRef stream : streams_) (void)comm_.runtime().synchronize(stream, drained());
}

void Group::forget_staged(int slot) {
  launcher_->forget(slot);
  close_staged(slot);
}

[[gnu::hot]] Status Group::health() {
  if (comm_.aborted()) return comm_.async_error();
  // A host stream calls operation_failed() itself; a CUDA stream can't, so its kernels' report is looked at here.
  if (std::atomic_ref(report_->failure).load(std::memory_order_relaxed) != 0) return operation_failed();
  const std::lock_guard lock(mutex_);
  return failure_;
}

Status Group::operation_failed() {
  const uint64_t failure = std::atomic_ref(report_->failure).load(std::memory_order_relaxed);
  const Status status = describe_failure(failure);
  comm_.report_async_error(status);
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) {
    comm_.trace().record(TracePhase::kError, TraceEdge::kInstant, uint16_t(failure >> kEpochBits), uint32_t(failure),
                         failure >> 56);
    failure_ = status;
  }
  return failure_;
}

// Routing that makes no sense is the caller's to know; a missing peer is told through masks and async_error().
Status Group::operation_faulty() {
  const uint64_t word = std::atomic_ref(report_->fault).load(std::memory_order_relaxed);
  const auto phase = LlPhase(word >> 56);
  if (phase != LlPhase::kBadRouting && phase != LlPhase::kExpertFull) return {};
  std::atomic_ref(report_->fault).store(0, std::memory_order_relaxed);
  const uint64_t none = 0;  // so that the next fault counts as the first again
  SWITCHYARD_TRY(comm_.runtime().upload(&state_->noted.fault, &none, sizeof(none)));
  return describe_failure(word);
}

Result<uint64_t> Group::told_by(int peer, uint64_t LlLine::* word) const {
  const auto* line = reinterpret_cast<const LlLine*>(control_window_->local() + view_.layout.line(0, peer));
  uint64_t value = 0;
  SWITCHYARD_TRY(comm_.runtime().download(&value, &(line->*word), sizeof(value)));
  return value;
}

bool Group::any_peer_failed() const {
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const Result<uint64_t> failed = told_by(peer, &LlLine::failed);
    if (failed.ok() && failed.value() != 0) return true;
  }
  return false;
}

// REQUIRES  the group's streams are idle.
Result<LlState> Group::read_state() const {
  LlState state;
  SWITCHYARD_TRY(comm_.runtime().download(&state, state_, sizeof(state)));
  return state;
}

Status Group::describe_failure(uint64_t word) const {
  const auto phase = LlPhase(word >> 56);
  const uint64_t peer = word >> kEpochBits & 0xffff;
  const std::string who = text("rank ", rank(), ", epoch ", word & kEpochMask, ": rank ", peer);
  const std::string limit = text(" within ", double(timeout_ns_) / kMillisecond, " ms");
  if (comm_.aborted()) return Status::remote(text("rank ", rank(), ": aborted while waiting for rank ", peer));
  const std::string gone = comm_.health().gone(int(peer)) ? text(" (", comm_.why_gone(int(peer)), ")") : "";
  switch (phase) {
    case LlPhase::kBankFree:
      return Status::remote(who + " has not consumed the epoch before the last" + limit + gone);
    case LlPhase::kConsent:
      return Status::remote(who + " has not reached this dispatch, or its output is not in a window" + limit + gone);
    case LlPhase::kDispatchRows: return Status::remote(who + "'s dispatch rows did not arrive" + limit + gone);
    case LlPhase::kCombineRows: return Status::remote(who + "'s expert results did not arrive" + limit + gone);
    case LlPhase::kReaders: return Status::remote(who + " did not finish reading this rank's results" + limit + gone);
    case LlPhase::kOvertaken: return Status::remote(who + " went on without this rank");
    case LlPhase::kOtherOperation:
      return Status::remote(who + " does another operation than this rank, combines another dispatch, or has other row"
                                  " sizes, top-k or layout: every rank must make the same calls in the same order");
    case LlPhase::kNetwork: {
      const Status network = comm_.net() == nullptr ? Status() : comm_.net()->error();
      return Status::remote(who + " can't be reached over the network any more" + gone +
                            (network.ok() ? "" : ": " + network.message()));
    }
    case LlPhase::kAborted: return Status::remote(who + " aborted");
    case LlPhase::kWindowMismatch: return Status::remote(who + " uses another window for this tensor");
    case LlPhase::kBadMessage: return Status::remote(who + " sent a count that is out of range");
    case LlPhase::kBadRouting:
      return Status::invalid_argument(text("rank ", rank(), ": topk_idx holds an id outside -1..", num_experts() - 1));
    case LlPhase::kExpertFull:
      return Status::invalid_argument(who + " lists an expert more often than it has rows; those rows were dropped");
    case LlPhase::kNone: break;
  }
  return Status::internal(text("unknown failure ", word));
}

size_t Group::memory_bytes() const {
  // Windows are sparse files: count the blocks that were ever touched.
  size_t total = 0;
  for (const void* memory : {control_memory_, payload_memory_}) {
    if (memory == nullptr) continue;
    const auto found = comm_.runtime().find(memory);
    struct stat info {};
    if (found && found->fd >= 0 && fstat(found->fd, &info) == 0) total += size_t(info.st_blocks) * 512;
    else if (found) total += found->num_bytes;
  }
  return total;
}

}  // namespace switchyard::ep
