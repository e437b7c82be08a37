#include "call_faults.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace switchyard::testing {
namespace {

// Written while no thread of the library runs; that they are atomic is for those that are about to end.
std::atomic<bool> g_armed{false};
std::atomic<int> g_call{0};
std::atomic<uint64_t> g_nth{0};
std::atomic<int> g_error{0};
std::atomic<bool> g_from_then_on{false};
std::array<std::atomic<uint64_t>, kNumCalls> g_num_calls{};
std::array<std::atomic<bool>, 1 << 16> g_is_libfabrics{};  // by descriptor

template <class Function>
Function* real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool is_in_libfabric(const void* code) {
  Dl_info info{};
  return dladdr(code, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libfabric") != nullptr;
}

int note_owner(int fd, const void* code) {
  if (fd >= 0 && size_t(fd) < g_is_libfabrics.size()) g_is_libfabrics[size_t(fd)].store(is_in_libfabric(code));
  return fd;
}

}  // namespace

size_t num_libfabric_sockets() {
  return size_t(
      std::count_if(g_is_libfabrics.begin(), g_is_libfabrics.end(), [](const auto& is) { return is.load(); }));
}

int fault_at(Call call) {
  if (!g_armed.load()) return 0;
  const uint64_t count = g_num_calls[size_t(call)].fetch_add(1) + 1;
  if (g_nth.load() == 0 || g_call.load() != int(call)) return 0;
  return count == g_nth.load() || (g_from_then_on.load() && count > g_nth.load()) ? g_error.load() : 0;
}

const char* name_of(Call call) {
  static constexpr const char* kNames[kNumCalls] = {
      "socket", "bind",       "listen",     "connect",        "accept4",     "getsockname",  "getsockopt",
      "send",   "sendmsg",    "recv",       "recvmsg",        "poll",        "open",         "read",
      "write",  "fstat",      "rename",     "fcntl",          "eventfd",     "memfd_create", "ftruncate",
      "mmap",   "pidfd_open", "getifaddrs", "pthread_create", "operator new"};
  return kNames[size_t(call)];
}

void arm(const CallFault& fault) {
  for (auto& count : g_num_calls) count.store(0);
  g_call.store(int(fault.call));
  g_nth.store(fault.nth);
  g_error.store(fault.error);
  g_from_then_on.store(fault.from_then_on);
  g_armed.store(true);
}

std::array<uint64_t, kNumCalls> disarm() {
  g_armed.store(false);
  std::array<uint64_t, kNumCalls> counts;
  for (size_t i = 0; i < kNumCalls; ++i) counts[i] = g_num_calls[i].load();
  return counts;
}

}  // namespace switchyard::testing

