#include "comm/communicator.hpp"

#include <sodium.h>

#include <algorithm>

#include "base/env.hpp"
#include "base/failpoint.hpp"
#include "base/guarded.hpp"
#include "base/log.hpp"
#include "comm/coordinator.hpp"
#include "platform/host/pin.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

// Names a child so that all its members agree and no two communicators of a job share a name.
uint64_t child_id(uint64_t parent, uint64_t split_idx, int64_t color) {
  const uint64_t parts[] = {parent, split_idx, uint64_t(color)};
  uint64_t hash[2];
  static_assert(sizeof(hash) == crypto_generichash_BYTES_MIN);
  crypto_generichash(reinterpret_cast<unsigned char*>(hash), sizeof(hash), reinterpret_cast<const unsigned char*>(parts),
                     sizeof(parts), nullptr, 0);
  return hash[0];
}

// Who is open in a ring or in the network; nobody knows where one of the two does not.
void add_open(Delivery& in_rings, NetPost delivered, const Delivery& in_network) {
  if (delivered == NetPost::kBusy && in_network.is_open.empty()) in_rings.is_open.clear();
  for (size_t rank = 0; rank < std::min(in_rings.is_open.size(), in_network.is_open.size()); ++rank) {
    if (in_network.is_open[rank]) in_rings.is_open[rank] = true;
  }
}

}  // namespace

Job::Job(std::unique_ptr<Bootstrap> bootstrap) : bootstrap_(std::move(bootstrap)) {
  bootstrap_->set_event_handler([this](const BootstrapEvent& event) { tell(event); });
}

Job::~Job() { bootstrap_->set_event_handler(nullptr); }

void Job::tell(const BootstrapEvent& event) {
  const std::lock_guard lock(mutex_);
  for (const auto& [who, listener] : listeners_) {
    const Status taken = guarded([&] { listener(event); });  // whatever becomes of one, the others hear
    if (!taken.ok()) log(LogLevel::kWarn, taken.to_string());
  }
  if (!event.concerns_network()) events_.push_back(event);
}

// This rank first, since the bootstrap reports only what others do: they leave as soon as they hear of it, and whoever
// waits for them here must not learn that before it learns why.
void Job::abort(const std::string& reason) {
  const Status told =
      guarded([&] { tell({.kind = BootstrapEvent::Kind::kAborted, .rank = bootstrap_->rank(), .message = reason}); });
  bootstrap_->abort(reason);
  if (!told.ok()) log(LogLevel::kWarn, told.to_string());
}

void Job::subscribe(const void* who, std::function<void(const BootstrapEvent&)> listener) {
  const std::lock_guard lock(mutex_);
  for (const BootstrapEvent& event : events_) listener(event);
  listeners_[who] = std::move(listener);
}

void Job::unsubscribe(const void* who) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(who);
}

Communicator::Communicator(std::shared_ptr<Job> job, JobId job_id, uint64_t comm_id, std::vector<int> members, int rank,
                           Runtime& runtime, const Options& options)
    : job_(std::move(job)),
      job_id_(job_id),
      comm_id_(comm_id),
      members_(std::move(members)),
      rank_(rank),
      runtime_(runtime),
      options_(options),
      timeout_ns_(options.timeout_ns ? options.timeout_ns : env().timeout_ms * kMillisecond),
      has_left_(members_.size()) {}

Communicator::~Communicator() {
  (void)guarded([&] { leave_network(); });  // without memory the others take it for a loss
  job_->unsubscribe(this);
  proxy_.reset();
  net_.reset();
  windows_.clear();
  for (void* memory : owned_) {
    if (const Status freed = runtime_.free(memory); !freed.ok()) log(LogLevel::kWarn, freed.to_string());
  }
}

Result<std::unique_ptr<Communicator>> Communicator::create(const UniqueId& id, int rank, int num_ranks,
                                                           Options options) {
  const uint64_t timeout_ns = options.timeout_ns ? options.timeout_ns : env().timeout_ms * kMillisecond;
  set_failpoint_rank(rank);
  SWITCHYARD_FAILPOINT_TRY("comm.before_connect");
  SWITCHYARD_ASSIGN(std::unique_ptr<Bootstrap> bootstrap,
                    Bootstrap::connect(id, rank, num_ranks, Deadline::after_ns(timeout_ns)));
  std::vector<int> members;
  for (int member = 0; member < num_ranks; ++member) members.push_back(member);
  Runtime& runtime = options.runtime ? *options.runtime : host_runtime();
  std::unique_ptr<Communicator> comm(
      new Communicator(std::make_shared<Job>(std::move(bootstrap)), id.job_id, Bootstrap::kWorldCommId, std::move(members), rank, runtime, options));
  SWITCHYARD_TRY(comm->join());
  comm->claim_thread();
  return comm;
}

