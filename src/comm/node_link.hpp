// NodeLink: passes file descriptors between the processes of one node.
//
// A star over an abstract Unix socket whose name is random and travels over the authenticated bootstrap; the socket
// leaves nothing on disk. The hub (the node's first rank) checks each caller's user id (SO_PEERCRED) and a secret
// before it reads anything else.
//
// THREADS    share() is collective over the node's ranks; one at a time per link.
// OWNERSHIP  received descriptors belong to the caller.
// ERRORS     name the rank that is missing or was refused.
// BLOCKING   until the deadline.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "comm/bootstrap.hpp"

namespace switchyard {

class NodeLink {
 public:
  // Collective over `members` (world ranks of one node, in order); comm_id names their exchanges.
  static Result<std::unique_ptr<NodeLink>> create(Bootstrap& bootstrap, uint64_t comm_id, std::span<const int> members,
                                                  int my_idx, Deadline deadline);

  // Gives my descriptor to every member and returns theirs, by member index (mine duplicated).
  Result<std::vector<Fd>> share(int fd, Deadline deadline);

 private:
  NodeLink(const Bootstrap& bootstrap, std::vector<int> members, int my_idx)
      : bootstrap_(bootstrap), members_(std::move(members)), my_idx_(my_idx) {}
  Status accept_members(Fd listener, std::span<const std::byte> secret, Deadline deadline);
  Result<std::vector<Fd>> share_as_hub(int fd, Deadline deadline);
  Result<std::vector<Fd>> share_as_spoke(int fd, Deadline deadline);
  void tell_why(const std::string& reason) const;
  Status wait_ready(int fd, short events, Deadline deadline, const std::string& what) const;
  Status link_ended(const std::string& what, Deadline deadline) const;
  Status send_fds(size_t member_idx, std::span<const int> fds, Deadline deadline) const;
  Status receive_fds(size_t member_idx, size_t num_fds, std::vector<Fd>& out, Deadline deadline) const;

  const Bootstrap& bootstrap_;  // knows who died, left or aborted; outlives the link
  std::vector<int> members_;
  int my_idx_;
  Status failure_;         // of an earlier share(): there is no other after it
  std::vector<Fd> links_;  // at the hub: one per member (its own invalid); elsewhere: the hub's
};

}  // namespace switchyard
