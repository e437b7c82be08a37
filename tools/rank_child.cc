#include "tools/rank_child.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "tools/child_process.hpp"

namespace switchyard::tools {
namespace {

// Our environment with some variables replaced.
std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> result = own_environment();
  std::erase_if(result, [&](const std::string& inherited) {
    const std::string name = inherited.substr(0, inherited.find('='));
    return std::any_of(variables.begin(), variables.end(),
                       [&](const auto& variable) { return variable.first == name; });
  });
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

}  // namespace

JobChild rank_child(const RankPlace& place, const UniqueId& id, const std::vector<std::string>& command,
                    const Variables& others) {
  Variables variables{{"SWITCHYARD_RANK", std::to_string(place.rank)},
                      {"SWITCHYARD_NUM_RANKS", std::to_string(place.num_ranks)},
                      {"SWITCHYARD_LOCAL_RANK", std::to_string(place.local_rank)},
                      {"SWITCHYARD_UNIQUE_ID", id.to_hex()}};
  variables.insert(variables.end(), others.begin(), others.end());
  return {std::to_string(place.rank), text("[", place.rank, "] "), command, environment_with(variables)};
}

void occupy_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
  }
}

}  // namespace switchyard::tools
