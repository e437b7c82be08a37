// The C++ face over the internal classes: Status becomes an exception here and nowhere below.
#include "comm/face.hpp"

#include <cstring>
#include <map>
#include <optional>

#include "base/env.hpp"
#include "base/guarded.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "comm/coordinator.hpp"
#include "comm/launch_env.hpp"
#include "comm/rendezvous.hpp"
#include "platform/host/stream.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard {
namespace {

using face::check;
using face::take;

std::unique_ptr<Communicator> create(const UniqueId& id, int rank, int num_ranks, DeviceId device) {
  return take(Communicator::create(id, rank, num_ranks, {.runtime = take(find_runtime(device))}));
}

std::unique_ptr<Communicator> join(const EnvGetter& environment, DeviceId device) {
  const LaunchEnv launch = take(read_launch_env(environment));
  const Deadline deadline = Deadline::after_ns(env().timeout_ms * kMillisecond);
  const UniqueId id = take(rendezvous(launch, environment, deadline));
  return create(id, launch.rank, launch.num_ranks, device);
}

// What failed on the stream is its synchronize()'s to tell.
bool wait(Stream& stream, Deadline deadline) {
  const uint64_t posted = stream.posted();
  static_cast<void>(stream.synchronize(deadline));
  return stream.completed() >= posted;
}

}  // namespace

UniqueIdBytes make_unique_id() {
  const UniqueId id = take(create_unique_id());
  UniqueIdBytes bytes;
  std::memcpy(bytes.data(), &id, sizeof(id));
  return bytes;
}

Comm::Comm(std::unique_ptr<Communicator> comm) : comm_(std::move(comm)) {}
Comm::~Comm() = default;
Comm::Comm(Comm&&) noexcept = default;
Comm& Comm::operator=(Comm&&) noexcept = default;

Comm::Comm(const UniqueIdBytes& bytes, int rank, int num_ranks, DeviceId device) {
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), bytes.data(), sizeof(id));
  check(id.validate());
  comm_ = create(id, rank, num_ranks, device);
}

Comm Comm::from_environment(DeviceId device) { return Comm(join(process_environment(), device)); }

Comm Comm::from_store(const std::string& store, int rank, int num_ranks, const std::string& job_key, DeviceId device) {
  // As if a launcher had said it; what else is in the environment does not count.
  const std::map<std::string, std::string> said = {{"SWITCHYARD_RANK", std::to_string(rank)},
                                                   {"SWITCHYARD_NUM_RANKS", std::to_string(num_ranks)},
                                                   {"SWITCHYARD_STORE", store},
                                                   {"SWITCHYARD_JOB_KEY", job_key}};
  const auto environment = [&](const char* name) -> std::optional<std::string> {
    const auto found = said.find(name);
    if (found == said.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
  return Comm(join(environment, device));
}

int Comm::rank() const { return comm_->rank(); }
int Comm::num_ranks() const { return comm_->num_ranks(); }
int Comm::num_nodes() const { return comm_->topology().num_nodes(); }
DeviceId Comm::device() const { return comm_->runtime().device(); }

Comm Comm::split(int color, int key) const {
  if (color < 0) throw Error(Status::invalid_argument(text("color is ", color, ", allowed 0 and more")));
  return Comm(take(comm_->split(color, key)));
}

void Comm::barrier() const { check(comm_->barrier()); }
DeviceComm Comm::device_comm(const DeviceCommRequirements& requirements) const {
  return take(comm_->create_device_comm(requirements));
}
void Comm::abort(const std::string& reason) const { comm_->abort(reason); }
void Comm::check_async_error() const { check(comm_->async_error()); }
bool Comm::wait_for(StreamRef stream, uint64_t timeout_ns) const {
  const Deadline deadline = Deadline::after_ns(timeout_ns);
  if (device().kind == DeviceKind::kHost) return wait(*static_cast<Stream*>(stream.handle), deadline);
  const Status done = comm_->runtime().synchronize(stream, deadline);
  if (done.code() == Code::kDeviceError) throw Error(done);
  return done.ok();
}
void Comm::claim_thread() const { comm_->claim_thread(); }

SymmetricMemory::SymmetricMemory(const Comm& comm, size_t num_bytes)
    : comm_(&comm.internal()), data_(take(comm_->runtime().allocate(num_bytes))), num_bytes_(num_bytes), window_(nullptr) {
  const Status registered = guarded([&]() -> Status {
    SWITCHYARD_ASSIGN(window_, comm_->register_window(data_, num_bytes));
    return {};
  });
  if (registered.ok()) return;
  if (const Status freed = comm_->free_after_network(data_); !freed.ok()) log(LogLevel::kWarn, freed.to_string());
  throw Error(registered);
}

SymmetricMemory::~SymmetricMemory() {
  if (window_ == nullptr) return;
  const Status gone = comm_->deregister_window(window_);
  // After a failure nobody knows whether the others are done with it.
  const Status freed = comm_->release(data_, gone.ok() && comm_->async_error().ok());
  for (const Status& status : {gone, freed}) {
    if (!status.ok()) log(LogLevel::kWarn, status.to_string());
  }
}

SymmetricMemory::SymmetricMemory(SymmetricMemory&& other) noexcept
    : comm_(other.comm_), data_(other.data_), num_bytes_(other.num_bytes_), window_(std::exchange(other.window_, nullptr)) {}

DeviceId SymmetricMemory::device() const { return comm_->runtime().device(); }
WindowView SymmetricMemory::view() const { return comm_->view(*window_); }

HostStream::HostStream() : stream_(take(Stream::create())) {}
HostStream::~HostStream() = default;
HostStream::HostStream(HostStream&&) noexcept = default;

void HostStream::launch(std::function<void(const HostPlatform&)> kernel) {
  check(stream_->post([kernel = std::move(kernel)](Stream& stream) {
    try {
      kernel(HostPlatform{});
    } catch (const std::exception& error) {
      stream.fail(Status::internal(text("a kernel threw: ", error.what())));
    }
  }));
}

void HostStream::synchronize(uint64_t timeout_ns) { check(stream_->synchronize(Deadline::after_ns(timeout_ns))); }
bool HostStream::wait_for(uint64_t timeout_ns) { return wait(*stream_, Deadline::after_ns(timeout_ns)); }
Status HostStream::take_error() { return stream_->take_error(); }
uint64_t HostStream::num_posted() const { return stream_->posted(); }
uint64_t HostStream::num_completed() const { return stream_->completed(); }

}  // namespace switchyard
