#include "tools/launcher.hpp"

#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "tools/child_process.hpp"
#include "tools/exit_codes.hpp"
#include "tools/line_prefixer.hpp"
#include "tools/output_queue.hpp"

namespace switchyard::tools {
namespace {

// A process that left its rank's group may hold the pipes open for ever; the job waits no longer than this for it.
constexpr uint64_t kDrainNs = kSecond;
// The first rank to end is often one that heard of another's failure: that one is to say what it was before it is asked to end.
constexpr uint64_t kLastWordsNs = 300 * kMillisecond;

// One of the two output streams of a rank, on its way to ours of the same kind.
struct Stream {
  Fd* source;
  LinePrefixer lines;
  OutputQueue* sink;

  bool readable() const { return source->valid() && !sink->full(); }

  // Takes what is there without waiting; at the end of the stream closes it.
  void pull() {
    char buffer[65536];
    while (readable()) {
      const ssize_t num_bytes = read(source->get(), buffer, sizeof(buffer));
      if (num_bytes > 0) {
        lines.feed({buffer, size_t(num_bytes)}, sink->tail());
      } else if (num_bytes == 0 || (errno != EINTR && errno != EAGAIN)) {
        close();
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }
  void close() {
    lines.finish(sink->tail());
    source->reset();
  }
};

// A thousand ranks need more open files here than many a default allows.
void raise_open_files(const rlimit& before) {
  const rlimit raised{before.rlim_max, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
}

class Job {
 public:
  Job(const JobSpec& spec, SignalSource& signals) : spec_(spec), signals_(signals) {}

  Status start() {
    Program program = Program::like_us(spec_.command);
    program.signal_mask = signals_.original_mask();
    raise_open_files(program.open_files);
    ranks_.reserve(spec_.rank_environments.size());  // streams point into it
    for (const auto& environment : spec_.rank_environments) {
      program.environment = environment;
      auto rank = ChildProcess::start(program);
      if (!rank.ok()) {
        return {rank.status().code(), text("rank ", ranks_.size(), ": ", rank.status().message())};
      }
      const std::string prefix = text("[", ranks_.size(), "] ");
      ranks_.push_back(*std::move(rank));
      streams_.push_back({&ranks_.back().standard_output(), LinePrefixer(prefix), &output_});
      streams_.push_back({&ranks_.back().standard_error(), LinePrefixer(prefix), &error_});
    }
    return {};
  }

  int run() {
    while (!done()) {
      wait_for_events();
      while (const auto signal_number = signals_.next()) on_signal(*signal_number);
      reap();
      for (Stream& stream : streams_) stream.pull();
      on_time();
      output_.flush();
      error_.flush();
      if (output_.closed() && !ending()) on_output_closed();
    }
    return exit_code();
  }

 private:
  bool ending() const { return cause_.has_value(); }
  size_t num_alive() const {
    return size_t(std::count_if(ranks_.begin(), ranks_.end(), [](const ChildProcess& rank) { return rank.alive(); }));
  }
  std::string names_alive() const {
    std::string names;
    for (size_t i = 0; i < ranks_.size(); i++) {
      if (ranks_[i].alive()) names += text(names.empty() ? "" : ", ", i);
    }
    return text(num_alive() == 1 ? "rank " : "ranks ", names);
  }

  bool done() const {
    if (num_alive() > 0) return false;
    if (given_up_) return true;
    const bool streams_open =
        std::any_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.source->valid(); });
    return !streams_open && output_.empty() && error_.empty();
  }

  void say(const std::string& line) { error_.tail() += text("switchyard run: ", line, "\n"); }

  void wait_for_events() {
    std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}};
    for (const Stream& stream : streams_) {
      if (stream.readable()) entries.push_back({stream.source->get(), POLLIN, 0});
    }
    for (const OutputQueue* queue : {&output_, &error_}) {
      if (!queue->empty()) entries.push_back({queue->fd(), POLLOUT, 0});
    }
    const Deadline next = std::min({spec_.deadline, ask_at_, kill_at_, drain_by_},
                                   [](const Deadline& a, const Deadline& b) { return a.at_ns() < b.at_ns(); });
    // What was woken for is found out by asking each source, so the answer itself is not needed; errors are retried.
    poll(entries.data(), entries.size(), next.remaining_ms());
  }

