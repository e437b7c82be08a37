// Failpoints: named places in the code where a test can make a rank die, stall or fail.
//
//   if (SWITCHYARD_FAILPOINT("window.after_registration")) return Status::internal("failpoint window.after_registration");
//   SWITCHYARD_FAILPOINT("ll.dispatch.row_pushed");  // a place that can't fail, only die or stall
//
// What a place does is set by SWITCHYARD_FAILPOINTS or by set_failpoint(): "name=action[@hit][#rank],...". Actions:
//   kill      the process kills itself (SIGKILL)
//   stop      the process stops itself (SIGSTOP) until somebody continues it
//   error     the macro yields true
//   delay:MS  the thread sleeps, or until the action is taken back
//   off       nothing; removes the actions of that name
// "@3": only at the third hit, counted per action. "#2": only on threads that work for rank 2.
//
// A place without an action costs one relaxed load of its own flag; nothing else is touched.
//
// THREADS  any. The table of names is process-wide, because the code places are.
// ERRORS   a malformed action is refused with the allowed forms; one in the environment is logged and ignored.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "switchyard/status.hpp"

namespace switchyard {

// One place in the code; made by the macro, lives as long as the program.
class FailpointSite {
 public:
  constexpr explicit FailpointSite(const char* name) : name_(name) {}
  FailpointSite(const FailpointSite&) = delete;
  FailpointSite& operator=(const FailpointSite&) = delete;

  // True if the caller should fail. BLOCKING: as long as the action says.
  bool hit() {
    if (visit_table_.load(std::memory_order_relaxed)) [[unlikely]]
      return hit_table();
    return false;
  }

  const char* name() const { return name_; }
  // Only says whether to look at the table; what to do is read there, under its lock. Hence relaxed, here and in hit().
  void set_visit_table(bool visit) { visit_table_.store(visit, std::memory_order_relaxed); }

 private:
  bool hit_table();

  const char* const name_;
  std::atomic<bool> visit_table_{true};  // the first hit registers the place
};

// The action, as in "kill@3#2". Replaces an earlier one of that name with the same rank filter.
Status set_failpoint(const std::string& name, const std::string& action);
// A comma-separated list of name=action; all of it or, if any part is malformed, none.
Status set_failpoints(const std::string& list);
void clear_failpoints();
// How often the place was hit since its action was set; 0 without one. Of several actions the largest count.
uint64_t failpoint_hits(const std::string& name);

// The rank that the calling thread works for; every thread that runs code of a rank says so once. -1: none.
void set_failpoint_rank(int rank);

// Names of all places that were hit at least once in this process, sorted.
std::vector<std::string> failpoint_names();

}  // namespace switchyard

#define SWITCHYARD_FAILPOINT(name)                               \
  ([]() -> bool {                                                \
    static constinit ::switchyard::FailpointSite sy_site_(name); \
    return sy_site_.hit();                                       \
  }())

// For functions that return a Status or Result: the action "error" makes them fail.
#define SWITCHYARD_FAILPOINT_TRY(name) \
  do {                                 \
    if (SWITCHYARD_FAILPOINT(name)) return ::switchyard::Status::internal("failpoint " name); \
  } while (0)
