// Communicator: N ranks that found each other, know who shares a node, and share memory windows.
//
// THREADS    calls marked COLLECTIVE are made by all ranks in the same order, one at a time per communicator; abort()
//            and the queries may be called from any thread at any time.
// OWNERSHIP  owns its windows and internal memory; communicators made by split() share the bootstrap connection and
//            may be destroyed in any order.
// ERRORS     every blocking call ends by its deadline with an error that names the rank that is missing.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/trace.hpp"
#include "comm/bootstrap.hpp"
#include "comm/health.hpp"
#include "comm/topology.hpp"
#include "comm/unique_id.hpp"
#include "comm/window.hpp"
#include "comm/window_table.hpp"
#include "net/net.hpp"
#include "net/proxy.hpp"
#include "platform/runtime.hpp"
#include "switchyard/device/comm.hpp"

namespace switchyard {

// One rank's bootstrap connection, and the communicators that want to hear of deaths and aborts.
class Job {
 public:
  explicit Job(std::unique_ptr<Bootstrap> bootstrap);
  ~Job();
  Bootstrap& bootstrap() { return *bootstrap_; }
  TraceRing& trace() { return trace_; }
  // Past events are told at once. The listener is not running any more when unsubscribe() returns.
  void subscribe(const void* who, std::function<void(const BootstrapEvent&)> listener);
  void unsubscribe(const void* who);
  // Ends the job: tells the peers, and all communicators of this rank.
  void abort(const std::string& reason);

 private:
  void tell(const BootstrapEvent& event);

  std::unique_ptr<Bootstrap> bootstrap_;
  TraceRing trace_;
  std::mutex mutex_;
  std::vector<BootstrapEvent> events_;
  std::map<const void*, std::function<void(const BootstrapEvent&)>> listeners_;
};

// The network as kernels call it themselves.
struct DirectNet {
  NetEndpoint* endpoint = nullptr;
  const uint32_t* abort = nullptr;  // ends a wait for room
  uint64_t timeout_ns = 0;          // its limit
};

class Communicator {
 public:
  struct Options {
    Runtime* runtime = nullptr;  // null: the host platform
    uint64_t timeout_ns = 0;     // limit of every collective call; 0: SWITCHYARD_TIMEOUT_MS
    // Pretended node of this rank; none: SWITCHYARD_NODE_ID. Ranks that are threads share the environment.
    std::optional<int64_t> node_id{};
    std::string net = {};  // network between nodes; empty: SWITCHYARD_NET
    std::string gin = {};  // how kernels reach it: "direct" or "proxy"; empty: SWITCHYARD_GIN
    NetDecorations net_decorations = {};
  };

  // COLLECTIVE over the ranks of the id.
  static Result<std::unique_ptr<Communicator>> create(const UniqueId& id, int rank, int num_ranks, Options options);
  ~Communicator();

  int rank() const { return rank_; }
  int num_ranks() const { return int(members_.size()); }
  const Topology& topology() const { return *topology_; }
  Runtime& runtime() const { return runtime_; }
  // Null where all ranks are on one node.
  NetEndpoint* net() const { return net_.get(); }
  // The way there for kernels; lives as long as the communicator.
  const NetPath& net_path() const { return net_path_; }
  // What this rank did last; one for all communicators of the job.
  TraceRing& trace() const { return job_->trace(); }
  Health& health() const { return *health_; }
  // For messages. REQUIRES  health().gone(rank).
  std::string why_gone(int rank) const;
  uint64_t id() const { return comm_id_; }
  Deadline deadline() const { return Deadline::after_ns(timeout_ns_); }
  uint64_t timeout_ns() const { return timeout_ns_; }

  // Streams of the calling thread are this rank's from now on (pin.hpp); create() does so for its caller.
  void claim_thread() const;

  // COLLECTIVE. Ranks of one colour form a communicator, ordered by (key, rank); a negative colour gives none.
  Result<std::unique_ptr<Communicator>> split(int color, int key);
  // COLLECTIVE. Returns when every rank came, and what each had posted before is there. ERRORS  who did not come, or to whom
  // something was not delivered; then at all ranks.
  Status barrier();
  // COLLECTIVE. Every rank's value, by rank.
  template <class T>
  Result<std::vector<T>> exchange(const T& value) {
    return job_->bootstrap().exchange_values(comm_id_, members_, value, deadline());
  }
  // COLLECTIVE over the ranks listed (of this communicator), which includes this one; all must name the same ranks and
  // the same `purpose`.
  template <class T>
  Result<std::vector<T>> exchange_among(std::span<const int> ranks, uint64_t purpose, const T& value) {
    std::vector<int> world;
    for (const int rank : ranks) world.push_back(members_[size_t(rank)]);
    return job_->bootstrap().exchange_values(subset_id(purpose, world), world, value, deadline());
  }

