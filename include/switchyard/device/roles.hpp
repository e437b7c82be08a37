// Roles: how a kernel is made of parts that must not block each other.
//
// A role is an object with
//   bool step();   move on by one piece of work if possible; true when something moved
//   bool done() const;
// and step() never waits. Every warp of a kernel runs its own instances of the kernel's roles in turn, so that no
// role can starve another and one warp (a CPU worker is one warp of width 1) is enough to make progress. Waiting
// happens in one place, here: when no role moved, the platform backs off, and when the deadline has passed (or the
// communicator was aborted) `expired` tells the roles, whose next step() then has to give up on whoever is missing.
#pragma once
#include "switchyard/platform/hd.hpp"

namespace switchyard {

// REQUIRES  after `expired` became true every role reaches done() in bounded time.
// BLOCKING  until all roles are done; bounded by the deadline plus the work that remains then.
template <class Platform, class... Roles>
SWITCHYARD_DEVICE void run_roles(const Platform& platform, typename Platform::Waiter& waiter, bool& expired,
                                 Roles&... roles) {
  for (;;) {
    bool all_done = true;
    bool moved = false;
    const auto visit = [&](auto& role) {
      if (role.done()) return;
      moved |= role.step();
      all_done &= role.done();
    };
    (visit(roles), ...);
    if (all_done) return;
    if (moved) waiter.reset();
    else if (!waiter.pause(platform)) expired = true;
  }
}

}  // namespace switchyard
