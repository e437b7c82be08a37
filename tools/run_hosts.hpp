// `switchyard run --hosts`: one child a host, which starts that host's agent there and hands it its share of the ranks
// through standard input (tools/host_share.hpp). While that stays open the agent's ranks live; when it ends, because we
// ended it or because we or the connection are gone, the agent ends them (tools/host_agent.cc).
//
// THREADS  the main one.
// ERRORS   name the option, file or variable that is wrong; nothing has been started then.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp.hpp"
#include "comm/unique_id.hpp"
#include "switchyard/status.hpp"
#include "tools/hosts_file.hpp"
#include "tools/launcher.hpp"
#include "tools/run_options.hpp"

namespace switchyard::tools {

struct HostsPlan {
  std::vector<HostRanks> hosts;                     // those that get ranks
  std::vector<std::string> agent;                   // the words before a host's name; [0] is a path
  std::string net;                                  // empty: as the hosts' environment says
  std::optional<TcpEndpoint> coordinator_endpoint;  // where hosts reach it; none: all is on this machine
};

// REQUIRES valid options with a hosts file.
Result<HostsPlan> plan_hosts(const RunOptions& options);

Result<JobSpec> hosts_job(const HostsPlan& plan, const RunOptions& options, const UniqueId& id);

}  // namespace switchyard::tools
