#include "comm/node_link.hpp"
#include "base/failpoint.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/retry.hpp"
#include "comm/message.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

constexpr size_t kFdsPerMessage = 128;  // the kernel allows 253
constexpr int kLookUpMs = 50;

// What the hub tells the members over the bootstrap: where to call and how to prove that they may.
struct Invitation {
  std::array<unsigned char, 16> name;
  std::array<std::byte, 32> secret;
};

struct Introduction {
  std::array<std::byte, 32> secret;
  int32_t member_idx;
};

// The leading zero byte makes the name abstract: it lives in the kernel and goes with the socket.
socklen_t make_address(const Invitation& invitation, sockaddr_un& address) {
  std::memset(&address, 0, sizeof(address));
  address.sun_family = AF_UNIX;
  char* name = address.sun_path + 1;
  constexpr char kPrefix[] = "switchyard-";
  std::memcpy(name, kPrefix, sizeof(kPrefix) - 1);
  for (size_t i = 0; i < invitation.name.size(); ++i) {
    static constexpr char kDigits[] = "0123456789abcdef";
    name[sizeof(kPrefix) - 1 + 2 * i] = kDigits[invitation.name[i] >> 4];
    name[sizeof(kPrefix) + 2 * i] = kDigits[invitation.name[i] & 15];
  }
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + sizeof(kPrefix) - 1 + 2 * invitation.name.size());
}

// What errno says when the other side has closed the connection: a reset if it had not yet accepted it, or left
// something unread.
bool closed_by_peer(int error) { return error == EPIPE || error == ECONNRESET; }

}  // namespace

// Looks up from the socket now and then: deaths, departures and aborts come over the bootstrap.
Status NodeLink::wait_ready(int fd, short events, Deadline deadline, const std::string& what) const {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, std::min(deadline.remaining_ms(), kLookUpMs));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::system_error(text("poll while ", what));
    if (const Status present = bootstrap_.check_present(members_); !present.ok()) {
      // Who left may have said why, over this very socket, before it did.
      if (poll(&entry, 1, 0) > 0) return {};
      return Status(present.code(), text(present.message(), ", while ", what));
    }
    if (deadline.expired()) return Status::remote(text("time-out while ", what));
  }
}

// A connection ends when its process leaves or dies; who did, and why, is known to the bootstrap in a moment.
Status NodeLink::link_ended(const std::string& what, Deadline deadline) const {
  Status present;
  wait_until(
      [&] {
        present = bootstrap_.check_present(members_);
        return !present.ok();
      },
      Deadline::after_ns(std::min(deadline.remaining_ns(), kSecond)));
  const std::string why = present.ok() ? "a process of this node closed its connection" : present.message();
  return Status::remote(text(why, ", while ", what));
}

Status NodeLink::send_fds(size_t member_idx, std::span<const int> fds, Deadline deadline) const {
  const int socket = links_[member_idx].get();
  const std::string what = text("sending descriptors to rank ", members_[member_idx]);
  while (!fds.empty()) {
    const auto part = fds.first(std::min(fds.size(), kFdsPerMessage));
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsPerMessage)] = {};
    char byte = 0;
    iovec body{&byte, 1};
    msghdr message{};
    message.msg_iov = &body;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(part.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(part.size_bytes());
    std::memcpy(CMSG_DATA(header), part.data(), part.size_bytes());
    SWITCHYARD_TRY(wait_ready(socket, POLLOUT, deadline, what));
    if (sendmsg(socket, &message, MSG_NOSIGNAL) != 1) {
      if (errno == EINTR || errno == EAGAIN) continue;
      if (closed_by_peer(errno)) return link_ended(what, deadline);
      return Status::system_error(what);
    }
    fds = fds.subspan(part.size());
  }
  return {};
}

Status NodeLink::receive_fds(size_t member_idx, size_t num_fds, std::vector<Fd>& out, Deadline deadline) const {
  const int socket = links_[member_idx].get();
  const std::string what = text("receiving descriptors from rank ", members_[member_idx]);
  const size_t goal = out.size() + num_fds;
  out.reserve(goal + kFdsPerMessage);  // what has come must find a place
  while (out.size() < goal) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsPerMessage)];
    char reason[kMaxReasonBytes];
    iovec body{reason, sizeof(reason)};
    msghdr message{};
    message.msg_iov = &body;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    SWITCHYARD_TRY(wait_ready(socket, POLLIN, deadline, what));
    const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    // A peer that closes without having read everything resets the connection; the kernel says so once, and then gives
    // what the peer had sent before, and the end.
    if (received < 0 && (errno == EINTR || errno == EAGAIN || errno == ECONNRESET)) continue;
    if (received == 0) return link_ended(what, deadline);
    if (received < 0) return Status::system_error(what);
    if (message.msg_controllen == 0 && received > 1) {
      return Status::remote(text("rank ", members_[member_idx], " gave up: ", std::string(reason, size_t(received))));
    }
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        out.emplace_back(fd);
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0 || out.size() > goal) {
      return Status::remote("descriptors were lost: raise the limit of open files (ulimit -n)");
    }
  }
  return {};
}