void Communicator::claim_thread() const {
  const RankRange neighbours = machine_ranks();
  set_this_threads_share({rank_ - neighbours.first, neighbours.count});
  set_failpoint_rank(rank_);
}

// Learns who is where, then who has to be watched and who passes descriptors to whom.
Status Communicator::join() {
  SWITCHYARD_ASSIGN(void* slots, allocate_owned(WindowTable::kNumSlots * sizeof(char* const*)));
  window_table_.slots = static_cast<char* const* const*>(slots);
  SWITCHYARD_ASSIGN(Whereabouts mine, Whereabouts::mine(options_.node_id));
  mine.has_coordinator = has_coordinator(job_id_);
  SWITCHYARD_FAILPOINT_TRY("comm.before_whereabouts");
  SWITCHYARD_ASSIGN(whereabouts_, exchange(mine));
  SWITCHYARD_FAILPOINT_TRY("comm.after_whereabouts");
  SWITCHYARD_ASSIGN(Topology topology, Topology::build(whereabouts_, rank_));
  topology_ = std::make_unique<Topology>(std::move(topology));
  std::vector<int> node_members;
  std::vector<Health::Watched> processes;
  bool several_processes = false;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const Whereabouts& there = whereabouts_[size_t(rank)];
    if (!there.same_node(mine)) continue;
    node_members.push_back(members_[size_t(rank)]);
    if (there.uid != mine.uid) {
      return Status::invalid_usage(text("rank ", rank, " runs as user ", there.uid, " and rank ", rank_, " as user ",
                                        mine.uid, ": ranks of one node share memory and must run as one user"));
    }
    if (there.same_process(mine)) continue;
    several_processes = true;
    processes.push_back({rank, there.pid});
  }
  SWITCHYARD_ASSIGN(health_, Health::create(runtime_, num_ranks(), processes));
  SWITCHYARD_FAILPOINT_TRY("comm.after_health");
  if (several_processes) {
    const int my_idx = topology_->my_local_idx();
    SWITCHYARD_ASSIGN(node_link_, NodeLink::create(job_->bootstrap(), child_id(comm_id_, ~0ull, topology_->my_node()),
                                                   node_members, my_idx, deadline()));
  }
  // Also where there is one node only: a name that is wrong is better found here than on the day there are two.
  SWITCHYARD_ASSIGN(const NetPlugin* plugin, find_net_plugin(net_name()));
  SWITCHYARD_TRY(is_proxy_wanted().status());
  SWITCHYARD_TRY(faults_wanted(options_.net_decorations, job_->bootstrap().num_ranks()).status());
  if (topology_->num_nodes() > 1) SWITCHYARD_TRY(connect_network(*plugin));
  job_->subscribe(this, [this](const BootstrapEvent& event) { take_event(event); });
  SWITCHYARD_FAILPOINT_TRY("comm.before_join_barrier");
  return barrier();
}

RankRange Communicator::machine_ranks() const {
  RankRange range{rank_, 0};
  const Whereabouts& mine = whereabouts_[size_t(rank_)];
  while (range.first > 0 && whereabouts_[size_t(range.first - 1)].same_machine(mine)) --range.first;
  for (int rank = range.first; rank < num_ranks() && whereabouts_[size_t(rank)].same_machine(mine); ++rank) ++range.count;
  return range;
}

Window::Context Communicator::window_context() const {
  return {runtime_, job_->bootstrap(), node_link_.get(), topology_->my_node_ranks(), whereabouts_,
          members_, job_id_,           comm_id_,         rank_};
}

std::string Communicator::net_name() const {
  const std::string asked = options_.net.empty() ? env().net : options_.net;
  return asked.empty() ? "mem" : asked;
}

uint64_t Communicator::net_id() const { return child_id(comm_id_, ~0ull - 1, 0); }

Status Communicator::connect_network(const NetPlugin& plugin) {
  const NetContext context{net_name(), window_context(), machine_ranks(), net_id()};
  SWITCHYARD_ASSIGN(net_, switchyard::connect_network(plugin, context, options_.net_decorations, deadline()));
  SWITCHYARD_TRY(open_net_path());
  log(LogLevel::kInfo, "rank ", rank_, ": ", topology_->num_nodes(), " nodes, network plugin ", plugin.name);
  return {};
}

