// Processor, memory and kernel.
#include <fcntl.h>
#include <fmt/format.h>
#include <hwy/targets.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <bit>
#include <fstream>
#include <string>

#include "base/fd.hpp"
#include "bench/machine.hpp"
#include "platform/host/rows.hpp"
#include "tools/checks.hpp"

namespace switchyard::tools {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string target_names(int64_t targets) {
  std::string names;
  for (uint64_t left = uint64_t(targets); left != 0; left &= left - 1) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", hwy::TargetName(int64_t(left & (~left + 1))));
  }
  return names;
}

Check check_simd() {
  return {"simd", Need::kRequired, Finding::kOk,
          fmt::format("{} in use; the processor has {}", rows::target_name(), target_names(hwy::SupportedTargets())),
          ""};
}

Check check_cores(const bench::Machine& machine) {
  std::string detail = fmt::format("{}, {} of {} cores usable", machine.cpu_model, machine.num_usable_cores,
                                   machine.num_cores);
  if (machine.num_usable_cores > 1) return {"cores", Need::kOptional, Finding::kOk, detail, ""};
  return {"cores", Need::kOptional, Finding::kLimited, detail,
          "one core runs all ranks in turns; start without taskset or raise the container's --cpus"};
}

Check check_memory(const bench::Machine& machine) {
  const std::string available = bench::proc_field("/proc/meminfo", "MemAvailable");
  return {"memory", Need::kOptional, Finding::kOk,
          fmt::format("{:.1f} GiB, available {}", double(machine.memory_bytes) / kGiB,
                      available.empty() ? "unknown" : available), ""};
}

Check check_memfd() {
  const Fd file(memfd_create("switchyard-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool sealed = file.valid() && ftruncate(file.get(), 4096) == 0 &&
                      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  // A seal that the kernel takes and doesn't keep would let a peer pull the memory from under us.
  if (sealed && ftruncate(file.get(), 0) != 0) {
    return {"memfd", Need::kRequired, Finding::kOk, "anonymous shared memory with seals", ""};
  }
  return {"memfd", Need::kRequired, Finding::kMissing, "memfd_create with sealing does not work here",
          "needs Linux 3.17; if a filter blocks it: docker run --security-opt seccomp=unconfined ..."};
}

Check check_pidfd() {
  const Fd self(int(syscall(SYS_pidfd_open, getpid(), 0)));
  if (self.valid()) return {"pidfd", Need::kRequired, Finding::kOk, "the death of a peer is noticed at once", ""};
  return {"pidfd", Need::kRequired, Finding::kMissing, "pidfd_open does not work here",
          "needs Linux 5.3; if a filter blocks it: docker run --security-opt seccomp=unconfined ..."};
}

// The choice in force of a file such as "always [advise] never"; "" if there is no such file.
std::string chosen_word(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const size_t open_at = line.find('['), close_at = line.find(']');
  if (open_at == std::string::npos || close_at == std::string::npos || close_at < open_at) return "";
  return line.substr(open_at + 1, close_at - open_at - 1);
}

Check check_huge_pages() {
  const char* path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string shmem = chosen_word(path);
  const std::string reserved = bench::proc_field("/proc/meminfo", "HugePages_Total");
  std::string detail = fmt::format("for shared memory: {}; reserved huge pages: {}", shmem.empty() ? "unknown" : shmem,
                                   reserved.empty() ? "unknown" : reserved);
  if (shmem != "" && shmem != "never" && shmem != "deny") {
    return {"huge pages", Need::kOptional, Finding::kOk, detail, ""};
  }
  return {"huge pages", Need::kOptional, Finding::kLimited, detail, fmt::format("echo advise | sudo tee {}", path)};
}

Check check_locked_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) {
    return {"locked memory", Need::kOptional, Finding::kOk, "unlimited", ""};
  }
  return {"locked memory", Need::kOptional, Finding::kLimited,
          fmt::format("{:.1f} MiB; RDMA networks register whole windows", double(limit.rlim_cur) / (1024.0 * 1024.0)),
          "ulimit -l unlimited (as root, or memlock in /etc/security/limits.conf; docker run --ulimit memlock=-1)"};
}

Check check_kernel() {
  utsname name{};
  uname(&name);
  return {"kernel", Need::kOptional, Finding::kOk,
          fmt::format("{} {} {}", name.sysname, name.release, name.machine), ""};
}

}  // namespace

std::vector<Check> check_system() {
  const bench::Machine machine = bench::this_machine();
  return {{"build", Need::kOptional, Finding::kOk,
           fmt::format("switchyard {}, {}", SWITCHYARD_VERSION, bench::this_build()), ""},
          check_kernel(),
          check_cores(machine),
          check_simd(),
          check_memory(machine),
          check_memfd(),
          check_pidfd(),
          check_huge_pages(),
          check_locked_memory()};
}

}  // namespace switchyard::tools
