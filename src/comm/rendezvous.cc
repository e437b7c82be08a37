#include "comm/rendezvous.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/env.hpp"
#include "comm/bootstrap.hpp"
#include "comm/coordinator.hpp"
#include "comm/file_store.hpp"

namespace switchyard {
namespace {

constexpr size_t kMinJobKeyChars = 16;
constexpr int kRetryMs = 20;
// A port that an earlier meeting of this process used is free again as soon as the last rank has left it.
constexpr uint64_t kPortFreeNs = 2 * kSecond;

struct Meeting {
  const LaunchEnv& launch;
  const EnvGetter& get;
  Deadline deadline;
  std::string identity;  // of the job, as far as the launcher tells; equal at all ranks
};

std::span<const std::byte> as_span(const std::string& words) { return std::as_bytes(std::span(words)); }

// What tells this job from an earlier one of the same user.
std::string job_identity(const LaunchEnv& launch, const EnvGetter& get) {
  std::vector<const char*> names;
  switch (launch.launcher) {
    case Launcher::kSwitchyardRun: break;
    case Launcher::kTorchrun:
      names = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"};
      break;
    case Launcher::kOpenMpi: names = {"PMIX_NAMESPACE"}; break;
    case Launcher::kSlurm: names = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}; break;
  }
  std::string identity;
  for (const char* name : names) {
    if (const auto value = get(name)) identity += text(name, "=", *value, "\n");
  }
  return identity;
}

bool on_one_host(const LaunchEnv& launch, const EnvGetter& get) {
  const auto equals = [&](const char* name, int number) { return get(name) == std::to_string(number); };
  switch (launch.launcher) {
    case Launcher::kSwitchyardRun: return true;
    case Launcher::kTorchrun: return equals("LOCAL_WORLD_SIZE", launch.num_ranks);
    case Launcher::kOpenMpi: return equals("OMPI_COMM_WORLD_LOCAL_SIZE", launch.num_ranks);
    case Launcher::kSlurm: return equals(get("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES", 1);
  }
  return false;
}

Status needs_store(const LaunchEnv& launch, const char* why) {
  return Status::invalid_usage(
      text("ranks started by ", launch.origin, " can't find each other: ", why,
           "; set SWITCHYARD_STORE=tcp://HOST:PORT (HOST: an address of rank 0's host) and SWITCHYARD_JOB_KEY"));
}

Result<StoreSpec> torchrun_store(const LaunchEnv& launch, const EnvGetter& get) {
  const auto host = get("MASTER_ADDR"), port = get("MASTER_PORT");
  if (!host || !port) return needs_store(launch, "MASTER_ADDR and MASTER_PORT are not both set");
  const auto number = parse_number(*port, 1, 65534);
  if (!number) return Status::invalid_argument(text("MASTER_PORT is '", *port, "', must be a number from 1 to 65534"));
  return StoreSpec{"", *host, uint16_t(*number + 1)};
}

// The job's own id without its key, which every rank derives for itself.
Result<UniqueId> complete_id(const UniqueId& meeting_id, std::span<const std::byte> sent) {
  UniqueId id;
  if (sent.size() != sizeof id) return Status::remote("rank 0 sent no unique id to the meeting");
  std::memcpy(static_cast<void*>(&id), sent.data(), sizeof id);
  SWITCHYARD_TRY(id.validate());
  return UniqueId::make(id.endpoint(), {keyed_hash(meeting_id.job_key, "key of the job", {id.job_id}), id.job_id});
}

Result<UniqueId> create_job_id(const UniqueId& meeting_id) {
  CoordinatorOptions options;
  JobSecret secret;
  fill_random(secret.job_id);
  secret.key = keyed_hash(meeting_id.job_key, "key of the job", {secret.job_id});
  options.secret = secret;
  if (!env().interface()) {
    options.endpoint = meeting_id.endpoint();
    options.endpoint->port = 0;
  }
  return create_unique_id(options);
}

// Comes together with the others at the meeting's coordinator.
Result<UniqueId> attend(const Meeting& meeting, const UniqueId& meeting_id) {
  const LaunchEnv& launch = meeting.launch;
  SWITCHYARD_ASSIGN(const auto bootstrap,
                    Bootstrap::connect(meeting_id, launch.rank, launch.num_ranks, meeting.deadline));
  std::vector<std::byte> blob;
  if (launch.rank == 0) {
    SWITCHYARD_ASSIGN(const UniqueId id, create_job_id(meeting_id));
    const UniqueId without_key = UniqueId::make(id.endpoint(), {{}, id.job_id});
    const auto bytes = std::as_bytes(std::span(&without_key, 1));
    blob.assign(bytes.begin(), bytes.end());
  }
  std::vector<int> world(static_cast<size_t>(launch.num_ranks));
  std::iota(world.begin(), world.end(), 0);
  SWITCHYARD_ASSIGN(const Blobs blobs, bootstrap->exchange(Bootstrap::kWorldCommId, world, blob, meeting.deadline));
  return complete_id(meeting_id, blobs[0]);
}

// Rank 0's meeting ends by itself when the last rank has left it, or at the deadline.
Result<UniqueId> open_meeting(const Meeting& meeting, CoordinatorOptions options) {
  options.startup_ns = meeting.deadline.remaining_ns();
  return create_unique_id(options);
}

// Ranks other than 0: until the deadline, since what is there now may be left over from an earlier job.
Result<UniqueId> attend_when_open(const Meeting& meeting,
                                  const std::function<Result<std::optional<UniqueId>>()>& find) {
  Status last = Status::remote("rank 0 has not opened the meeting");
  do {
    SWITCHYARD_ASSIGN(const std::optional<UniqueId> meeting_id, find());
    if (meeting_id) {
      auto id = attend(meeting, *meeting_id);
      if (id.ok() || id.status().code() != Code::kRemoteError) return id;
      last = id.status();
    }
    poll(nullptr, 0, std::min(kRetryMs, meeting.deadline.remaining_ms()));
  } while (!meeting.deadline.expired());
  return Status::remote(
      text("rank ", meeting.launch.rank, " did not meet the others until the deadline: ", last.message()));
}

Result<UniqueId> meet_at_file(const Meeting& meeting, const std::string& path,
                              const std::optional<std::string>& folder) {
  if (meeting.launch.rank != 0)
    return attend_when_open(meeting, [&] { return read_published(path, meeting.identity); });
  SWITCHYARD_ASSIGN(const UniqueId meeting_id, open_meeting(meeting, {}));
  SWITCHYARD_ASSIGN(const PublishedFile file, PublishedFile::publish(path, folder, meeting.identity, meeting_id));
  return attend(meeting, meeting_id);
}

Result<JobSecret> port_secret(const Meeting& meeting, const TcpEndpoint& endpoint) {
  const std::string job_key = meeting.get("SWITCHYARD_JOB_KEY").value_or("");
  if (job_key.empty() && !endpoint.is_loopback()) {
    return Status::invalid_usage(text("meeting at ", endpoint.to_string(),
                                      " needs SWITCHYARD_JOB_KEY, the same secret of at least ", kMinJobKeyChars,
                                      " characters at all ranks; without it only loopback is allowed"));
  }
  if (!job_key.empty() && job_key.size() < kMinJobKeyChars) {
    return Status::invalid_argument(
        text("SWITCHYARD_JOB_KEY has ", job_key.size(), " characters, needs at least ", kMinJobKeyChars));
  }
  JobSecret secret;
  secret.key = keyed_hash({}, "key of a meeting", {as_span(job_key), as_span(meeting.identity)});
  const Digest job = keyed_hash({}, "id of a meeting", {as_span(meeting.identity)});
  std::copy_n(job.begin(), secret.job_id.size(), secret.job_id.begin());
  return secret;
}

Result<UniqueId> meet_at_port(const Meeting& meeting, const StoreSpec& store) {
  SWITCHYARD_ASSIGN(const TcpEndpoint endpoint, resolve_endpoint(store.host, store.port));
  SWITCHYARD_ASSIGN(const JobSecret secret, port_secret(meeting, endpoint));
  const UniqueId meeting_id = UniqueId::make(endpoint, secret);
  if (meeting.launch.rank != 0) return attend_when_open(meeting, [&] { return std::optional(meeting_id); });
  CoordinatorOptions options;
  options.endpoint = endpoint;
  options.secret = secret;
  const Deadline port_free = Deadline::after_ns(std::min(kPortFreeNs, meeting.deadline.remaining_ns()));
  auto opened = open_meeting(meeting, options);
  while (!opened.ok() && opened.status().code() == Code::kSystemError && !port_free.expired()) {
    poll(nullptr, 0, kRetryMs);
    opened = open_meeting(meeting, options);
  }
  if (!opened.ok()) {
    return Status(opened.status().code(), text("rank 0 can't open the meeting: ", opened.status().message(),
                                               "; set SWITCHYARD_STORE=tcp://HOST:PORT with a free port of this host"));
  }
  return attend(meeting, meeting_id);
}

}  // namespace

Result<StoreSpec> parse_store(const std::string& value) {
  StoreSpec store;
  if (value.starts_with("file://")) {
    store.path = value.substr(7);
    if (!store.path.starts_with('/') || store.path.ends_with('/') || store.path.find('\0') != std::string::npos) {
      return Status::invalid_argument(
          text("SWITCHYARD_STORE is '", value, "'; a file store is file:///absolute/path/of/a/file"));
    }
    return store;
  }
  const Status bad =
      Status::invalid_argument(text("SWITCHYARD_STORE is '", value, "', allowed are file:///path and tcp://host:port"));
  if (!value.starts_with("tcp://")) return bad;
  const std::string rest = value.substr(6);
  const size_t colon = rest.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  store.host = rest.substr(0, colon);
  if (store.host.starts_with('[') && store.host.ends_with(']'))
    store.host = store.host.substr(1, store.host.size() - 2);
  else if (store.host.find(':') != std::string::npos) return bad;
  const auto port = parse_number(rest.substr(colon + 1), 1, 65535);
  if (!port || store.host.empty() || store.host.find('\0') != std::string::npos) return bad;
  store.port = uint16_t(*port);
  return store;
}

Result<MeetingPlace> choose_meeting_place(const LaunchEnv& launch, const EnvGetter& get) {
  MeetingPlace place;
  place.identity = job_identity(launch, get);
  if (const auto value = get("SWITCHYARD_STORE")) {
    SWITCHYARD_ASSIGN(place.store, parse_store(*value));
  } else if (on_one_host(launch, get)) {
    if (place.identity.empty())
      return needs_store(launch, "SWITCHYARD_UNIQUE_ID is not set, and nothing tells this job from others");
    place.private_folder = private_folder(get("XDG_RUNTIME_DIR"));
    place.store.path = job_file(*place.private_folder, place.identity);
  } else if (launch.launcher == Launcher::kTorchrun) {
    SWITCHYARD_ASSIGN(place.store, torchrun_store(launch, get));
  } else {
    return needs_store(launch, "they are on several hosts");
  }
  return place;
}

Result<UniqueId> rendezvous(const LaunchEnv& launch, const EnvGetter& get, Deadline deadline) {
  SWITCHYARD_TRY(crypto_ready());
  if (const auto hex = get("SWITCHYARD_UNIQUE_ID")) return UniqueId::from_hex(*hex);
  if (launch.num_ranks == 1) return create_unique_id();
  SWITCHYARD_ASSIGN(const MeetingPlace place, choose_meeting_place(launch, get));
  const Meeting meeting{launch, get, deadline, place.identity};
  return place.store.path.empty() ? meet_at_port(meeting, place.store)
                                  : meet_at_file(meeting, place.store.path, place.private_folder);
}

}  // namespace switchyard
