#include "comm/coordinator.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <system_error>
#include <vector>

#include "base/env.hpp"
#include "comm/coordinator_loop.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {

Result<std::unique_ptr<Coordinator>> Coordinator::start(const CoordinatorOptions& options) {
  SWITCHYARD_TRY(crypto_ready());
  TcpEndpoint endpoint;
  if (options.endpoint) {
    endpoint = *options.endpoint;
  } else {
    SWITCHYARD_ASSIGN(endpoint, interface_endpoint(env().interface().value_or("lo")));
  }
  SWITCHYARD_ASSIGN(Fd listener, listen_at(endpoint));
  JobSecret secret;
  if (options.secret) {
    secret = *options.secret;
  } else {
    fill_random(secret.key);
    fill_random(secret.job_id);
  }
  Fd wakeup(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup.valid()) return Status::system_error("no event descriptor for the coordinator");

  std::unique_ptr<Coordinator> coordinator(new Coordinator);
  coordinator->id_ = UniqueId::make(endpoint, secret);
  coordinator->owner_pid_ = getpid();
  coordinator->loop_ = std::make_unique<Loop>(std::move(listener), std::move(wakeup), secret, options.startup_ns);
  try {
    coordinator->thread_ = std::thread([loop = coordinator->loop_.get()] { loop->run(); });
  } catch (const std::system_error& error) {
    return Status(Code::kSystemError, text("no thread for the coordinator: ", error.what()));
  }
  return coordinator;
}

Coordinator::~Coordinator() {
  if (!thread_.joinable()) return;
  if (getpid() != owner_pid_) {
    thread_.detach();
    return;
  }
  loop_->stop();
  thread_.join();
}

CoordinatorCounters Coordinator::counters() const { return loop_->counters(); }

bool Coordinator::ended() const { return loop_->ended(); }

void Coordinator::linger() const {
  if (getpid() != owner_pid_) return;
  wait_until([&] { return !loop_->is_ending(); }, Deadline::after_ns(3 * env().heartbeat_ms * kMillisecond));
}

namespace {

struct KeptCoordinators {
  KeptCoordinators() { (void)env(); }  // made before this, so it goes after
  ~KeptCoordinators() {
    for (const auto& coordinator : list) coordinator->linger();
  }
  std::mutex mutex;
  std::vector<std::unique_ptr<Coordinator>> list;
};

KeptCoordinators& kept_coordinators() {
  static KeptCoordinators kept;
  return kept;
}

}  // namespace

Result<UniqueId> create_unique_id(const CoordinatorOptions& options) {
  KeptCoordinators& kept = kept_coordinators();
  SWITCHYARD_ASSIGN(std::unique_ptr<Coordinator> coordinator, Coordinator::start(options));
  const UniqueId id = coordinator->id();
  const std::lock_guard lock(kept.mutex);
  std::erase_if(kept.list, [](const auto& old) { return old->ended(); });
  kept.list.push_back(std::move(coordinator));
  return id;
}

bool has_coordinator(const JobId& job_id) {
  KeptCoordinators& kept = kept_coordinators();
  const std::lock_guard lock(kept.mutex);
  return std::any_of(kept.list.begin(), kept.list.end(), [&](const auto& each) { return each->id().job_id == job_id; });
}

}  // namespace switchyard