void Communicator::take_event(const BootstrapEvent& event) {
  const auto member = std::find(members_.begin(), members_.end(), event.rank);
  const int rank = member == members_.end() ? -1 : int(member - members_.begin());
  switch (event.kind) {
    case BootstrapEvent::Kind::kRankDied:
      if (rank >= 0) take_as_gone(rank, event.message);
      return;
    case BootstrapEvent::Kind::kRankLeft:
      if (rank >= 0) take_left(rank);
      return;
    case BootstrapEvent::Kind::kLeftNetwork:
      if (rank >= 0 && rank != rank_ && event.comm_id == net_id()) take_left(rank);
      return;
    case BootstrapEvent::Kind::kAborted:
      (void)guarded([&] {
        if (rank >= 0) report_async_error(Status::remote(text("rank ", rank, " aborted: ", event.message)));
      });
      health_->abort();
      if (net_ != nullptr) net_->abort();
      return;
    case BootstrapEvent::Kind::kCoordinatorLost:
      log(LogLevel::kWarn, event.message);
      take_coordinator_lost(event);
      return;
    case BootstrapEvent::Kind::kUnreachable: return take_unreachable(rank, event);
  }
}

void Communicator::take_left(int rank) {
  {
    const std::lock_guard lock(mutex_);
    has_left_[size_t(rank)] = true;
  }
  if (net_ != nullptr) net_->forget(rank);
  mark_gone(rank);
}

void Communicator::take_unreachable(int rank, const BootstrapEvent& event) {
  const auto member = std::find(members_.begin(), members_.end(), event.peer);
  if (event.comm_id != net_id() || net_ == nullptr || rank < 0 || member == members_.end()) return;
  if (is_leaving_.load(std::memory_order_relaxed)) return;  // who has left confirms no losses
  const int other = int(member - members_.begin());
  const bool is_first = [&] {
    const std::lock_guard lock(mutex_);
    if (!net_loss_.ok()) return false;
    net_loss_ = Status::remote(
        text("the network does not join rank ", rank, " and rank ", other, " any more: ", event.message));
    return true;
  }();
  if (is_first) health_->mark_incomplete();
  if (other == rank_) job_->bootstrap().confirm_unreachable(net_id(), event.rank, event.message);
  // Last: it may wait for whoever is at the network. What this rank told is certain now, even if the other leaves next.
  if (other == rank_) net_->give_up(rank, text("it says that it does not reach this rank any more: ", event.message));
  if (rank == rank_) net_->give_up(other, event.message);
}

Status Communicator::net_loss() const {
  const std::lock_guard lock(mutex_);
  return net_loss_;
}

// -1: none.
int Communicator::first_lost() const {
  for (int rank = 0; net_ != nullptr && rank < num_ranks(); ++rank) {
    if (!net_->usable(rank)) return rank;
  }
  return -1;
}

Status Communicator::check_network() const {
  const int lost = first_lost();
  if (lost < 0) return {};
  return Status::remote(
      text("rank ", rank_, ": what it and rank ", lost, " sent each other may be lost: ", net_->why_lost(lost).message()));
}

void Communicator::take_as_gone(int rank, const std::string& why) {
  if (net_ != nullptr) net_->give_up(rank, why);
  mark_gone(rank);
  health_->mark_dead(rank);
}

// A kernel that sees it looks once more at what the peer said last. What came over the network must be applied by then: a
// peer that leaves has seen it delivered.
void Communicator::mark_gone(int rank) {
  if (net_ != nullptr) net_->catch_up();
  health_->mark_gone(rank);
}

// The next collective call says what happened. Kernels need no coordinator and go on among those who are there. If its
// process ended, ranks of that process are gone. If it does not answer, the way from here is cut or its whole machine is
// gone: that can't be told from here, nobody else tells, and ranks of other machines could be waited for in vain.
void Communicator::take_coordinator_lost(const BootstrapEvent& event) {
  const Whereabouts& mine = whereabouts_[size_t(rank_)];
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const Whereabouts& there = whereabouts_[size_t(rank)];
    if (there.same_process(mine) || has_left(rank)) continue;
    const bool went_with_it = there.has_coordinator != 0;
    const bool out_of_reach = event.unreachable && !there.same_machine(mine);
    if (went_with_it || out_of_reach) take_as_gone(rank, event.message);
  }
}

