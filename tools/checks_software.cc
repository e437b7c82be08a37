// Libraries and programs. Those that the library links are asked directly, the others are loaded or run: a package
// list would only say what should be there.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sodium.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>
#if __has_include(<rdma/fabric.h>)
#include <rdma/fabric.h>
#define SWITCHYARD_HAS_FABRIC_HEADER 1
#else
#define SWITCHYARD_HAS_FABRIC_HEADER 0
#endif

#include "tools/capture.hpp"
#include "tools/checks.hpp"

namespace switchyard::tools {
namespace {

constexpr uint64_t kProgramNs = 10 * kSecond;

// A shared library that stays loaded: drivers don't survive being unloaded.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE)) {}

  bool loaded() const { return handle_ != nullptr; }
  // Null if the library or the function is not there.
  template <class Function>
  Function* function(const char* name) const {
    return loaded() ? reinterpret_cast<Function*>(dlsym(handle_, name)) : nullptr;
  }

 private:
  void* handle_;
};

Check optional_check(std::string name, Finding finding, std::string detail, std::string fix = "") {
  return {std::move(name), Need::kOptional, finding, std::move(detail), std::move(fix)};
}

std::string first_line(const std::string& lines) { return lines.substr(0, lines.find('\n')); }

// The standard output of a program, or "" if it is missing, fails or takes too long.
std::string output_of(std::vector<std::string> arguments) {
  auto captured = capture(std::move(arguments), Deadline::after_ns(kProgramNs));
  return captured.ok() && !captured->report.failed() ? captured->output : "";
}

Check check_sodium() {
  if (sodium_init() >= 0) return {"libsodium", Need::kRequired, Finding::kOk, sodium_version_string(), ""};
  return {"libsodium", Need::kRequired, Finding::kMissing, "it does not start", "apt-get install libsodium23"};
}

Check check_hwloc() {
  const Library hwloc("libhwloc.so.15");
  if (auto* version = hwloc.function<unsigned()>("hwloc_get_api_version")) {
    return optional_check("hwloc", Finding::kOk, fmt::format("API {}.{}.{}", version() >> 16, version() >> 8 & 0xff,
                                                             version() & 0xff));
  }
  return optional_check("hwloc", Finding::kMissing, "no placement by cache and memory node",
                        "apt-get install libhwloc-dev");
}

#if SWITCHYARD_HAS_FABRIC_HEADER
std::string provider_names(const Library& fabric) {
  auto* get_info = fabric.function<decltype(fi_getinfo)>("fi_getinfo");
  auto* free_info = fabric.function<decltype(fi_freeinfo)>("fi_freeinfo");
  fi_info* list = nullptr;
  if (!get_info || !free_info || get_info(FI_VERSION(1, 9), nullptr, nullptr, 0, nullptr, &list) != 0) return "none";
  std::set<std::string> names;
  for (const fi_info* info = list; info != nullptr; info = info->next) {
    if (info->fabric_attr && info->fabric_attr->prov_name) names.insert(info->fabric_attr->prov_name);
  }
  free_info(list);
  return fmt::format("{}", fmt::join(names, " "));
}
#else
std::string provider_names(const Library&) { return "unknown: built without its header"; }
#endif

Check check_fabric() {
  const char* fix = "apt-get install libfabric-dev";
  const Library fabric("libfabric.so.1");
  auto* version = fabric.function<uint32_t()>("fi_version");
  if (!version) return optional_check("libfabric", Finding::kMissing, "no network between machines", fix);
  std::string detail = fmt::format("{}.{}, providers: {}", version() >> 16, version() & 0xffff, provider_names(fabric));
  if (!SWITCHYARD_HAS_FABRIC_HEADER) return optional_check("libfabric", Finding::kLimited, std::move(detail), fix);
  return optional_check("libfabric", Finding::kOk, std::move(detail));
}

Check check_mpi() {
  const std::string version = first_line(output_of({"mpirun", "--version"}));
  if (!version.empty()) return optional_check("Open MPI", Finding::kOk, version);
  return optional_check("Open MPI", Finding::kMissing, "no mpirun: neither the baseline nor that launcher",
                        "apt-get install openmpi-bin libopenmpi-dev");
}

Check check_nvcc() {
  std::vector<std::string> candidates{"nvcc"};
  if (const char* home = std::getenv("CUDA_HOME")) candidates.push_back(std::string(home) + "/bin/nvcc");
  candidates.push_back("/usr/local/cuda/bin/nvcc");
  for (const std::string& candidate : candidates) {
    const std::string output = output_of({candidate, "--version"});
    const size_t release = output.find("release ");
    if (release != std::string::npos) {
      return optional_check("CUDA toolkit", Finding::kOk, fmt::format("{}: {}", candidate,
                                                                      first_line(output.substr(release))));
    }
  }
  return optional_check("CUDA toolkit", Finding::kMissing, "no nvcc: the CUDA platform can't be built",
                        "apt-get install cuda-toolkit (from NVIDIA's package repository)");
}

Check check_driver() {
  const Library cuda("libcuda.so.1");
  auto* driver_version = cuda.function<int(int*)>("cuDriverGetVersion");
  auto* init = cuda.function<int(unsigned)>("cuInit");
  auto* device_count = cuda.function<int(int*)>("cuDeviceGetCount");
  const char* fix = "apt-get install cuda-drivers (from NVIDIA's package repository), then reboot";
  if (!driver_version || !init || !device_count) {
    return optional_check("CUDA driver", Finding::kMissing, "no libcuda.so.1: no GPUs here", fix);
  }
  int version = 0, num_devices = 0;
  driver_version(&version);
  const int error = init(0);
  if (error != 0) {
    return optional_check("CUDA driver", Finding::kLimited,
                          fmt::format("for CUDA {}.{}, but cuInit gives error {}", version / 1000, version % 1000 / 10,
                                      error), fix);
  }
  device_count(&num_devices);
  return optional_check("CUDA driver", Finding::kOk,
                        fmt::format("for CUDA {}.{}, {} GPUs", version / 1000, version % 1000 / 10, num_devices));
}

Check check_nccl() {
  const Library nccl("libnccl.so.2");
  auto* get_version = nccl.function<int(int*)>("ncclGetVersion");
  int version = 0;
  if (get_version && get_version(&version) == 0) {
    return optional_check("NCCL", Finding::kOk,
                          fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100));
  }
  return optional_check("NCCL", Finding::kMissing, "no libnccl.so.2",
                        "apt-get install libnccl2 libnccl-dev (from NVIDIA's package repository)");
}

