#include "hosts/hosts.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/clock.hpp"
#include "tools/child_process.hpp"

namespace switchyard::testing {
namespace {

constexpr const char* kPath = "/usr/sbin:/sbin:/usr/bin:/bin";  // without sbin in the user's PATH, too

Result<Fd> make_network_namespace() {
  Result<Fd> made = Fd();
  // In a thread that ends: the namespace of this one must not change.
  std::thread([&] {
    if (unshare(CLONE_NEWNET) != 0) {
      made = Status::system_error("making a network namespace");
      return;
    }
    Fd fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (fd.valid()) made = std::move(fd);
    else made = Status::system_error("keeping a network namespace");
  }).join();
  return made;
}

// The switch's end of a cable.
std::string port_of(int host, int network) { return text("port", network, "_", host); }

std::string path_of(const Fd& name_space) { return text("/proc/", getpid(), "/fd/", name_space.get()); }

}  // namespace

std::string Hosts::why_not() {
  if (geteuid() != 0) return "network namespaces need root";
  for (const char* name : {"ip", "tc", "iptables", "nsenter"}) {
    if (!tools::find_program(name, kPath).ok()) return text("'", name, "' is missing (packages iproute2, iptables)");
  }
  const auto made = make_network_namespace();
  return made.ok() ? "" : made.status().to_string();
}

std::vector<std::string> Hosts::enter(const Fd& name_space) {
  std::vector<std::string> words;
  words.push_back(tools::find_program("nsenter", kPath).value());  // why_not() has looked for it
  words.push_back("--net=" + path_of(name_space));
  words.push_back("--");
  return words;
}

Status Hosts::run(const Fd& name_space, const std::string& command) { return ask(name_space, command).status(); }

Result<std::string> Hosts::ask(const Fd& name_space, const std::string& command) {
  std::vector<std::string> words = enter(name_space);
  std::istringstream rest(command);
  for (std::string word; rest >> word;) words.push_back(word);
  tools::Program program = tools::Program::like_us(std::move(words));
  program.environment.insert(program.environment.begin(), text("PATH=", kPath));
  SWITCHYARD_ASSIGN(tools::ChildProcess process, tools::ChildProcess::start(program));
  const Deadline deadline = Deadline::after_ns(10 * kSecond);
  const auto drain = [](const Fd& pipe, std::string& into) {
    char bytes[1024];
    for (ssize_t num_read; (num_read = read(pipe.get(), bytes, sizeof(bytes))) > 0;) into.append(bytes, size_t(num_read));
  };
  std::string printed, complaints;
  for (;;) {
    const auto exit = process.try_reap();
    drain(process.standard_output(), printed);
    drain(process.standard_error(), complaints);
    if (exit && !exit->failed()) return printed;
    if (exit) return Status(Code::kSystemError, text("'", command, "' ", exit->reason, ": ", complaints));
    if (deadline.expired()) return Status(Code::kSystemError, text("'", command, "' does not end"));
    poll(nullptr, 0, 1);
  }
}

Result<std::unique_ptr<Hosts>> Hosts::create(int num_hosts, int num_networks) {
  std::unique_ptr<Hosts> hosts(new Hosts);
  SWITCHYARD_ASSIGN(hosts->switch_, make_network_namespace());
  for (int network = 0; network < num_networks; ++network) {
    SWITCHYARD_TRY(run(hosts->switch_, text("ip link add br", network, " type bridge")));
    SWITCHYARD_TRY(run(hosts->switch_, text("ip link set br", network, " up")));
    ++hosts->num_networks_;
  }
  for (int host = 0; host < num_hosts; ++host) {
    SWITCHYARD_ASSIGN(Fd made, make_network_namespace());
    const Fd& own = hosts->hosts_.emplace_back(std::move(made));
    SWITCHYARD_TRY(run(own, "ip link set lo up"));
    for (int network = 0; network < num_networks; ++network) {
      const std::string eth = text("eth", network), port = port_of(host, network);
      SWITCHYARD_TRY(run(own, text("ip link add ", eth, " type veth peer name ", port, " netns ", path_of(hosts->switch_))));
      SWITCHYARD_TRY(run(own, text("ip address add ", address(host, network), "/24 dev ", eth)));
      SWITCHYARD_TRY(run(own, text("ip link set ", eth, " up")));
      SWITCHYARD_TRY(run(hosts->switch_, text("ip link set ", port, " master br", network, " up")));
    }
  }
  return hosts;
}

Status Hosts::set_link(int host, End end, bool up, int network) const {
  const char* state = up ? " up" : " down";
  if (end == End::kHost) return run(hosts_[size_t(host)], text("ip link set eth", network, state));
  return run(switch_, text("ip link set ", port_of(host, network), state));
}

Status Hosts::lose_packets(int host, int per_mille) const {
  return run(hosts_[size_t(host)], text("iptables -w -A INPUT -i eth0 -m statistic --mode random --probability ",
                                        double(per_mille) / 1000, " -j DROP"));
}

Result<uint64_t> Hosts::num_lost_packets(int host) const {
  // The policy, then the one rule: `-A INPUT ... -c PACKETS BYTES -j DROP`.
  SWITCHYARD_ASSIGN(const std::string rules, ask(hosts_[size_t(host)], "iptables -w -v -S INPUT"));
  const std::string before_count = " -c ";
  const size_t rule = rules.find("-A INPUT"), count = rules.find(before_count, rule);
  if (rule == std::string::npos || count == std::string::npos) return Status::internal("no rule drops packets: " + rules);
  return uint64_t(std::strtoull(rules.c_str() + count + before_count.size(), nullptr, 10));
}

Status Hosts::limit_rate(int host, int mbit, int network) const {
  SWITCHYARD_TRY(run(hosts_[size_t(host)], text("tc qdisc add dev eth", network, " root handle 1: htb default 1")));
  return run(hosts_[size_t(host)],
             text("tc class add dev eth", network, " parent 1: classid 1:1 htb rate ", mbit, "mbit"));
}

}  // namespace switchyard::testing
