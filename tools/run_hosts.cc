#include "tools/run_hosts.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "net/interfaces.hpp"
#include "net/net.hpp"
#include "tools/child_process.hpp"
#include "tools/host_share.hpp"
#include "tools/rank_child.hpp"

namespace switchyard::tools {
namespace {

// From an agent's own limit on its ranks to ours on the agent: the way there and back.
constexpr uint64_t kAgentGraceNs = 2 * kSecond;

Result<std::vector<HostRanks>> read_hosts(const RunOptions& options) {
  std::ifstream file(*options.hosts_file, std::ios::binary);
  std::string contents(kMaxHostsFileBytes + 1, '\0');
  if (!file.read(contents.data(), std::streamsize(contents.size())) && !file.eof()) {
    return Status::invalid_argument(text("--hosts: cannot read the file '", *options.hosts_file, "'; check the path"));
  }
  contents.resize(size_t(file.gcount()));
  SWITCHYARD_ASSIGN(const std::vector<HostEntry> hosts, parse_hosts(contents, *options.hosts_file));
  return fill_hosts(hosts, options.num_ranks);
}

// Only then may ranks meet at an address that nobody else reaches.
bool on_this_machine(const std::vector<HostRanks>& hosts) {
  const std::string_view machine = machine_of(hosts.front().name);
  return hosts.size() == 1 && (machine == "localhost" || machine == "127.0.0.1" || machine == "::1");
}

Result<TcpEndpoint> reachable_endpoint() {
  SWITCHYARD_ASSIGN(const std::vector<Interface> interfaces, choose_interfaces(/*one_machine=*/false));
  return interface_endpoint(interfaces.front().name);
}

Result<std::vector<std::string>> agent_words(const std::string& agent) {
  std::vector<std::string> words;
  std::istringstream rest(agent);
  for (std::string word; rest >> word;) words.push_back(word);
  if (words.empty())
    return Status::invalid_argument("--agent is empty; it names the command that reaches a host, as ssh does");
  const auto path = find_program(words[0], std::getenv("PATH"));
  if (!path.ok()) return Status::invalid_argument(text("--agent: ", path.status().message()));
  words[0] = path.value();
  return words;
}

// ssh hands the words to a shell of the host, other agents may not: what needs no quotes gets none.
std::string quoted_for_shell(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Of our environment what makes ranks behave alike on all hosts; the rest is a matter of each host's login.
std::vector<std::string> variables_to_send(const std::string& net) {
  std::vector<std::string> variables = own_environment();
  std::erase_if(variables, [&](const std::string& variable) {
    const std::string name = variable.substr(0, variable.find('='));
    if (!net.empty() && name == "SWITCHYARD_NET") return true;
    return !name.starts_with("SWITCHYARD_") && !name.starts_with("NCCL_EP_") && !name.starts_with("FI_") &&
           name != "LD_LIBRARY_PATH" && name != "PATH" && name != "PYTHONPATH";
  });
  if (!net.empty()) variables.push_back("SWITCHYARD_NET=" + net);
  return variables;
}

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

// The agent's start on one host; what it is to do there follows through its input.
JobChild host_child(const HostsPlan& plan, const std::string& host, const std::string& tool, std::string share) {
  std::vector<std::string> reach = plan.agent;
  reach.insert(reach.end(), {host, quoted_for_shell(tool)});
  JobChild child{host, /*prefix=*/"", reach, own_environment()};
  child.command.push_back("host-agent");
  child.input = std::move(share);
  reach.push_back("--version");
  child.advice = text("unless a line above says why, see what this says: ", joined(reach));
  return child;
}

}  // namespace

Result<HostsPlan> plan_hosts(const RunOptions& options) {
  HostsPlan plan;
  SWITCHYARD_ASSIGN(plan.hosts, read_hosts(options));
  SWITCHYARD_ASSIGN(plan.agent, agent_words(options.agent.value_or(kDefaultAgent)));
  plan.net = options.net;
  const char* const inherited = std::getenv("SWITCHYARD_NET");
  if (plan.net.empty() && plan.hosts.size() > 1 && (inherited == nullptr || *inherited == '\0')) {
    plan.net = "ofi";
    SWITCHYARD_TRY(find_net_plugin(plan.net).status());
  }
  if (!on_this_machine(plan.hosts)) {
    SWITCHYARD_ASSIGN(plan.coordinator_endpoint, reachable_endpoint());
  }
  return plan;
}

Result<JobSpec> hosts_job(const HostsPlan& plan, const RunOptions& options, const UniqueId& id) {
  SWITCHYARD_ASSIGN(const std::string tool, own_path());
  std::error_code error;
  HostShare share;
  share.directory = std::filesystem::current_path(error).string();
  if (error) return Status(Code::kSystemError, text("finding the working directory: ", error.message()));
  share.num_ranks = plan.hosts.back().first_rank + plan.hosts.back().num_ranks;
  share.grace_ns = options.grace_ns();
  share.environment = variables_to_send(plan.net);
  share.id = id;
  share.command = options.command;
  JobSpec job;
  job.kind = "host";
  job.grace_ns = share.grace_ns + kAgentGraceNs;
  for (const HostRanks& host : plan.hosts) {
    share.host = host.name;
    share.first_rank = host.first_rank;
    share.num_local_ranks = host.num_ranks;
    SWITCHYARD_ASSIGN(std::string encoded, encode(share));
    job.children.push_back(host_child(plan, host.name, tool, std::move(encoded)));
  }
  return job;
}

}  // namespace switchyard::tools
