#include "tools/launcher.hpp"

#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "tools/child_process.hpp"
#include "tools/child_stream.hpp"
#include "tools/exit_codes.hpp"
#include "tools/output_queue.hpp"

namespace switchyard::tools {
namespace {

// A process that left its group may hold the pipes open for ever; the job waits no longer than this for it.
constexpr uint64_t kDrainNs = kSecond;
// The first rank to end is often one that heard of another's failure: that one is to say what it was before it is asked
// to end.
constexpr uint64_t kLastWordsNs = 300 * kMillisecond;

// From the end of a child's input to killing it: the way to what it has started elsewhere, and back.
constexpr uint64_t kFarEndNs = 2 * kSecond;

// A thousand ranks need more open files here than many a default allows.
void raise_open_files(const rlimit& before) {
  const rlimit raised{before.rlim_max, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
}

class Job {
 public:
  Job(const JobSpec& spec, SignalSource& signals) : spec_(spec), signals_(signals) {}

  Status start() {
    Program program = Program::like_us({});
    program.signal_mask = signals_.original_mask();
    raise_open_files(program.open_files);
    children_.reserve(spec_.children.size());  // streams point into it
    for (const JobChild& wanted : spec_.children) {
      program.arguments = wanted.command;
      program.environment = wanted.environment;
      program.reads_from_us = wanted.input.has_value();
      auto started = ChildProcess::start(program);
      if (!started.ok()) {
        return {started.status().code(), text(name_of(children_.size()), ": ", started.status().message())};
      }
      connect(children_.emplace_back(*std::move(started)), wanted);
    }
    return {};
  }

  int run() {
    while (!done()) {
      wait_for_events();
      while (const auto signal_number = signals_.next()) on_signal(*signal_number);
      reap();
      for (ChildStream& stream : streams_) stream.pull();
      while (const auto told = read_lifeline()) on_lifeline(*told);
      on_time();
      for (OutputQueue& input : inputs_) input.flush();
      output_.flush();
      error_.flush();
      if (output_.closed() && !ending()) on_output_closed();
    }
    return exit_code();
  }

 private:
  void connect(ChildProcess& child, const JobChild& wanted) {
    // A line that comes with a prefix may be longer by it.
    const size_t max_line_bytes = LinePrefixer::kMaxLineBytes * (wanted.prefix.empty() ? 2 : 1);
    const LinePrefixer lines(wanted.prefix, max_line_bytes);
    streams_.push_back({&child.standard_output(), lines, &output_});
    streams_.push_back({&child.standard_error(), lines, &error_});
    inputs_.emplace_back(child.standard_input().get()).tail() = wanted.input.value_or("");
  }

  bool ending() const { return cause_.has_value(); }
  size_t num_alive() const {
    return size_t(
        std::count_if(children_.begin(), children_.end(), [](const ChildProcess& child) { return child.alive(); }));
  }
  std::string name_of(size_t i) const { return text(spec_.kind, " ", spec_.children[i].name); }
  std::string names_alive() const {
    std::string names;
    for (size_t i = 0; i < children_.size(); i++) {
      if (children_[i].alive()) names += text(names.empty() ? "" : ", ", spec_.children[i].name);
    }
    return text(spec_.kind, num_alive() == 1 ? " " : "s ", names);
  }

  bool done() const {
    if (num_alive() > 0) return false;
    if (given_up_) return true;
    const bool streams_open =
        std::any_of(streams_.begin(), streams_.end(), [](const ChildStream& stream) { return stream.source->valid(); });
    return !streams_open && output_.empty() && error_.empty();
  }

  void say(const std::string& line) { error_.tail() += text(spec_.speaker, ": ", line, "\n"); }

  void wait_for_events() {
    std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}, {spec_.lifeline, POLLIN, 0}};
    for (const ChildStream& stream : streams_) {
      if (stream.readable()) entries.push_back({stream.source->get(), POLLIN, 0});
    }
    for (const OutputQueue* queue : {&output_, &error_}) {
      if (!queue->empty()) entries.push_back({queue->fd(), POLLOUT, 0});
    }
    for (const OutputQueue& input : inputs_) {
      if (!input.empty()) entries.push_back({input.fd(), POLLOUT, 0});
    }
    const Deadline next = std::min({spec_.deadline, ask_at_, kill_at_, drain_by_},
                                   [](const Deadline& a, const Deadline& b) { return a.at_ns() < b.at_ns(); });
    // What was woken for is found out by asking each source, so the answer itself is not needed; errors are retried.
    poll(entries.data(), entries.size(), next.remaining_ms());
  }

