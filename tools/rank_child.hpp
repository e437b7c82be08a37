// A rank as a child process, with the variables by which it finds the others.
//
// THREADS  the main one: reads this process's environment.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "comm/unique_id.hpp"
#include "tools/launcher.hpp"

namespace switchyard::tools {

using Variables = std::vector<std::pair<std::string, std::string>>;

struct RankPlace {
  int rank;
  int num_ranks;
  int local_rank;  // inside its node
};

// `command` as that rank; `others` are set beside what says its place.
JobChild rank_child(const RankPlace& place, const UniqueId& id, const std::vector<std::string>& command,
                    const Variables& others = {});

// Started with a standard descriptor closed, a launcher would get its number for a child's pipe.
void occupy_standard_descriptors();

}  // namespace switchyard::tools
