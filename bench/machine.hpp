// What a benchmark or a report says about the machine and the build it ran on.
#pragma once
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace switchyard::bench {

// The first "key : value" or "key: value" line of a /proc file, or "" where there is none.
inline std::string proc_field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

struct Machine {
  std::string cpu_model;
  int num_cores = 0;          // online
  int num_usable_cores = 0;   // that this process may use; fewer where a launcher has pinned it
  uint64_t memory_bytes = 0;  // physical
};

inline Machine this_machine() {
  Machine machine;
  machine.cpu_model = proc_field("/proc/cpuinfo", "model name");
  if (machine.cpu_model.empty()) machine.cpu_model = "unknown CPU";
  machine.num_cores = int(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t usable;
  machine.num_usable_cores =
      sched_getaffinity(0, sizeof(usable), &usable) == 0 ? CPU_COUNT(&usable) : machine.num_cores;
  machine.memory_bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  return machine;
}

inline std::string this_build() {
#ifdef __OPTIMIZE__
  const std::string optimised = "optimised";
#else
  const std::string optimised = "not optimised";
#endif
#ifdef __clang__
  return std::string("Clang ") + __clang_version__ + ", " + optimised;
#else
  return std::string("GCC ") + __VERSION__ + ", " + optimised;
#endif
}

}  // namespace switchyard::bench
