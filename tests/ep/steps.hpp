// One rank's way through a test of which all ranks must take the same steps.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "ep/group.hpp"
#include "support/verdict.hpp"

namespace switchyard::testing {

// One rank's steps up to the first that fails, which frees the others from waiting by aborting the communicator.
class Steps {
 public:
  explicit Steps(Communicator& comm) : comm_(comm) {}
  bool operator()(Verdict verdict) {
    if (verdict.right() || !ok()) return ok();
    verdict_ = std::move(verdict).in(text("rank ", comm_.rank()));
    comm_.abort(verdict_);
    return false;
  }
  template <class T>
  bool operator()(const Result<T>& result) {
    return (*this)(result.status());
  }
  bool ok() const { return verdict_.right(); }
  // Ends the rank's part: destroys handles, group and buffers, in this order. COLLECTIVE. Returns the first fault;
  // after one nothing is destroyed, because other ranks of this process may still be in an operation that uses this
  // rank's windows.
  template <class... Ranks>
  Verdict leave(Result<std::unique_ptr<ep::Group>> group, std::unique_ptr<Ranks>... ranks) {
    if (ok()) {
      (ranks->close(), ...);
      group.value().reset();
    } else {
      if (group.ok()) (void)group.value().release();
      ((void)ranks.release(), ...);
    }
    return verdict_;
  }

 private:
  Communicator& comm_;
  Verdict verdict_;
};

}  // namespace switchyard::testing
