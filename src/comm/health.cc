#include "comm/health.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/log.hpp"

namespace switchyard {

Result<std::unique_ptr<Health>> Health::create(Runtime& runtime, int num_ranks, std::span<const Watched> processes) {
  std::unique_ptr<Health> health(new Health(runtime, num_ranks));
  SWITCHYARD_ASSIGN(void* words, runtime.allocate_shared(size_t(num_ranks + 2) * sizeof(uint32_t)));
  health->words_ = static_cast<uint32_t*>(words);
  if (processes.empty()) return health;
  health->stop_.reset(eventfd(0, EFD_CLOEXEC));
  if (!health->stop_.valid()) return Status::system_error("eventfd");
  std::vector<int> ranks;
  std::vector<Fd> pidfds;
  std::vector<pollfd> polled{{health->stop_.get(), POLLIN, 0}};
  for (const Watched& process : processes) {
    Fd pidfd(int(syscall(SYS_pidfd_open, process.pid, 0)));
    if (!pidfd.valid()) {
      // Already gone: the caller's next exchange fails too; say it now where kernels look.
      if (errno == ESRCH) {
        health->mark_gone(process.rank);
        continue;
      }
      return Status::system_error(text("watching process ", process.pid, " of rank ", process.rank));
    }
    ranks.push_back(process.rank);
    polled.push_back({pidfd.get(), POLLIN, 0});
    pidfds.push_back(std::move(pidfd));
  }
  try {
    health->watcher_ = std::thread([self = health.get(), ranks = std::move(ranks), pidfds = std::move(pidfds),
                                    polled = std::move(polled)]() mutable { self->watch(ranks, polled); });
  } catch (const std::system_error& error) {  // the only way std::thread has to refuse
    return Status(Code::kSystemError, text("no thread to watch the processes of this node: ", error.what()));
  }
  return health;
}

Health::~Health() {
  if (watcher_.joinable()) {
    eventfd_write(stop_.get(), 1);
    watcher_.join();
  }
  if (words_ == nullptr) return;
  if (const Status freed = runtime_.free_shared(words_); !freed.ok()) log(LogLevel::kWarn, freed.message());
}

// Needs no memory: whoever stopped watching for want of it would let the others wait for the dead.
void Health::watch(const std::vector<int>& ranks, std::vector<pollfd>& polled) noexcept {
  for (;;) {
    if (poll(polled.data(), nfds_t(polled.size()), -1) < 0) {
      // Out of memory for a moment.
      if (errno != EINTR) poll(nullptr, 0, 1);
      continue;
    }
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      log(LogLevel::kInfo, "the process of rank ", ranks[i - 1], " on this node is gone");
      mark_gone(ranks[i - 1]);
      polled[i].fd = -1;  // poll() skips it from now on
      polled[i].revents = 0;
    }
  }
}

// The words carry no data, and are read relaxed: a kernel that sees one looks at the peer's last word once more
// (PeerContext::await_word). Release: who has seen that a rank is missing, and looks for it behind a fence, finds it.
void Health::raise(int word) { std::atomic_ref<uint32_t>(words_[word]).store(1, std::memory_order_release); }
bool Health::raised(int word) const { return std::atomic_ref<uint32_t>(words_[word]).load(std::memory_order_relaxed) != 0; }

void Health::mark_gone(int rank) { raise(rank); }
void Health::mark_dead(int rank) {
  raise(rank);
  mark_incomplete();
}
void Health::mark_incomplete() { raise(num_ranks_ + 1); }
bool Health::gone(int rank) const { return raised(rank); }
void Health::abort() {
  raise(num_ranks_);
  raise(num_ranks_ + 1);
}
bool Health::aborted() const { return raised(num_ranks_); }

}  // namespace switchyard
