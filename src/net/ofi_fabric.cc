#include "net/ofi_fabric.hpp"

#include <rdma/fi_cm.h>

#include <cstring>
#include <string_view>

#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace switchyard {
namespace {

constexpr const char* kDefaultProvider = "tcp;ofi_rxm";
// They promise what is needed, and don't keep it.
constexpr const char* kUnfit[] = {"sockets", "udp;ofi_rxd"};
constexpr uint32_t kVersion = FI_VERSION(1, 17);

std::string provider_of(const std::string& name) {
  const size_t colon = name.find(':');
  return colon == std::string::npos ? kDefaultProvider : name.substr(colon + 1);
}

// As OfiLibrary::load() sees to it that it is not.
bool is_tcp_under_rxm(const fi_info& info) {
  return info.ep_attr->protocol == FI_PROTO_RXM && std::string_view(info.fabric_attr->prov_name).starts_with("tcp");
}

std::string whereabouts(const std::string& provider, const Interface& interface) {
  return text("provider '", provider, "' on interface ", interface.name, " (", interface.address, ")");
}

// The provider's offer for this interface.
Result<InfoPtr> find_provider(const std::string& provider, const Interface& interface) {
  const OfiLibrary& library = OfiLibrary::get();
  const InfoPtr hints(library.dupinfo(nullptr));  // as fi_allocinfo() does
  if (hints == nullptr) return fabric_error("fi_dupinfo", -FI_ENOMEM);
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_RMA | FI_MSG | FI_WRITE | FI_REMOTE_WRITE | FI_SEND | FI_RECV;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;  // ours is enough; tcp would start a thread of its own
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  hints->addr_format = FI_SOCKADDR_IN;
  if (provider.empty()) {
    return Status::invalid_usage(
        "SWITCHYARD_NET=ofi: names no provider; say ofi, or ofi:PROVIDER (`switchyard doctor` lists them)");
  }
  fi_info* found = nullptr;
  const auto ask = [&](const char* address) {
    return library.getinfo(kVersion, address, nullptr, address == nullptr ? 0 : FI_SOURCE, hints.get(), &found);
  };
  const std::string where = whereabouts(provider, interface);
  int error = ask(interface.address.c_str());
  if (error == -FI_ENODATA) {
    if (ask(nullptr) == 0) {
      const InfoPtr elsewhere(found);
      return Status::invalid_usage(text("libfabric: ", where, ": it serves others, but not this one; name one of its own "
                                        "in SWITCHYARD_INTERFACE, or another provider in SWITCHYARD_NET"));
    }
    // Not every network has such addresses; then the provider gives each endpoint one of its own.
    hints->addr_format = FI_FORMAT_UNSPEC;
    error = ask(nullptr);
  }
  InfoPtr info(found);
  if (error != 0) {
    return fabric_error(text(where, ": there is none (`switchyard doctor` lists what there is; see SWITCHYARD_NET and "
                             "SWITCHYARD_INTERFACE)"), error);
  }
  // libfabric reads the name as a filter and may find another provider than one would think.
  const std::string name = info->fabric_attr->prov_name;
  if (name == provider || name.starts_with(provider + ";")) return info;
  return Status::invalid_usage(text("'", provider, "' is no provider of libfabric, which would take '", name,
                                    "'; name the one you mean, as in SWITCHYARD_NET=ofi:", name));
}

template <class Object, class... Arguments>
int open_object(FidPtr<Object>& into, int (*open)(Arguments...), auto... arguments) {
  Object* object = nullptr;
  const int error = open(arguments..., &object, nullptr);
  if (error == 0) into.reset(object);
  return error;
}

}  // namespace

