// Coordinator: the meeting point of one job. The process that creates a unique id runs it in a thread of its own; every
// rank (that process's own included) connects to it once. It serves one primitive, the exchange: when all members of an
// exchange have sent their blob, every member gets all of them. It also tells everyone who died, left or aborted.
//
// Strangers: it listens on one named interface only. A connection that does not prove to know the job key within
// kHandshakeNs is dropped and counted; there are at most 2 * num_ranks such connections at a time (64 if that is more),
// of which the oldest makes room for newcomers after kHalfOpenGraceNs; nobody is ever waited for.
//
// End: it ends by itself when every rank has come and gone, or when start-up took too long and nobody is connected.
//
// THREADS    any, for all functions of a Coordinator.
// OWNERSHIP  owns its thread and sockets; the destructor stops and joins, whatever the state of the job.
// ERRORS     only start() can fail. Ranks learn of trouble through their own connection.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "comm/tcp.hpp"
#include "comm/unique_id.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

struct CoordinatorOptions {
  // Where to listen. Without it: SWITCHYARD_INTERFACE, a free port; without that: lo.
  std::optional<TcpEndpoint> endpoint;
  // Without it: random.
  std::optional<JobSecret> secret;
  // How long to wait for ranks while nobody is connected. Programs may load for minutes before they join.
  uint64_t startup_ns = 600 * kSecond;
};

struct CoordinatorCounters {
  uint64_t num_joined = 0;         // ranks that proved themselves and were accepted
  uint64_t num_dropped_peers = 0;  // strangers, wrong keys, handshakes that took too long
  uint64_t num_refused = 0;        // knew the key, but could not take part: duplicate ranks, other num_ranks
};

class Coordinator {
 public:
  static Result<std::unique_ptr<Coordinator>> start(const CoordinatorOptions& options = {});
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const UniqueId& id() const { return id_; }
  CoordinatorCounters counters() const;
  // The thread has done its work; destroying the Coordinator won't cut anybody off.
  bool ended() const;
  // Where some ranks are gone and others not: gives those three heartbeats to hear of it and to leave. A rank that fails
  // for what it was told, and leaves, must not take the coordinator with it before the others were told.
  void linger() const;

 private:
  class Loop;
  Coordinator() = default;

  UniqueId id_;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
  int owner_pid_ = 0;  // in a forked child the thread does not exist
};

// Starts a coordinator that this process keeps until it has ended (or the process exits), and gives its id. The list of
// those coordinators is global: a unique id is a plain value, so nothing else could own the thread behind it. When the
// process exits they linger.
Result<UniqueId> create_unique_id(const CoordinatorOptions& options = {});
// Is the coordinator of that job one of them?
bool has_coordinator(const JobId& job_id);

}  // namespace switchyard