  // COLLECTIVE. Signals, counters and barriers for kernels; lives as long as this communicator.
  Result<DeviceComm> create_device_comm(const DeviceCommRequirements& requirements);
  WindowView view(const Window& window) const;

  // COLLECTIVE. REQUIRES  memory of this communicator's runtime, one size on all ranks.
  Result<Window*> register_window(void* memory, size_t num_bytes);
  // Local; peers must be done with it, and so must be what this rank has enqueued. ERRORS  a window this communicator does
  // not have; or it is gone, but a peer did not take what was posted: its memory must stay until the communicator ends.
  Status deregister_window(Window* window);
  // Of a window that is gone, or never came to be, while a peer may be in the middle of a write to it: given back when the
  // network can't reach it any more, with this communicator; at once where there is no network.
  Status free_after_network(void* memory);
  // At once, unless peers may not be done with it, or the network has lost one.
  Status release(void* memory, bool peers_are_done);
  Window* find_window(const void* handle) const;
  // Of all windows, for kernels.
  const WindowTable& window_table() const { return window_table_; }

  // Every wait of this rank ends with an error, those of other communicators of the job too; peers are told. Returns at
  // once.
  void abort(const std::string& reason);
  bool aborted() const { return health_->aborted(); }
  // Ok, or the first reason for which this communicator can't go on.
  Status async_error() const;
  // Ok, or the first loss of this communicator's network, between whichever ranks.
  Status net_loss() const;
  void report_async_error(const Status& status);

 private:
  Communicator(std::shared_ptr<Job> job, JobId job_id, uint64_t comm_id, std::vector<int> members, int rank,
               Runtime& runtime, const Options& options);
  Status join();
  std::string net_name() const;
  uint64_t net_id() const;
  Status connect_network(const NetPlugin& plugin);
  Result<bool> is_proxy_wanted() const;
  Status open_net_path();
  bool settle_network(Delivery& delivery, Deadline limit);
  bool settle_to_end(Delivery& delivery);
  Status not_delivered(const Delivery& delivery) const;
  void leave_network();
  Window::Context window_context() const;
  RankRange machine_ranks() const;
  Result<void*> allocate_owned(size_t num_bytes);

  uint64_t subset_id(uint64_t purpose, std::span<const int> world_ranks) const;
  void take_event(const BootstrapEvent& event);
  void take_left(int rank);
  bool has_left(int rank) const;
  void take_unreachable(int rank, const BootstrapEvent& event);
  int first_lost() const;
  Status check_network() const;
  void make_room();
  void mark_gone(int rank);
  void take_as_gone(int rank, const std::string& why);
  void take_coordinator_lost(const BootstrapEvent& event);

  std::shared_ptr<Job> job_;  // shared: communicators made by split() use one connection
  JobId job_id_;
  uint64_t comm_id_;
  std::vector<int> members_;  // world ranks by rank
  int rank_;
  Runtime& runtime_;
  Options options_;
  uint64_t timeout_ns_;
  std::vector<Whereabouts> whereabouts_;
  std::unique_ptr<Topology> topology_;
  std::unique_ptr<NodeLink> node_link_;
  std::unique_ptr<NetEndpoint> net_;
  std::unique_ptr<Proxy> proxy_;  // uses net_
  DirectNet direct_net_;
  NetPath net_path_;              // only where ranks span nodes
  std::vector<void*> owned_;          // goes after the network
  std::unique_ptr<Health> health_;
  std::atomic<bool> is_leaving_{false};  // the network
  std::atomic<bool> network_is_stuck_{false};
  uint64_t num_splits_ = 0;
  uint32_t num_windows_ = 0;  // ever registered: ids are never used twice
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Window>> windows_;
  WindowTable window_table_{};
  Status error_;
  Status net_loss_;
  std::vector<bool> has_left_;  // by rank, in order
};

}  // namespace switchyard