std::string Communicator::why_gone(int rank) const {
  const Status expected = job_->bootstrap().check_expected(members_[size_t(rank)]);
  if (!expected.ok()) return expected.message();
  if (has_left(rank)) return text("rank ", rank, " has left this communicator");
  return text("the process of rank ", rank, " is gone");
}

bool Communicator::has_left(int rank) const {
  const std::lock_guard lock(mutex_);
  return has_left_[size_t(rank)];
}

uint64_t Communicator::subset_id(uint64_t purpose, std::span<const int> world_ranks) const {
  uint64_t id = child_id(comm_id_, purpose, -1);
  for (const int rank : world_ranks) id = child_id(id, purpose, rank);
  return id;
}

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  struct Choice {
    int32_t color, key;
  };
  SWITCHYARD_FAILPOINT_TRY("comm.before_split");
  SWITCHYARD_ASSIGN(const std::vector<Choice> choices, exchange(Choice{color, key}));
  SWITCHYARD_FAILPOINT_TRY("comm.after_split_exchange");
  const uint64_t split_idx = num_splits_++;
  if (color < 0) return std::unique_ptr<Communicator>();
  std::vector<int> ranks;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (choices[size_t(rank)].color == color) ranks.push_back(rank);
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return choices[size_t(a)].key < choices[size_t(b)].key; });
  std::vector<int> members;
  int my_rank = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    members.push_back(members_[size_t(ranks[i])]);
    if (ranks[i] == rank_) my_rank = int(i);
  }
  std::unique_ptr<Communicator> child(new Communicator(job_, job_id_, child_id(comm_id_, split_idx, color),
                                                       std::move(members), my_rank, runtime_, options_));
  SWITCHYARD_TRY(child->join());
  return child;
}

Status Communicator::barrier() {
  const TraceSpan span(trace(), TracePhase::kBarrier, kNoTracePeer, 0);
  const Deadline limit = deadline();
  // After it peers may take their windows away, and what they sent before is here, or all know that it is not. The rest
  // takes time, too.
  Delivery delivery;
  const bool is_settled = settle_network(delivery, Deadline::after_ns(timeout_ns_ / 2));
  const auto all_settled = job_->bootstrap().exchange_values(comm_id_, members_, uint8_t(is_settled), limit);
  if (net_ != nullptr) net_->catch_up();
  network_is_stuck_.store(!is_settled, std::memory_order_relaxed);  // a hint
  if (!all_settled.ok()) return all_settled.status();
  if (!is_settled) return not_delivered(delivery);
  for (size_t rank = 0; rank < all_settled.value().size(); ++rank) {
    if (all_settled.value()[rank] != 0) continue;
    return Status::remote(text("rank ", rank_, ": rank ", rank, " could not have all delivered that it had posted, to whomever"));
  }
  return check_network();
}

Result<Window*> Communicator::register_window(void* memory, size_t num_bytes) {
  const TraceSpan span(trace(), TracePhase::kWindow, kNoTracePeer, num_windows_ + 1, num_bytes);
  Window::Context context = window_context();
  context.table = window_table_;
  make_room();
  SWITCHYARD_ASSIGN(std::unique_ptr<Window> window,
                    Window::create(context, ++num_windows_, memory, num_bytes, deadline()));
  const Status registered = guarded([&]() -> Status {
    if (net_ != nullptr) SWITCHYARD_TRY(net_->register_region(window->id(), memory, num_bytes, deadline()));
    SWITCHYARD_FAILPOINT_TRY("window.after_registration");
    return {};
  });
  if (!registered.ok()) {
    // Others may have been told that all is well, and write.
    if (net_ != nullptr) net_->deregister_region(window->id());
    return registered;
  }
  const std::lock_guard lock(mutex_);
  windows_.push_back(std::move(window));
  return windows_.back().get();
}

// Until the network has delivered what was posted before. False: not within the limit; the delivery says to whom. Or
// without memory, and nobody knows.
bool Communicator::settle_network(Delivery& delivery, Deadline limit) {
  if (net_ == nullptr) return true;
  const auto settled = [&] {
    if (!net_->usable(rank_)) return true;  // it has ended as a whole
    const bool is_drained = proxy_ == nullptr || proxy_->drain(delivery);
    Delivery so_far;
    const NetPost delivered = net_->deliver(is_drained ? delivery : so_far);
    if (is_drained && delivered != NetPost::kBusy) return true;
    if (!is_drained) add_open(delivery, delivered, so_far);
    net_->progress();
    return false;
  };
  bool is_settled = false;
  (void)guarded([&] { is_settled = wait_until(settled, limit) == WaitResult::kReady; });
  return is_settled;
}

