// The hosts of a job and how many ranks each takes: the hosts file of `switchyard run --hosts`, in the form that Open
// MPI reads as well.
//
//   # comments and blank lines
//   node1 slots=4
//   someone@node2            # one slot
//
// THREADS  pure functions and values.
// ERRORS   name the file, the line and what is allowed.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "switchyard/status.hpp"

namespace switchyard::tools {

constexpr int kMaxRanks = 1024;
constexpr int kMaxHosts = 1024;
constexpr size_t kMaxHostNameBytes = 255;
constexpr size_t kMaxHostsFileBytes = size_t{1} << 20;

struct HostEntry {
  std::string name;  // as ssh takes it, with user@ where the file has it
  int num_slots = 1;
  int line = 0;  // of the file, from 1
};

// The ranks of one host: consecutive.
struct HostRanks {
  std::string name;
  int first_rank = 0;
  int num_ranks = 0;
};

// A name becomes an argument of ssh: it must not look like an option, nor mean anything to a shell.
bool valid_host_name(std::string_view name);
// Without user@.
std::string_view machine_of(std::string_view name);

// At least one host, none twice, at most kMaxHosts of them with at most kMaxRanks slots in all. `file` is for messages.
Result<std::vector<HostEntry>> parse_hosts(std::string_view contents, const std::string& file);

// Fills the hosts in their order with so many ranks; without a number, all slots. Hosts that get none are left out.
Result<std::vector<HostRanks>> fill_hosts(const std::vector<HostEntry>& hosts, std::optional<int> num_ranks);

}  // namespace switchyard::tools
