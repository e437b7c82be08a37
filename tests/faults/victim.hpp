// What tests of death and of stopping share: which rank comes past which failpoint, and how ranks live while one of
// them, the victim, does not get to the end.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "faults/failpoint_list.hpp"
#include "faults/life.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {

// How the three ranks reach each other: all by load and store; or rank 2 is on a pretended node of its own and the
// network lies between: `mem`, or `ofi`, called by the kernel's thread or by the proxy's.
enum class Way { kOneNode, kMem, kOfi, kOfiProxy };

// The victim fails at one place, in a life with these options, when it comes past for the hit-th time.
struct Fate {
  FailpointPlace place;
  LifeOptions options;
  int hit = 1;
  Way way = Way::kOneNode;

  std::string name() const;
  // For a test's parameter.
  std::string name_of_test(size_t index) const;
  // Which of the ranks' processes fails, and how: for the environment of that one.
  std::string failpoint(const char* action) const;
};
void PrintTo(const Fate& fate, std::ostream* out);

// In an operation that a group with masks comes past.
bool in_an_operation(const FailpointPlace& place);
// Of a plugin, of the proxy, or of what helps them along.
bool in_the_network(const FailpointPlace& place);
// No rank comes past where all are on one node.
bool only_between_nodes(const FailpointPlace& place);
// Where ranks reach each other this way, do they come past?
bool lies_on(const FailpointPlace& place, Way way);
// Nobody knows yet that the victim exists: only the time limit tells.
bool before_anybody_watches(const FailpointPlace& place);

// Every fate of a group of three at that place that can happen.
std::vector<Fate> all_fates(const FailpointPlace& place, Way way = Way::kOneNode);
// One of them with these masks, another one with every `turn`; none if there is none.
std::vector<Fate> one_fate(const FailpointPlace& place, bool masks, size_t turn, Way way = Way::kOneNode);

// The body of a rank: joins and does round trips until it notices, by an error that names the victim or by its mask,
// and says "noticed" then. With masks it goes on to the end. The victim does the same, if it gets that far, and accepts
// any error. Ranks get LifeOptions as arguments.
std::string live_with_a_victim(const RankProcess& self);

// Starts the ranks of such a life, one of which meets its fate by this action. The program calls the body "live"; it may
// want more arguments than LifeOptions.
Result<std::unique_ptr<ProcessRanks>> start_with_victim(const Fate& fate, const char* action,
                                                        const std::vector<std::string>& more_arguments = {});

// What a rank prints before the victim's number, and the error, if that does not name the victim.
constexpr const char* kDoesNotName = "the error does not name rank ";

}  // namespace switchyard::testing