// The same of one who ends something. A peer that took nothing for as long as that may take is not waited for each time.
bool Communicator::settle_to_end(Delivery& delivery) {
  const bool is_stuck = network_is_stuck_.load(std::memory_order_relaxed);  // a hint
  const uint64_t limit_ns = is_stuck ? std::min(timeout_ns_, env().heartbeat_ms * kMillisecond) : timeout_ns_;
  const bool is_settled = settle_network(delivery, Deadline::after_ns(limit_ns));
  network_is_stuck_.store(!is_settled, std::memory_order_relaxed);
  return is_settled;
}

Status Communicator::not_delivered(const Delivery& delivery) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < delivery.is_open.size(); ++rank) {
    if (delivery.is_open[rank]) ranks.push_back(int(rank));
  }
  return Status::remote(text("rank ", rank_, ": what it had posted was not delivered in time",
                             ranks.empty() ? "" : ": missing is the answer of rank ", list_ranks(ranks)));
}

// What was posted arrives, and nobody takes the end of this rank's connections for a loss, but those to whom something is
// lost with it.
void Communicator::leave_network() {
  if (net_ == nullptr || aborted() || SWITCHYARD_FAILPOINT("communicator.leaves_without_a_word")) return;
  Delivery delivery;
  if (!settle_to_end(delivery)) {
    log(LogLevel::kWarn, "a communicator ends, but ", not_delivered(delivery).message());
    for (int rank = 0; rank < num_ranks(); ++rank) {
      const bool is_open = delivery.is_open.empty() || delivery.is_open[size_t(rank)];  // or nobody knows
      if (rank == rank_ || !is_open || has_left(rank)) continue;
      job_->bootstrap().tell_unreachable(net_id(), members_[size_t(rank)], "it left before all that it had posted was delivered");
    }
  }
  is_leaving_.store(true, std::memory_order_relaxed);
  job_->bootstrap().tell_left_network(net_id());
}

Status Communicator::deregister_window(Window* window) {
  if (find_window(window) == nullptr) return Status::invalid_argument("this communicator has no such window");
  Delivery delivery;
  const bool is_settled = settle_to_end(delivery);
  std::unique_ptr<Window> owner;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(windows_.begin(), windows_.end(), [&](const auto& w) { return w.get() == window; });
    if (found == windows_.end()) return Status::invalid_argument("this communicator has no such window");
    owner = std::move(*found);
    windows_.erase(found);
  }
  // Without the lock: it may wait for a post that only news of the peer ends, and who brings them needs the lock.
  if (net_ != nullptr) net_->deregister_region(owner->id());
  if (is_settled) return {};
  return guarded([&]() -> Status {
    return Status::remote(not_delivered(delivery).message() +
                          "; the window is gone, but the network may read its memory until the communicator ends");
  });
}

// For one more window, and for the memory of all of them should it have to stay: that is when memory may be short.
void Communicator::make_room() {
  const std::lock_guard lock(mutex_);
  if (windows_.size() == windows_.capacity()) windows_.reserve(2 * windows_.size() + 1);
  if (const size_t needed = owned_.size() + windows_.size() + 1; owned_.capacity() < needed) owned_.reserve(2 * needed);
}

Status Communicator::release(void* memory, bool peers_are_done) {
  // Without a word about why: there may be no memory for one.
  return peers_are_done && first_lost() < 0 ? runtime_.free(memory) : free_after_network(memory);
}

Status Communicator::free_after_network(void* memory) {
  {
    const std::lock_guard lock(mutex_);
    // No room: make_room() found none, so the network never knew of it.
    if (net_ != nullptr && owned_.size() < owned_.capacity()) {
      owned_.push_back(memory);
      return {};
    }
  }
  return runtime_.free(memory);
}

Window* Communicator::find_window(const void* handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(windows_.begin(), windows_.end(), [&](const auto& w) { return w.get() == handle; });
  return found == windows_.end() ? nullptr : found->get();
}

// This communicator's waits end at once: who tells the others may have to wait for somebody who is in one.
void Communicator::abort(const std::string& reason) {
  (void)guarded([&] { report_async_error(Status::invalid_usage("aborted: " + reason)); });
  health_->abort();
  (void)guarded([&] {
    if (net_ != nullptr) net_->abort();
  });
  job_->abort(reason);
}

Status Communicator::async_error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Communicator::report_async_error(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = status;
}

}  // namespace switchyard