// Python and the two packages, by their metadata: importing torch takes seconds.
std::vector<Check> check_python() {
  const std::string script =
      "import platform, importlib.metadata as m\n"
      "print('python3', platform.python_version())\n"
      "for name in ('numpy', 'torch'):\n"
      "  try: print(name, m.version(name))\n"
      "  except m.PackageNotFoundError: pass\n";
  const std::string output = "\n" + output_of({"python3", "-c", script});
  const auto check = [&](const std::string& name, const char* missing, const char* fix) {
    const size_t at = output.find("\n" + name + " ");
    if (at == std::string::npos) return optional_check(name, Finding::kMissing, missing, fix);
    return optional_check(name, Finding::kOk, first_line(output.substr(at + name.size() + 2)));
  };
  // Debian's packages serve Debian's interpreter only.
  const auto interpreter = find_program("python3", std::getenv("PATH"));
  const bool of_debian = interpreter.ok() && interpreter.value() == "/usr/bin/python3";
  return {check("python3", "no Python package", "apt-get install python3"),
          check("numpy", "arrays can't be passed from Python",
                of_debian ? "apt-get install python3-numpy" : "python3 -m pip install numpy"),
          check("torch", "no torch tensors, no gloo baseline", "python3 -m pip install torch")};
}

}  // namespace

std::vector<Check> check_software() {
  std::vector<Check> checks{check_sodium(), check_hwloc(),  check_fabric(), check_mpi(),
                            check_nvcc(),   check_driver(), check_nccl()};
  for (Check& check : check_python()) checks.push_back(std::move(check));
  return checks;
}

}  // namespace switchyard::tools
