// One libfabric endpoint with everything it stands on: provider, domain, address vector, completion queue.
//
// THREADS    set up by one thread; afterwards calls on it are made under the owner's lock (FI_THREAD_DOMAIN).
// OWNERSHIP  owns all libfabric objects; they go with it, in the right order.
// ERRORS     naming the provider, the call, and what libfabric said.
#pragma once
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <array>
#include <memory>
#include <string>

#include "net/interfaces.hpp"
#include "net/ofi_library.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

struct FidCloser {
  template <class Object>
  void operator()(Object* object) const {
    if (object != nullptr) fi_close(&object->fid);
  }
};
template <class Object>
using FidPtr = std::unique_ptr<Object, FidCloser>;

struct InfoDeleter {
  void operator()(fi_info* info) const { OfiLibrary::get().freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoDeleter>;

inline const char* fabric_words(int error) { return OfiLibrary::get().strerror(error); }
inline Status fabric_error(const std::string& what, int64_t error) {
  return Status(Code::kSystemError, text("libfabric: ", what, ": ", fabric_words(int(-error))));
}

// What a post says that may be taken a moment later, since it has to connect first: an interface is down, or a process that is
// not there yet, or no longer. Nothing is lost with it.
inline bool is_for_a_moment(int64_t error) {
  switch (error) {
    case -FI_EAGAIN:
    case -FI_ENETDOWN:
    case -FI_ENETUNREACH:
    case -FI_EHOSTUNREACH:
    case -FI_EADDRNOTAVAIL:
    case -FI_ECONNREFUSED:
    case -FI_ETIMEDOUT:
    case -FI_ENOBUFS: return true;
    default: return false;  // also without descriptors or memory: rxm (libfabric 1.17) crashes if it then tries again
  }
}

// What the protocol needs of a provider; why not, if it does not have it.
Status check_fit(const fi_info& info);

struct OfiFabric {
  using Name = std::array<std::byte, 64>;

  // Opens an endpoint of the provider that a network's name asks for, "ofi" or "ofi:PROVIDER", at the address of
  // this interface.
  static Result<OfiFabric> open(const std::string& name, const Interface& interface);

  // What peers need to reach this endpoint.
  Result<Name> name() const;
  Result<fi_addr_t> add_peer(const Name& peer_name) const;
  // Do writes, and messages after writes, to one peer arrive in the order in which they were posted?
  bool keeps_order() const {
    constexpr uint64_t kOrder = FI_ORDER_WAW | FI_ORDER_SAW | FI_ORDER_SAS | FI_ORDER_WAS;
    return (info->tx_attr->msg_order & kOrder) == kOrder && (info->rx_attr->msg_order & kOrder) == kOrder &&
           info->ep_attr->max_order_waw_size >= info->ep_attr->max_msg_size;
  }
  bool needs(uint64_t mr_mode) const { return (info->domain_attr->mr_mode & mr_mode) != 0; }
  // Over connections, which may end, between IPv4 addresses. Others give each endpoint an address of its own, have
  // devices of their own, whatever the interface, and nothing that ends but an endpoint.
  bool connects() const { return info->addr_format == FI_SOCKADDR_IN; }
  // For people.
  std::string place() const {
    const std::string device = info->domain_attr->name;
    return connects() ? text("interface ", device, ", address ", interface.address) : text("device ", device);
  }

  Interface interface;
  InfoPtr info;
  FidPtr<fid_fabric> fabric;
  FidPtr<fid_domain> domain;
  FidPtr<fid_av> addresses;
  FidPtr<fid_cq> completions;
  FidPtr<fid_ep> endpoint;  // last: goes first
};

}  // namespace switchyard
