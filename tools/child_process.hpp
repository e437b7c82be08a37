// A child process with its output in two pipes and its death tied to ours: how ranks and helpers are started.
//
// It leads a process group of its own. So Ctrl-C at the terminal reaches only us, who pass it on exactly once and to
// the child's descendants too; and ending a child ends everything it started. It also means that a child can't read
// the terminal, so its standard input is empty, or a pipe from us.
//
// THREADS    start and use them from one thread that lives as long: a child dies with the thread that started it
//            (PR_SET_PDEATHSIG).
// OWNERSHIP  owns the child until reaped; the destructor kills and reaps what is left. If we are killed ourselves the
//            child dies too, but not what it started in turn.
// ERRORS     start() reports what the parent can see; a program that can't be executed writes the reason to its
//            own standard error and exits with 126 or 127, as a shell does.
#pragma once
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "switchyard/status.hpp"

namespace switchyard::tools {

// This process's environment as NAME=value.
std::vector<std::string> own_environment();

struct Program {
  std::vector<std::string> arguments;    // [0] is the path to execute
  std::vector<std::string> environment;  // NAME=value; complete, nothing is inherited beside it
  sigset_t signal_mask;                  // the child's
  rlimit open_files;                     // the child's
  bool reads_from_us = false;            // its standard input is a pipe, else empty

  // With this process's environment, mask and limit.
  static Program like_us(std::vector<std::string> arguments);
};

struct ExitReport {
  int exit_code = 0;   // 128 + signal if a signal ended it
  std::string reason;  // "exited with code 3", "was killed by SIGSEGV (Segmentation fault)"
  bool failed() const { return exit_code != 0; }
};

class ChildProcess {
 public:
  static Result<ChildProcess> start(const Program& program);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  // Read ends, non-blocking; the caller may close them.
  Fd& standard_output() { return output_; }
  Fd& standard_error() { return error_; }
  // Write end, if the program reads from us; closing it is how the child's input ends.
  Fd& standard_input() { return input_; }

  // REQUIRES alive().
  pid_t pid() const { return pid_; }
  bool alive() const { return pid_ > 0; }
  // Sends a signal to the child and all it started. Nothing happens once it was reaped.
  void send(int signal_number) const;
  // How it ended, once; nothing while it runs. BLOCKING never.
  // EFFECTS kills whatever the child left behind in its group.
  std::optional<ExitReport> try_reap();

 private:
  ChildProcess(pid_t pid, Fd input, Fd output, Fd error);
  pid_t pid_;
  Fd input_, output_, error_;
};

// The file that a shell would execute for this name, or an error that says where it was looked for.
Result<std::string> find_program(const std::string& name, const char* search_path);
// The file of this very program.
Result<std::string> own_path();

}  // namespace switchyard::tools
