#include "ep/group.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "base/env.hpp"
#include "base/failpoint.hpp"
#include "base/guarded.hpp"
#include "base/log.hpp"
#include "ep/ht_group.hpp"
#include "ep/ll_group.hpp"

namespace switchyard::ep {
namespace {

constexpr uint64_t kDefaultTimeoutNs = 100 * kSecond;

uint64_t resolve_timeout(const GroupConfig& config) {
  if (env().ep_timeout_ms) return *env().ep_timeout_ms * kMillisecond;
  return config.timeout_ns ? config.timeout_ns : kDefaultTimeoutNs;
}

Status check_config(const GroupConfig& config, const Communicator& comm) {
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
  if (comm.topology().num_nodes() > 1 && comm.runtime().device().kind != DeviceKind::kHost) {
    return Status::invalid_usage(text("the ranks of this group span ", comm.topology().num_nodes(),
                                      " nodes; kernels on a GPU have no way to the network yet"));
  }
  return {};
}

}  // namespace

Group::Group(Communicator& comm, const GroupConfig& config)
    : comm_(comm),
      config_(config),
      timeout_ns_(resolve_timeout(config)),
      placement_(Placement::contiguous(int(config.num_experts), comm.num_ranks())),
      allocator_(comm.runtime(), config.alloc),
      is_verbose_(env().ep_debug),
      abort_(comm.health().abort_word()) {
  retired_.reserve(kMaxRetired);
}

Result<std::unique_ptr<Group>> Group::create(Communicator& comm, const GroupConfig& config) {
  SWITCHYARD_TRY(check_config(config, comm));
  if (config.algorithm == Algorithm::kHighThroughput) return HtGroup::create(comm, config);
  return LlGroup::create(comm, config);
}

Status Group::agree_on_config() {
  constexpr std::array kNames = {"algorithm",       "num_experts",      "max_dispatch_tokens_per_rank", "max_recv_tokens_per_rank",
                                 "max_token_bytes", "rdma_buffer_size", "enable_mask",                  "overflow_policy",
                                 "num_topk"};
  using Terms = std::array<uint64_t, kNames.size()>;
  const Terms mine{uint64_t(config_.algorithm),    config_.num_experts,  config_.max_tokens_per_rank,
                   config_.max_recv_tokens_per_rank, config_.max_token_bytes, config_.buffer_bytes,
                   uint64_t(config_.enable_mask),  uint64_t(config_.overflow),   config_.num_topk};
  SWITCHYARD_ASSIGN(const std::vector<Terms> terms, comm_.exchange(mine));
  for (size_t peer = 0; peer < terms.size(); ++peer) {
    for (size_t i = 0; i < mine.size(); ++i) {
      if (terms[peer][i] == mine[i]) continue;
      return Status::invalid_usage(text("the group's configuration differs: ", kNames[i], " is ", terms[peer][i], " on rank ", peer, " and ",
                                        mine[i], " on rank ", rank(), "; all ranks must pass the same"));
    }
  }
  return {};
}

Status Group::make_control(GroupView& view, int board_words, GroupState& state, size_t num_state_bytes) {
  SWITCHYARD_FAILPOINT_TRY("group.before_agreement");
  SWITCHYARD_TRY(agree_on_config());
  SWITCHYARD_FAILPOINT_TRY("group.after_agreement");
  Runtime& runtime = comm_.runtime();
  control_layout_ = {num_ranks(), board_words, comm_.topology().num_nodes() > 1};
  SWITCHYARD_ASSIGN(control_, share(control_layout_.num_bytes()));
  SWITCHYARD_ASSIGN(void* report, runtime.allocate_shared(sizeof(Report)));
  report_ = static_cast<Report*>(report);

  state.tag = state.base = kNumBanks;  // so that tag - kNumBanks never wraps
  SWITCHYARD_ASSIGN(char* state_memory, carve(num_state_bytes));
  state_ = reinterpret_cast<GroupState*>(state_memory);
  SWITCHYARD_TRY(runtime.upload(state_, &state, num_state_bytes));
  const size_t table_bytes = placement_.owner.size() * sizeof(int32_t);
  SWITCHYARD_ASSIGN(char* owner, carve(table_bytes));
  SWITCHYARD_TRY(runtime.upload(owner, placement_.owner.data(), table_bytes));
  SWITCHYARD_ASSIGN(char* local, carve(table_bytes));
  SWITCHYARD_TRY(runtime.upload(local, placement_.local.data(), table_bytes));
  SWITCHYARD_ASSIGN(char* mask, carve(size_t(num_ranks()) * sizeof(int32_t)));
  const std::vector<int32_t> ones(size_t(num_ranks()), 1);
  SWITCHYARD_TRY(runtime.upload(mask, ones.data(), ones.size() * sizeof(int32_t)));
  mask_ = reinterpret_cast<int32_t*>(mask);

  view.control_layout = control_layout_;
  view.rank = rank();
  view.num_ranks = num_ranks();
  view.num_experts = num_experts();
  view.max_tokens = max_tokens();
  view.masks_enabled = config_.enable_mask;
  view.control = control_.window->bases();
  view.control_id = control_.window->id();
  view.net = &comm_.net_path();
  view.owner = reinterpret_cast<int32_t*>(owner);
  view.local = reinterpret_cast<int32_t*>(local);
  view.state = state_;
  view.report = report_;
  view.mask = mask_;
  view.peer_state = comm_.health().peer_state();
  view.abort = abort_;
  view.timeout_ns = timeout_ns_;
  SWITCHYARD_FAILPOINT_TRY("group.after_state");
  if (env().ep_env_verbose && rank() == 0) {
    log_line(LogLevel::kInfo, text("environment in effect: ", env().in_effect, "; time limit of a wait: ",
                                   double(timeout_ns_) / kMillisecond, " ms"));
  }
  return {};
}

Result<Group::Shared> Group::share(size_t num_bytes) {
  Shared shared;
  shared_.reserve(shared_.size() + 1);
  SWITCHYARD_ASSIGN(shared.memory, comm_.runtime().allocate(num_bytes));
  const Status registered = guarded([&]() -> Status {
    SWITCHYARD_ASSIGN(shared.window, comm_.register_window(shared.memory, num_bytes));
    return {};
  });
  if (!registered.ok()) {
    if (const Status freed = comm_.free_after_network(shared.memory); !freed.ok()) log(LogLevel::kWarn, freed.to_string());
    return registered;
  }
  shared_.push_back(shared);
  return shared;
}

Status Group::unshare(Shared shared, bool peers_are_done) {
  std::erase_if(shared_, [&](const Shared& known) { return known.memory == shared.memory; });
  const Status gone = comm_.deregister_window(shared.window);
  const Status freed = comm_.release(shared.memory, peers_are_done && gone.ok());
  return gone.ok() ? freed : gone;
}

Result<char*> Group::carve(size_t num_bytes) {
  carved_.reserve(carved_.size() + 1);
  SWITCHYARD_ASSIGN(void* memory, allocator_.allocate(num_bytes));
  carved_.push_back(memory);
  return static_cast<char*>(memory);
}

void Group::close_or_log() {
  if (const Status closed = guarded([&] { return close(); }); !closed.ok()) log(LogLevel::kWarn, "while ending a group: ", closed.to_string());
}

Status Group::close() {
  if (closed_) return {};
  closed_ = true;
  Status first;
  // Goes on after a failure, also for want of memory: what can be given back is.
  const auto note = [&](const Status& status) {
    if (first.ok()) first = status;
  };
  for (const StreamRef stream : streams_) {
    const Status done = guarded([&] { return comm_.runtime().synchronize(stream, drained()); });
    if (failure_.ok()) note(done);
  }
  // Peers may still read this rank's windows: leave together, unless somebody can't come any more. What another group of
  // this communicator ran into, its ranks and networks, is there for this one, too.
  bool have_met = false;
  const auto is_well = [&] { return report_ != nullptr && health().ok() && comm_.async_error().ok() && !any_peer_failed(); };
  const Status met = guarded([&]() -> Status {
    if (!is_well()) return {};
    SWITCHYARD_TRY(comm_.barrier());
    have_met = true;
    return {};
  });
  note(met);
  while (!shared_.empty()) note(guarded([&] { return unshare(shared_.back(), have_met); }));
  for (void* memory : retired_) allocator_.free(memory);
  for (void* memory : carved_) allocator_.free(memory);
  if (report_ != nullptr) note(comm_.runtime().free_shared(report_));
  return first;
}

[[gnu::hot]] Status Group::order(StreamRef stream) {
  if (!streams_.empty() && streams_.back() == stream) return {};
  if (!streams_.empty()) SWITCHYARD_TRY(comm_.runtime().order_after(stream, streams_.back()));
  std::erase(streams_, stream);
  streams_.push_back(stream);
  return {};
}

Status Group::await_posted() const {
  for (const StreamRef stream : streams_) {
    const Status done = comm_.runtime().synchronize(stream, drained());
    if (!done.ok() && !comm_.runtime().has_finished(stream)) return done;
  }
  return {};
}

Result<void*> Group::allocate(size_t num_bytes) {
  free_retired_if_idle();
  return allocator_.allocate(num_bytes);
}

void Group::retire(void* memory) {
  retired_.push_back(memory);
  if (retired_.size() >= kMaxRetired) drain();
  free_retired_if_idle();
}

void Group::free_retired_if_idle() {
  const auto has_finished = [&](StreamRef stream) { return comm_.runtime().has_finished(stream); };
  if (!std::all_of(streams_.begin(), streams_.end(), has_finished)) return;
  for (void* memory : retired_) allocator_.free(memory);
  retired_.clear();
}

void Group::drain() const {
  for (const StreamRef stream : streams_) (void)comm_.runtime().synchronize(stream, drained());
}

[[gnu::hot]] Status Group::health() {
  // Two words, because each post asks, and each place it looks at may be out of the caches. Kernels look at the same: what
  // they report as a failure stays there.
  if (std::atomic_ref(*abort_).load(std::memory_order_relaxed) != 0) return comm_.async_error();
  if (std::atomic_ref(report_->failure).load(std::memory_order_relaxed) != 0) return operation_failed();
  return {};
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

Status Group::operation_faulty() {
  const uint64_t word = std::atomic_ref(report_->fault).load(std::memory_order_relaxed);
  std::atomic_ref(report_->fault).store(0, std::memory_order_relaxed);
  const uint64_t none = 0;  // so that the next fault counts as the first again
  SWITCHYARD_TRY(comm_.runtime().upload(&state_->noted.fault, &none, sizeof(none)));
  return describe_failure(word);
}

Result<uint64_t> Group::told_by(int peer, uint64_t PeerLine::* word) const {
  const auto* line = reinterpret_cast<const PeerLine*>(control_.window->local() + control_layout_.line(0, peer));
  uint64_t value = 0;
  SWITCHYARD_TRY(comm_.runtime().download(&value, &(line->*word), sizeof(value)));
  return value;
}

bool Group::any_peer_failed() const {
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const Result<uint64_t> failed = told_by(peer, &PeerLine::failed);
    if (failed.ok() && failed.value() != 0) return true;
  }
  return false;
}

// REQUIRES  the group's streams are idle.
Result<GroupState> Group::read_state() const {
  GroupState state;
  SWITCHYARD_TRY(comm_.runtime().download(&state, state_, sizeof(state)));
  return state;
}

Status Group::describe_failure(uint64_t word) const {
  const auto phase = Phase(word >> 56);
  const uint64_t peer = word >> kEpochBits & 0xffff;
  const std::string who = text("rank ", rank(), ", epoch ", word & kEpochMask, ": rank ", peer);
  if (comm_.aborted()) return Status::remote(text("rank ", rank(), ": aborted while waiting for rank ", peer));
  const std::string gone = comm_.health().gone(int(peer)) ? text(" (", comm_.why_gone(int(peer)), ")") : "";
  const std::string in_time = gone.empty() ? text(" within ", double(timeout_ns_) / kMillisecond, " ms") : gone;
  switch (phase) {
    case Phase::kBankFree:
      return Status::remote(who + " has not consumed the epoch before the last" + in_time);
    case Phase::kConsent:
      return Status::remote(who + " has not reached this dispatch, or its output is not in a window" + in_time);
    case Phase::kDispatchRows: return Status::remote(who + "'s dispatch rows did not arrive" + in_time);
    case Phase::kCombineRows: return Status::remote(who + "'s expert results did not arrive" + in_time);
    case Phase::kReaders: return Status::remote(who + " did not finish reading this rank's results" + in_time);
    case Phase::kOvertaken: return Status::remote(who + " went on without this rank");
    case Phase::kOtherOperation:
      return Status::remote(who + " does another operation than this rank, combines another dispatch, or has other row"
                                  " sizes, top-k, layout or alignment: every rank must make the same calls in the same order");
    case Phase::kNetwork: {
      const NetEndpoint* net = comm_.net();
      // Where it is lost as a whole, whoever was waited for at that moment is not to blame.
      if (net != nullptr && !net->usable(rank())) {
        return Status::remote(text("rank ", rank(), ", epoch ", word & kEpochMask,
                                   ": its network can't be used any more: ", net->why_lost(rank()).message()));
      }
      const Status network = net == nullptr ? Status() : net->why_lost(int(peer));
      return Status::remote(who + " can't be reached over the network any more" + gone +
                            (network.ok() ? "" : ": " + network.message()));
    }
    case Phase::kRoute: return Status::remote(who + "'s routing did not arrive" + in_time);
    case Phase::kPlaces: return Status::remote(who + " did not say where rows go" + in_time);
    case Phase::kRailRows: return Status::remote(who + "'s rows did not arrive over the network" + in_time);
    case Phase::kRailRoom: return Status::remote(who + " did not take this rank's rows" + in_time);
    case Phase::kOverBudget:
      return Status::invalid_argument(text(who, " would receive ", report_->num_rows, " rows, max_recv_tokens_per_rank is ",
                                           config_.max_recv_tokens_per_rank, ": raise it, drop (NCCL_EP_OVERFLOW_DROP), or "
                                           "route less there. The handle has no routing now"));
    case Phase::kNoPlan:
      return Status::invalid_usage(text("rank ", rank(), ": the handle's last ncclEpUpdateHandle did not succeed, or was for "
                                        "another number of tokens, top-k, layout or group: call it again"));
    case Phase::kStalePlan:
      return Status::invalid_usage(text("rank ", rank(), ": ranks were masked or came back since the handle's routing was "
                                        "made: outputs are not to be used, call ncclEpUpdateHandle again"));
    case Phase::kRowsLost:
      return Status::remote(who + "'s rows got lost because a rank is missing: outputs are not to be used; call "
                                  "ncclEpUpdateHandle and repeat" + gone);
    case Phase::kAborted: return Status::remote(who + " aborted");
    case Phase::kWindowMismatch:
      return Status::remote(who + " and this rank don't agree about the window of a tensor: in low latency it has to be the same on all "
                                  "ranks, in high throughput one that all ranks still have");
    case Phase::kBadMessage: return Status::remote(who + " sent a count that is out of range");
    case Phase::kBadRouting:
      return Status::invalid_argument(text("rank ", rank(), ": topk_idx holds an id outside -1..", num_experts() - 1));
    case Phase::kExpertFull:
      return Status::invalid_argument(who + " lists an expert more often than it has rows; those rows were dropped");
    case Phase::kNone: break;
  }
  return Status::internal(text("unknown failure ", word));
}

std::vector<int> Group::local_experts() const {
  std::vector<int> experts(size_t(num_local_experts(rank())));
  for (int expert = 0; expert < num_experts(); ++expert) {
    if (placement_.owner[size_t(expert)] == rank()) experts[size_t(placement_.local[size_t(expert)])] = expert;
  }
  return experts;
}

size_t Group::memory_bytes() const {
  // Windows are sparse files: count the blocks that were ever touched.
  size_t total = 0;
  for (const Shared& shared : shared_) {
    const auto found = comm_.runtime().find(shared.memory);
    struct stat info {};
    if (found && found->fd >= 0 && fstat(found->fd, &info) == 0) total += size_t(info.st_blocks) * 512;
    else if (found) total += found->num_bytes;
  }
  return total;
}

}  // namespace switchyard::ep