// Fails as told, or calls the C library's.
#define SWITCHYARD_REPLACED(call, failed, function, ...)                                  \
  if (const int error = switchyard::testing::fault_at(switchyard::testing::Call::call)) { \
    errno = error;                                                                        \
    return failed;                                                                        \
  }                                                                                       \
  static auto* const next = switchyard::testing::real(&function, #function);              \
  return next(__VA_ARGS__)

// The same of calls that a signal interrupts only while they wait. Sockets of libfabric never wait, and it takes an
// interrupted call for a broken connection.
#define SWITCHYARD_REPLACED_TRANSFER(call, function, ...)                                                    \
  static auto* const next = switchyard::testing::real(&function, #function);                                 \
  const int error = switchyard::testing::fault_at(switchyard::testing::Call::call);                          \
  if (error == 0 || (error == EINTR && switchyard::testing::is_in_libfabric(__builtin_return_address(0)))) { \
    return next(__VA_ARGS__);                                                                                \
  }                                                                                                          \
  errno = error;                                                                                             \
  return -1

extern "C" {

int socket(int domain, int type, int protocol) noexcept {
  static auto* const next = switchyard::testing::real(&socket, "socket");
  if (const int error = switchyard::testing::fault_at(switchyard::testing::Call::kSocket)) {
    errno = error;
    return -1;
  }
  return switchyard::testing::note_owner(next(domain, type, protocol), __builtin_return_address(0));
}
int accept(int fd, sockaddr* address, socklen_t* size) {  // libfabric's way; the library's own is accept4()
  static auto* const next = switchyard::testing::real(&accept, "accept");
  return switchyard::testing::note_owner(next(fd, address, size), __builtin_return_address(0));
}
int close(int fd) {
  static auto* const next = switchyard::testing::real(&close, "close");
  switchyard::testing::note_owner(fd, nullptr);
  return next(fd);
}
int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  SWITCHYARD_REPLACED(kBind, -1, bind, fd, address, size);
}
int listen(int fd, int backlog) noexcept { SWITCHYARD_REPLACED(kListen, -1, listen, fd, backlog); }
int connect(int fd, const sockaddr* address, socklen_t size) {
  static auto* const next = switchyard::testing::real(&connect, "connect");
  const int error = switchyard::testing::fault_at(switchyard::testing::Call::kConnect);
  const bool waits = !switchyard::testing::is_in_libfabric(__builtin_return_address(0));
  if (error == 0 || (error == EINTR && !waits)) return next(fd, address, size);
  // A signal does not stop a connection of TCP from being made.
  if (error == EINTR && address->sa_family != AF_UNIX) next(fd, address, size);
  errno = error;
  return -1;
}
int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  SWITCHYARD_REPLACED(kAccept4, -1, accept4, fd, address, size, flags);
}
int getsockname(int fd, sockaddr* address, socklen_t* size) noexcept {
  SWITCHYARD_REPLACED(kGetsockname, -1, getsockname, fd, address, size);
}
int getsockopt(int fd, int level, int name, void* value, socklen_t* size) noexcept {
  SWITCHYARD_REPLACED(kGetsockopt, -1, getsockopt, fd, level, name, value, size);
}
ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  SWITCHYARD_REPLACED_TRANSFER(kSend, send, fd, bytes, size, flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  SWITCHYARD_REPLACED_TRANSFER(kSendmsg, sendmsg, fd, message, flags);
}
ssize_t recv(int fd, void* bytes, size_t size, int flags) {
  SWITCHYARD_REPLACED_TRANSFER(kRecv, recv, fd, bytes, size, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  SWITCHYARD_REPLACED_TRANSFER(kRecvmsg, recvmsg, fd, message, flags);
}
int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  if (entries == nullptr) {  // a nap, not a wait for events: it can't fail in a way that matters
    static auto* const nap = switchyard::testing::real(&poll, "poll");
    return nap(entries, count, timeout_ms);
  }
  SWITCHYARD_REPLACED(kPoll, -1, poll, entries, count, timeout_ms);
}
int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? mode_t(va_arg(list, int)) : 0;
  va_end(list);
  SWITCHYARD_REPLACED(kOpen, -1, open, path, flags, mode);
}
ssize_t read(int fd, void* bytes, size_t size) { SWITCHYARD_REPLACED_TRANSFER(kRead, read, fd, bytes, size); }
ssize_t write(int fd, const void* bytes, size_t size) { SWITCHYARD_REPLACED_TRANSFER(kWrite, write, fd, bytes, size); }
int fstat(int fd, struct stat* info) noexcept { SWITCHYARD_REPLACED(kFstat, -1, fstat, fd, info); }
int rename(const char* from, const char* to) noexcept { SWITCHYARD_REPLACED(kRename, -1, rename, from, to); }
int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);  // as the C library itself does
  va_end(list);
  SWITCHYARD_REPLACED(kFcntl, -1, fcntl, fd, command, argument);
}
int eventfd(unsigned count, int flags) noexcept { SWITCHYARD_REPLACED(kEventfd, -1, eventfd, count, flags); }
int memfd_create(const char* name, unsigned flags) noexcept {
  SWITCHYARD_REPLACED(kMemfdCreate, -1, memfd_create, name, flags);
}
int ftruncate(int fd, off_t length) noexcept { SWITCHYARD_REPLACED(kFtruncate, -1, ftruncate, fd, length); }
void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  SWITCHYARD_REPLACED(kMmap, MAP_FAILED, mmap, address, length, protection, flags, fd, offset);
}
int getifaddrs(ifaddrs** list) noexcept { SWITCHYARD_REPLACED(kGetifaddrs, -1, getifaddrs, list); }
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  const int error = switchyard::testing::fault_at(switchyard::testing::Call::kPthreadCreate);
  if (error != 0) return error;
  static auto* const next = switchyard::testing::real(&pthread_create, "pthread_create");
  return next(thread, attributes, body, argument);
}
// Only pidfd_open comes this way; futexes and the rest pass.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_pidfd_open) {
    if (const int error = switchyard::testing::fault_at(switchyard::testing::Call::kPidfdOpen)) {
      errno = error;
      return -1;
    }
  }
  static auto* const next = switchyard::testing::real(&syscall, "syscall");
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

}  // extern "C"
