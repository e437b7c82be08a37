// Rendezvous: how the ranks that a launcher started get one unique id, without any other means of talking.
//
//   SWITCHYARD_UNIQUE_ID   the id itself, in hexadecimal (set by switchyard run); nothing else is looked at then.
//   SWITCHYARD_STORE       where to meet: file:///absolute/path or tcp://host:port (an address of rank 0's host).
//   SWITCHYARD_JOB_KEY     a secret of the job, at least 16 characters; needed for tcp:// beyond loopback.
//
// Without SWITCHYARD_STORE: ranks on one host meet through a file in a private folder, named by the launcher's job
// identity; torchrun on several hosts meets at MASTER_ADDR, port MASTER_PORT + 1; Open MPI and Slurm on several hosts
// need SWITCHYARD_STORE.
//
// Either way rank 0 opens a coordinator just for the meeting (its id is in the file, or follows from address and job
// key), creates the job's own id, and hands it out there. The key of that id is derived by every rank from the
// meeting's key and never travels. Afterwards the file is gone and the port is free again.
//
// THREADS    any; several rendezvous of different jobs may run in one process.
// OWNERSHIP  the coordinator behind the id stays with rank 0's process (see create_unique_id()).
// ERRORS     kInvalidUsage and kInvalidArgument for the configuration, kRemoteError for ranks that do not come.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "comm/launch_env.hpp"
#include "comm/unique_id.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

// REQUIRES: called by all ranks of the launch, each as often as the others.
// BLOCKING: until all ranks have met, or the deadline.
Result<UniqueId> rendezvous(const LaunchEnv& launch, const EnvGetter& get, Deadline deadline);

// A parsed SWITCHYARD_STORE. Exposed for tests and fuzzers.
struct StoreSpec {
  std::string path;  // of file://; else empty
  std::string host;  // of tcp://; else empty
  uint16_t port = 0;
};
Result<StoreSpec> parse_store(const std::string& value);

// Where the ranks of a launch meet, and what tells their job from others: what the environment says, nothing is opened.
// Exposed for tests and fuzzers.
struct MeetingPlace {
  StoreSpec store;
  std::optional<std::string> private_folder;  // that holds the store's file and is made when it is missing
  std::string identity;                       // equal at all ranks; empty: the launcher does not tell
};
Result<MeetingPlace> choose_meeting_place(const LaunchEnv& launch, const EnvGetter& get);

}  // namespace switchyard
