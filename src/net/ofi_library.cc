#include "net/ofi_library.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace switchyard {
namespace {

std::mutex g_handlers_mutex;
std::atomic<const OfiLibrary*> g_loaded{nullptr};

// Structs have the layout of the headers that this was compiled with, and the library keeps functions for those of all
// its older versions: 1.3 to 1.19 have one, with which these symbols go. Newer headers go with the newest symbols.
void* find(void* library, const char* name, const char* version) {
  constexpr bool has_old_headers =
      FI_VERSION_LT(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20)) != 0;
  return has_old_headers ? dlvsym(library, name, version) : dlsym(library, name);
}

template <class Function>
bool find(void* library, const char* name, const char* version, Function*& function) {
  function = reinterpret_cast<Function*>(find(library, name, version));
  return function != nullptr;
}

bool same_handler(const struct sigaction& a, const struct sigaction& b) {
  return a.sa_flags == b.sa_flags && a.sa_handler == b.sa_handler;  // one union: sa_sigaction, too
}

}  // namespace

Status OfiLibrary::load() {
  if (g_loaded.load(std::memory_order_acquire) != nullptr) return {};
  // Let rxm hand everything on to tcp. With a protocol of its own it takes every failure for one of its own operations, and
  // crashes when a peer's write ends half received (libfabric 1.17). There is no call for it; what the user says counts.
  setenv("FI_OFI_RXM_ENABLE_PASSTHRU", "1", 0);  // NOLINT(concurrency-mt-unsafe): once, as libfabric reads it only once
  void* const library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::invalid_usage(text("network 'ofi' needs libfabric: ", dlerror(), "; apt-get install libfabric1"));
  }
  static OfiLibrary functions;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (g_loaded.load(std::memory_order_relaxed) != nullptr) return {};
  const bool found = find(library, "fi_getinfo", "FABRIC_1.3", functions.getinfo) &&
                     find(library, "fi_dupinfo", "FABRIC_1.3", functions.dupinfo) &&
                     find(library, "fi_freeinfo", "FABRIC_1.3", functions.freeinfo) &&
                     find(library, "fi_fabric", "FABRIC_1.1", functions.fabric) &&
                     find(library, "fi_strerror", "FABRIC_1.0", functions.strerror);
  if (!found) {
    return Status::invalid_usage(text("network 'ofi' was built with libfabric ", FI_MAJOR_VERSION, ".",
                                      FI_MINOR_VERSION, ", and the one installed is too different: ", dlerror()));
  }
  g_loaded.store(&functions, std::memory_order_release);  // pairs with the acquire in load() and get()
  return {};
}

const OfiLibrary& OfiLibrary::get() { return *g_loaded.load(std::memory_order_acquire); }

KeptSignalHandlers::KeptSignalHandlers() : lock_(g_handlers_mutex) {
  for (int number = 1; number < NSIG; ++number) sigaction(number, nullptr, &before_[size_t(number)]);
}

KeptSignalHandlers::~KeptSignalHandlers() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) != 0 || same_handler(now, before_[size_t(number)])) continue;
    sigaction(number, &before_[size_t(number)], nullptr);
  }
}

}  // namespace switchyard