Result<std::unique_ptr<NodeLink>> NodeLink::create(Bootstrap& bootstrap, uint64_t comm_id, std::span<const int> members,
                                                   int my_idx, Deadline deadline) {
  std::unique_ptr<NodeLink> link(new NodeLink(bootstrap, {members.begin(), members.end()}, my_idx));
  if (members.size() == 1) return link;
  Invitation invitation{};
  Fd listener;
  if (my_idx == 0) {
    randombytes_buf(&invitation, sizeof(invitation));
    listener.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.valid()) return Status::system_error("creating a Unix socket");
    sockaddr_un address;
    const socklen_t length = make_address(invitation, address);
    if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener.get(), int(members.size())) != 0) {
      return Status::system_error("listening on an abstract Unix socket");
    }
  }
  SWITCHYARD_FAILPOINT_TRY("node_link.before_invitation");
  SWITCHYARD_ASSIGN(auto invitations, bootstrap.exchange_values(comm_id, members, invitation, deadline));
  invitation = invitations[0];
  SWITCHYARD_FAILPOINT_TRY("node_link.after_invitation");
  if (my_idx == 0) {
    SWITCHYARD_TRY(link->accept_members(std::move(listener), invitation.secret, deadline));
    return link;
  }
  Fd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) return Status::system_error("creating a Unix socket");
  sockaddr_un address;
  const socklen_t length = make_address(invitation, address);
  if (retry_interrupted(
          [&] { return connect(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), length); }) != 0) {
    if (errno == ECONNREFUSED) return link->link_ended(text("connecting to rank ", members[0]), deadline);
    return Status::system_error(text("connecting to rank ", members[0], " on this node"));
  }
  SWITCHYARD_FAILPOINT_TRY("node_link.after_connect");
  const Introduction introduction{invitation.secret, my_idx};
  const ssize_t sent = retry_interrupted(
      [&] { return send(socket_fd.get(), &introduction, sizeof(introduction), MSG_NOSIGNAL); });
  if (sent != ssize_t(sizeof(introduction))) {
    if (closed_by_peer(errno)) return link->link_ended(text("introducing myself to rank ", members[0]), deadline);
    return Status::system_error(text("introducing myself to rank ", members[0], " on this node"));
  }
  link->links_.push_back(std::move(socket_fd));
  SWITCHYARD_FAILPOINT_TRY("node_link.after_introduction");
  return link;
}

Status NodeLink::accept_members(Fd listener, std::span<const std::byte> secret, Deadline deadline) {
  links_.resize(members_.size());
  for (;;) {
    std::vector<int> missing;
    for (size_t member = 1; member < members_.size(); ++member) {
      if (!links_[member].valid()) missing.push_back(members_[member]);
    }
    if (missing.empty()) return {};
    SWITCHYARD_TRY(
        wait_ready(listener.get(), POLLIN, deadline, "waiting for a connection from rank " + list_ranks(missing)));
    Fd caller(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!caller.valid()) {
      if (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED) continue;
      return Status::system_error("accepting a process of this node");  // the caller stays ready: no use in trying again
    }
    ucred credentials{};
    socklen_t length = sizeof(credentials);
    if (getsockopt(caller.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) continue;
    if (credentials.uid != geteuid()) continue;  // a stranger: dropped without a word
    Introduction introduction{};
    if (!wait_ready(caller.get(), POLLIN, deadline, "waiting for an introduction").ok()) continue;
    const ssize_t received =
        retry_interrupted([&] { return recv(caller.get(), &introduction, sizeof(introduction), 0); });
    if (received != ssize_t(sizeof(introduction))) continue;
    if (sodium_memcmp(introduction.secret.data(), secret.data(), secret.size()) != 0) continue;
    const int idx = introduction.member_idx;
    if (idx <= 0 || size_t(idx) >= members_.size() || links_[size_t(idx)].valid()) continue;
    links_[size_t(idx)] = std::move(caller);
  }
}

Result<std::vector<Fd>> NodeLink::share(int fd, Deadline deadline) {
  SWITCHYARD_TRY(failure_);
  auto shared = my_idx_ == 0 ? share_as_hub(fd, deadline) : share_as_spoke(fd, deadline);
  if (!shared.ok()) {
    // What is still under way on the connections belongs to an exchange that is over.
    failure_ = Status(shared.status().code(), text("an earlier exchange of descriptors failed: ", shared.status().message()));
    links_.clear();
  }
  return shared;
}

Result<std::vector<Fd>> NodeLink::share_as_spoke(int fd, Deadline deadline) {
  SWITCHYARD_FAILPOINT_TRY("node_link.before_send");
  const int mine[] = {fd};
  SWITCHYARD_TRY(send_fds(0, mine, deadline));
  SWITCHYARD_FAILPOINT_TRY("node_link.after_send");
  std::vector<Fd> all;
  SWITCHYARD_TRY(receive_fds(0, members_.size(), all, deadline));
  return all;
}

void NodeLink::tell_why(const std::string& reason) const {
  for (size_t member = 1; member < members_.size(); ++member) {
    // Without descriptors, and never one byte. Who can't take it learns of the failure by its own deadline.
    send(links_[member].get(), reason.data(), std::min(reason.size(), kMaxReasonBytes), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

Result<std::vector<Fd>> NodeLink::share_as_hub(int fd, Deadline deadline) {
  std::vector<Fd> all;
  all.emplace_back().reset(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!all[0].valid()) return Status::system_error("duplicating a descriptor");
  // Only the hub knows who did not send. It gives up early enough to tell the others, who wait for it.
  const Deadline gathered = Deadline::after_ns(deadline.remaining_ns() / 4 * 3);
  for (size_t member = 1; member < members_.size(); ++member) {
    if (const Status received = receive_fds(member, 1, all, gathered); !received.ok()) {
      tell_why(received.message());
      return received;
    }
  }
  SWITCHYARD_FAILPOINT_TRY("node_link.hub_before_send");
  std::vector<int> numbers;
  for (const Fd& one : all) numbers.push_back(one.get());
  for (size_t member = 1; member < members_.size(); ++member) {
    SWITCHYARD_TRY(send_fds(member, numbers, deadline));
  }
  return all;
}

}  // namespace switchyard
