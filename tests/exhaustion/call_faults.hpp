// System calls that fail on demand: the n-th call of one function, or all from the n-th on, in this process.
//
// The functions are replaced at link time: this program defines them and passes on to the C library. Calls that the C
// library makes of itself (getifaddrs() opening its socket, malloc() mapping memory) are not seen.
//
// THREADS  any thread's calls count; arm() and disarm() belong to one, which may call them at any time.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace switchyard::testing {

enum class Call {
  kSocket,
  kBind,
  kListen,
  kConnect,
  kAccept4,
  kGetsockname,
  kGetsockopt,
  kSend,
  kSendmsg,
  kRecv,
  kRecvmsg,
  kPoll,
  kOpen,
  kRead,
  kWrite,
  kFstat,
  kRename,
  kFcntl,
  kEventfd,
  kMemfdCreate,
  kFtruncate,
  kMmap,
  kPidfdOpen,
  kGetifaddrs,
  kPthreadCreate,
  kNew,  // operator new (failing_new.cc)
};
constexpr size_t kNumCalls = size_t(Call::kNew) + 1;
const char* name_of(Call call);

struct CallFault {
  Call call{};
  uint64_t nth = 0;  // counted from 1; 0: none
  int error = 0;
  bool from_then_on = false;
};

// Starts counting; the fault strikes until disarm().
void arm(const CallFault& fault);
// Stops counting. Result: how often each function was called since arm().
std::array<uint64_t, kNumCalls> disarm();

// For replacements: counts the call. Result: the error that it shall fail with; 0: none.
int fault_at(Call call);

// How many sockets libfabric has open.
size_t num_libfabric_sockets();

// How many blocks of operator new this process has not given back.
size_t num_blocks_in_use();

}  // namespace switchyard::testing