Status check_fit(const fi_info& info) {
  const std::string provider = info.fabric_attr->prov_name;
  for (const char* unfit : kUnfit) {
    if (provider != unfit) continue;
    return Status::invalid_usage(text("libfabric provider '", provider, "' loses signals (seen with the tests of endpoints); "
                                      "choose another, e.g. SWITCHYARD_NET=ofi:tcp;ofi_rxm"));
  }
  if (info.domain_attr->cq_data_size < 4) {
    return Status::invalid_usage(text("libfabric provider '", provider, "' carries ", info.domain_attr->cq_data_size,
                                      " bytes of completion data, needed are 4; choose another, e.g. "
                                      "SWITCHYARD_NET=ofi:tcp;ofi_rxm"));
  }
  // Where all memory that is sent must be registered, messages are injected instead.
  if ((info.domain_attr->mr_mode & FI_MR_LOCAL) != 0 && info.tx_attr->inject_size < 32) {
    return Status::invalid_usage(text("libfabric provider '", provider, "' injects messages of ",
                                      info.tx_attr->inject_size, " bytes, needed are 32; choose another"));
  }
  // Can a completion mean that bytes are at the target?
  const InfoPtr hints(OfiLibrary::get().dupinfo(&info));
  if (hints == nullptr) return fabric_error("fi_dupinfo", -FI_ENOMEM);
  hints->tx_attr->op_flags |= FI_DELIVERY_COMPLETE;
  fi_info* found = nullptr;
  const int error = OfiLibrary::get().getinfo(kVersion, nullptr, nullptr, 0, hints.get(), &found);
  const InfoPtr owner(found);
  if (error != 0) {
    return Status::invalid_usage(text("libfabric provider '", provider, "' does not tell when bytes are delivered "
                                      "(FI_DELIVERY_COMPLETE: ", fabric_words(-error), "); choose another"));
  }
  return {};
}

Result<OfiFabric> OfiFabric::open(const std::string& name, const Interface& interface) {
  const KeptSignalHandlers kept;  // providers may have handlers of their own
  SWITCHYARD_TRY(OfiLibrary::load());
  OfiFabric self;
  self.interface = interface;
  SWITCHYARD_ASSIGN(self.info, find_provider(provider_of(name), interface));
  SWITCHYARD_TRY(check_fit(*self.info));
  SWITCHYARD_FAILPOINT_TRY("net.provider_found");
  if (is_tcp_under_rxm(*self.info)) {
    log(LogLevel::kWarn, "libfabric's rxm does not hand everything on to tcp: FI_OFI_RXM_ENABLE_PASSTHRU says so, or libfabric "
        "was in use before; libfabric 1.17 may then crash if a communicator goes while a peer still writes");
  }
  fi_av_attr av{};
  av.type = FI_AV_TABLE;
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_DATA;
  cq.size = self.info->tx_attr->size + self.info->rx_attr->size;
  cq.wait_obj = FI_WAIT_NONE;
  const char* step = "fi_fabric";
  int error = open_object(self.fabric, OfiLibrary::get().fabric, self.info->fabric_attr);
  const auto next = [&](const char* what, auto make) {
    if (error == 0) error = (step = what, make());
  };
  next("fi_domain", [&] { return open_object(self.domain, &fi_domain, self.fabric.get(), self.info.get()); });
  next("fi_av_open", [&] { return open_object(self.addresses, &fi_av_open, self.domain.get(), &av); });
  next("fi_cq_open", [&] { return open_object(self.completions, &fi_cq_open, self.domain.get(), &cq); });
  next("fi_endpoint", [&] { return open_object(self.endpoint, &fi_endpoint, self.domain.get(), self.info.get()); });
  next("fi_ep_bind(addresses)", [&] { return fi_ep_bind(self.endpoint.get(), &self.addresses->fid, 0); });
  next("fi_ep_bind(completions)", [&] { return fi_ep_bind(self.endpoint.get(), &self.completions->fid, FI_TRANSMIT | FI_RECV); });
  next("fi_enable", [&] { return fi_enable(self.endpoint.get()); });
  if (error != 0) return fabric_error(text(whereabouts(self.info->fabric_attr->prov_name, interface), ": ", step), error);
  SWITCHYARD_FAILPOINT_TRY("net.provider_open");
  return self;
}

Result<OfiFabric::Name> OfiFabric::name() const {
  Name bytes{};
  size_t num_bytes = bytes.size();
  if (const int error = fi_getname(&endpoint->fid, bytes.data(), &num_bytes); error != 0) {
    return fabric_error("fi_getname", error);
  }
  return bytes;
}

Result<fi_addr_t> OfiFabric::add_peer(const Name& peer_name) const {
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(addresses.get(), peer_name.data(), 1, &peer, 0, nullptr);
  if (inserted != 1) return fabric_error("fi_av_insert", inserted < 0 ? inserted : -FI_EADDRNOTAVAIL);
  return peer;
}

}  // namespace switchyard
