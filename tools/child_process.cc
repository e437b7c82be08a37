#include "tools/child_process.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <utility>

#include "tools/exit_codes.hpp"

namespace switchyard::tools {
namespace {

struct Pipe {
  Fd read_end, write_end;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Status::system_error("making a pipe for a child");
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

Result<Pipe> make_output_pipe() {
  SWITCHYARD_ASSIGN(Pipe pipe, make_pipe());
  if (fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK) != 0) {
    return Status::system_error("setting up a pipe for a child's output");
  }
  return pipe;
}

// The child's end, and ours if there is one.
Result<Pipe> make_input(bool from_us) {
  if (from_us) return make_pipe();
  Pipe input{Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)), Fd()};
  if (!input.read_end.valid()) return Status::system_error("opening /dev/null as a child's standard input");
  return input;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

struct ChildPlan {
  const Program* program;
  char* const* arguments;
  char* const* environment;
  int input, output, error;
  pid_t parent;
};

void write_text(const char* text) {
  // Nobody is left to tell if this fails.
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

// The child between fork and exec: only async-signal-safe calls, since other threads may have held any lock.
[[noreturn]] void run_child(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(kExitFailure);  // it died before we asked to be told
  dup2(plan.input, STDIN_FILENO);
  dup2(plan.output, STDOUT_FILENO);
  dup2(plan.error, STDERR_FILENO);
  setrlimit(RLIMIT_NOFILE, &plan.program->open_files);
  sigprocmask(SIG_SETMASK, &plan.program->signal_mask, nullptr);
  execve(plan.arguments[0], plan.arguments, plan.environment);
  const int error = errno;
  write_text("cannot execute '");
  write_text(plan.arguments[0]);
  write_text("': ");
  write_text(strerrordesc_np(error));
  write_text("\n");
  _exit(error == ENOENT ? kExitNotFound : kExitCannotExecute);
}

ExitReport describe(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {info.si_status, text("exited with code ", info.si_status)};
  const char* name = sigabbrev_np(info.si_status);
  const char* description = sigdescr_np(info.si_status);
  return {kExitSignalBase + info.si_status,
          text("was killed by ", name ? text("SIG", name) : text("signal ", info.si_status), " (",
               description ? description : "no name", info.si_code == CLD_DUMPED ? ", core dumped)" : ")")};
}

bool executable_file(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::vector<std::string> own_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; entry++) result.emplace_back(*entry);
  return result;
}

Program Program::like_us(std::vector<std::string> arguments) {
  Program program{std::move(arguments), own_environment(), {}, {}, false};
  sigprocmask(SIG_BLOCK, nullptr, &program.signal_mask);
  getrlimit(RLIMIT_NOFILE, &program.open_files);
  return program;
}

Result<ChildProcess> ChildProcess::start(const Program& program) {
  SWITCHYARD_ASSIGN(Pipe input, make_input(program.reads_from_us));
  SWITCHYARD_ASSIGN(Pipe output, make_output_pipe());
  SWITCHYARD_ASSIGN(Pipe error, make_output_pipe());
  const std::vector<char*> arguments = pointers(program.arguments), environment = pointers(program.environment);
  const ChildPlan plan{&program,
                       arguments.data(),
                       environment.data(),
                       input.read_end.get(),
                       output.write_end.get(),
                       error.write_end.get(),
                       getpid()};
  const pid_t pid = fork();
  if (pid < 0) return Status::system_error("starting a child process");
  if (pid == 0) run_child(plan);
  // The child does the same; whoever is second changes nothing, and send() may follow at once.
  setpgid(pid, pid);
  return ChildProcess(pid, std::move(input.write_end), std::move(output.read_end), std::move(error.read_end));
}

ChildProcess::ChildProcess(pid_t pid, Fd input, Fd output, Fd error)
    : pid_(pid), input_(std::move(input)), output_(std::move(output)), error_(std::move(error)) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      error_(std::move(other.error_)) {}

ChildProcess::~ChildProcess() {
  if (!alive()) return;
  send(SIGKILL);
  waitpid(pid_, nullptr, 0);  // ends: nothing survives SIGKILL
}

void ChildProcess::send(int signal_number) const {
  if (alive()) kill(-pid_, signal_number);
}

std::optional<ExitReport> ChildProcess::try_reap() {
  if (!alive()) return std::nullopt;
  siginfo_t info{};
  // WNOWAIT keeps the process a zombie, and so its number ours, until its group has been dealt with.
  if (waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return std::nullopt;
  send(SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
  return describe(info);
}

Result<std::string> find_program(const std::string& name, const char* search_path) {
  if (name.find('/') != std::string::npos) {
    if (executable_file(name)) return name;
    return Status::invalid_argument(text("program '", name, "' is not an executable file; check the path"));
  }
  std::istringstream folders(search_path ? search_path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (executable_file(path)) return path;
  }
  return Status::invalid_argument(
      text("program '", name, "' not found in PATH; give its path (./", name, ") or check the name"));
}

Result<std::string> own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status(Code::kSystemError, text("finding this program's own file: ", error.message()));
  return path.string();
}

}  // namespace switchyard::tools
