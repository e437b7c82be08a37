// Waiting in kernels: one helper, with a deadline, that ends early when the communicator is aborted.
#pragma once
#include <cstdint>

#include "switchyard/device/roles.hpp"

namespace switchyard {

// BLOCKING  until ready() is true (returns true) or the limit has passed (false). ready() must be warp-uniform.
template <class P, class Ready>
SWITCHYARD_DEVICE bool wait_until(const P& p, Ready ready, uint64_t timeout_ns, const uint32_t* abort) {
  struct Role {
    Ready& ready_now;
    bool& gave_up;
    bool is_ready = false;
    SWITCHYARD_DEVICE bool done() const { return is_ready || gave_up; }
    SWITCHYARD_DEVICE bool step() { return is_ready = ready_now(); }
  };
  bool expired = false;
  typename P::Waiter waiter(p, timeout_ns, abort);
  Role role{ready, expired};
  run_roles(p, waiter, expired, role);
  return role.is_ready;
}

// Is what somebody should send there? kGone: it will not come any more.
enum class Await { kReady, kNotYet, kGone };

enum class WaitEnd { kReady, kPeerGone, kAborted, kTimeout };

// The same for something that comes from others: ends early, too, when gone() says that whoever it should come from is
// gone. What came before that counts: ready() has the last word.
template <class P, class Ready, class Gone>
SWITCHYARD_DEVICE WaitEnd wait_for_peers(const P& p, Ready ready, Gone gone, uint64_t timeout_ns, const uint32_t* abort) {
  bool is_ready = false, is_gone = false;
  const auto ended = [&] {
    is_ready = ready();
    if (is_ready) return true;
    is_gone = gone();
    if (is_gone) is_ready = ready();
    return is_ready || is_gone;
  };
  if (!wait_until(p, ended, timeout_ns, abort)) is_ready = ready();
  if (is_ready) return WaitEnd::kReady;
  if (is_gone) return WaitEnd::kPeerGone;
  return p.load_relaxed(abort) != 0 ? WaitEnd::kAborted : WaitEnd::kTimeout;
}

// a <= b for counters that may have wrapped.
SWITCHYARD_HD bool rolling_at_least(uint64_t value, uint64_t least) { return int64_t(value - least) >= 0; }

}  // namespace switchyard