  void reap() {
    for (size_t i = 0; i < ranks_.size(); i++) {
      const auto report = ranks_[i].try_reap();
      if (!report) continue;
      // The rank's last words come before our report of its end.
      streams_[2 * i].pull();
      streams_[2 * i + 1].pull();
      if (num_alive() == 0) drain_by_ = Deadline::after_ns(kDrainNs);
      if (!report->failed()) continue;
      any_failed_ = true;
      if (ending()) continue;
      say(text("rank ", i, " ", report->reason, num_alive() > 0 ? text("; ending ", names_alive()) : ""));
      cause_ = report->exit_code;
      ask_at_ = Deadline::after_ns(kLastWordsNs);
    }
  }

  void on_signal(int signal_number) {
    if (signal_number == SIGCHLD || signal_number == SIGPIPE) return;  // reap() and flush() notice by themselves
    if (ending()) {
      given_up_ = true;
      return kill_all();
    }
    say(text("passing SIG", sigabbrev_np(signal_number), " on to ", names_alive()));
    end_all(kExitSignalBase + signal_number, signal_number);
    interrupted_ = true;
  }

  void on_time() {
    if (ask_at_.expired()) ask_all(SIGTERM);
    if (kill_at_.expired()) {
      if (num_alive() > 0) say(text(names_alive(), " did not end in time after being asked to; killing"));
      kill_all();
    }
    if (drain_by_.expired()) {
      drain_by_ = Deadline::never();
      for (Stream& stream : streams_) stream.close();
    }
    if (!ending() && spec_.deadline.expired()) {
      say(text("time limit reached; ending ", names_alive()));
      end_all(kExitTimeout, SIGTERM);
    }
    if (ending() || num_alive() == 0) spec_.deadline = Deadline::never();
  }

  void on_output_closed() {
    say(text("standard output was closed; ending ", names_alive()));
    end_all(kExitSignalBase + SIGPIPE, SIGTERM);
  }

  void end_all(int exit_code, int signal_number) {
    cause_ = exit_code;
    ask_all(signal_number);
  }
  void ask_all(int signal_number) {
    for (const ChildProcess& rank : ranks_) rank.send(signal_number);
    ask_at_ = Deadline::never();
    kill_at_ = Deadline::after_ns(spec_.grace_ns);
  }
  void kill_all() {
    for (const ChildProcess& rank : ranks_) rank.send(SIGKILL);
    kill_at_ = Deadline::never();
  }

  // Ranks that take a signal as the request it is and exit with 0 have not failed.
  int exit_code() const { return interrupted_ && !any_failed_ ? 0 : cause_.value_or(0); }

  JobSpec spec_;
  SignalSource& signals_;
  OutputQueue output_{STDOUT_FILENO}, error_{STDERR_FILENO};
  std::vector<ChildProcess> ranks_;
  std::vector<Stream> streams_;  // of rank i: 2 * i is standard output, 2 * i + 1 standard error
  std::optional<int> cause_;     // why the job is being ended, as an exit code; nothing while all is well
  bool interrupted_ = false;     // the cause was a signal to us
  bool any_failed_ = false;
  bool given_up_ = false;  // output that nobody takes is dropped
  Deadline ask_at_ = Deadline::never(), kill_at_ = Deadline::never(), drain_by_ = Deadline::never();
};

}  // namespace

Result<int> run_job(const JobSpec& spec, SignalSource& signals) {
  Job job(spec, signals);
  SWITCHYARD_TRY(job.start());
  return job.run();
}

}  // namespace switchyard::tools