  void reap() {
    for (size_t i = 0; i < children_.size(); i++) {
      const auto report = children_[i].try_reap();
      if (!report) continue;
      // The child's last words come before our report of its end.
      streams_[2 * i].pull();
      streams_[2 * i + 1].pull();
      if (num_alive() == 0) drain_by_ = Deadline::after_ns(kDrainNs);
      if (!report->failed()) continue;
      any_failed_ = true;
      if (ending()) continue;
      say(text(name_of(i), " ", report->reason, advice_on(i, *report),
               num_alive() > 0 ? text("; ending ", names_alive()) : ""));
      cause_ = report->exit_code;
      ask_at_ = Deadline::after_ns(kLastWordsNs);
    }
  }

  // Codes of the shell and of ssh: what was to run there may have had no chance to say anything.
  std::string advice_on(size_t i, const ExitReport& report) const {
    const std::string& advice = spec_.children[i].advice;
    const bool may_not_have_run = report.exit_code == kExitCannotExecute || report.exit_code == kExitNotFound ||
                                  report.exit_code == kExitUnreachable;
    return may_not_have_run && !advice.empty() ? text(": ", advice) : "";
  }

  // A signal; kLifelineEnd at its end, once; nothing while nothing has come.
  static constexpr int kLifelineEnd = -1;
  std::optional<int> read_lifeline() {
    pollfd entry{spec_.lifeline, POLLIN, 0};
    if (poll(&entry, 1, 0) <= 0) return std::nullopt;
    unsigned char signal_number;
    if (read(spec_.lifeline, &signal_number, 1) == 1) return signal_number;
    spec_.lifeline = -1;
    return kLifelineEnd;
  }
  // Says nothing: whoever holds the other end knows, or is gone.
  void on_lifeline(int told) {
    if (ending()) {
      if (told == kLifelineEnd) kill_all();
      return;
    }
    const bool known = told == SIGINT || told == SIGHUP || told == SIGQUIT;
    const int signal_number = known ? told : SIGTERM;
    end_all(kExitSignalBase + signal_number, signal_number);
    interrupted_ = true;
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
      for (ChildStream& stream : streams_) stream.close();
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
    for (size_t i = 0; i < children_.size(); i++) {
      if (spec_.children[i].input) inputs_[i].tail() += char(signal_number);
      else children_[i].send(signal_number);
    }
    ask_at_ = Deadline::never();
    kill_at_ = Deadline::after_ns(spec_.grace_ns);
  }
  void kill_all() {
    kill_at_ = Deadline::never();
    for (size_t i = 0; i < children_.size(); i++) {
      // What it was told before has to be there before the end is. Then it has a moment to kill what is its own.
      if (children_[i].alive() && children_[i].standard_input().valid()) {
        inputs_[i].flush();
        inputs_[i].close();
        children_[i].standard_input().reset();
        kill_at_ = Deadline::after_ns(kFarEndNs);
      } else {
        children_[i].send(SIGKILL);
      }
    }
  }

  // Children that take a signal as the request it is and exit with 0 have not failed.
  int exit_code() const { return interrupted_ && !any_failed_ ? 0 : cause_.value_or(0); }

  JobSpec spec_;
  SignalSource& signals_;
  OutputQueue output_{STDOUT_FILENO}, error_{STDERR_FILENO};
  std::vector<ChildProcess> children_;
  std::vector<ChildStream> streams_;  // of child i: 2 * i is standard output, 2 * i + 1 standard error
  std::vector<OutputQueue> inputs_;   // of child i; empty where it has none
  std::optional<int> cause_;          // why the job is being ended, as an exit code; nothing while all is well
  bool interrupted_ = false;          // the cause was a signal to us
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
