// Hosts: pretended machines on one, for tests. Each is a network namespace with an interface on each network, eth0
// with addresses from 10.0.0.1 up, eth1 from 10.0.1.1 up; all are cabled (veth) to the networks' switches (bridges), which are
// in a namespace of their own. Nothing of it is seen outside, and nothing has
// a name: the namespaces are kept by descriptors of this process and go with it, however it ends.
//
// THREADS    one at a time.
// OWNERSHIP  owns the namespaces and all in them; programs started inside keep theirs until they end.
// ERRORS     of the command that failed, with what it printed.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "switchyard/status.hpp"

namespace switchyard::testing {

class Hosts {
 public:
  // Empty, or why there can't be any here.
  static std::string why_not();
  static Result<std::unique_ptr<Hosts>> create(int num_hosts, int num_networks = 1);

  int size() const { return int(hosts_.size()); }
  int num_networks() const { return num_networks_; }
  static std::string address(int host, int network = 0) { return text("10.0.", network, ".", host + 1); }
  // What to write before a command so that it runs on that host.
  std::vector<std::string> prefix(int host) const { return enter(hosts_[size_t(host)]); }

  // The cable: at the switch, where the host only sees that the carrier is lost; or the host's own interface.
  enum class End { kSwitch, kHost };
  Status set_link(int host, End end, bool up, int network = 0) const;
  // Of what arrives, so many packets of a thousand are dropped.
  Status lose_packets(int host, int per_mille) const;
  // Since then.
  Result<uint64_t> num_lost_packets(int host) const;
  // Of what leaves.
  Status limit_rate(int host, int mbit, int network = 0) const;

 private:
  Hosts() = default;
  static std::vector<std::string> enter(const Fd& name_space);
  static Status run(const Fd& name_space, const std::string& command);
  // What it prints.
  static Result<std::string> ask(const Fd& name_space, const std::string& command);

  Fd switch_;
  std::vector<Fd> hosts_;
  int num_networks_ = 0;
};

}  // namespace switchyard::testing
