#include "net/ofi.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <utility>

#include "base/env.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "net/ofi_endpoint.hpp"
#include "net/ofi_trial.hpp"
#include "net/progress.hpp"

namespace switchyard {
namespace {

// Between two endpoints of its own, of which nothing is left; once in a process, since that takes some 30 ms.
Status try_out(const std::string& net, const Interface& interface, Deadline deadline) {
  constexpr uint64_t kLimitNs = 5 * kSecond;
  static constinit std::array<std::atomic<size_t>, 16> known{};  // hashes; there is nothing to be read by whoever finds one
  const size_t hash = std::max<size_t>(1, std::hash<std::string>()(text(net, ' ', interface.name, ' ', interface.address)));
  for (const std::atomic<size_t>& tried : known) {
    if (tried.load(std::memory_order_relaxed) == hash) return {};
  }
  SWITCHYARD_ASSIGN(OfiFabric from, OfiFabric::open(net, interface));
  SWITCHYARD_ASSIGN(OfiFabric to, OfiFabric::open(net, interface));
  SWITCHYARD_TRY(try_out(from, to, Deadline::after_ns(std::min(kLimitNs, deadline.remaining_ns()))));
  for (std::atomic<size_t>& place : known) {
    size_t free = 0;
    if (place.compare_exchange_strong(free, hash, std::memory_order_relaxed)) break;
  }
  return {};
}

// A provider without IPv4 addresses chooses its device itself, whatever the interface. Who names one twice means it.
Status check_apart(const OfiFabric& a, const OfiFabric& b) {
  const std::string device = a.info->domain_attr->name;
  if (a.interface.name == b.interface.name || device != b.info->domain_attr->name) return {};
  return Status::invalid_usage(text("interfaces ", a.interface.name, " and ", b.interface.name,
                                    " (SWITCHYARD_INTERFACE) are one "
                                    "device to libfabric provider '",
                                    a.info->fabric_attr->prov_name, "', ", device, "; name one"));
}

}  // namespace

Result<std::unique_ptr<NetEndpoint>> OfiEndpoint::connect(const NetContext& context, Deadline deadline) {
  const size_t num_ranks = context.window.members.size();
  if (num_ranks >= (size_t{1} << kRankBits)) {
    return Status::invalid_usage(text("network plugin 'ofi' joins up to ", (1 << kRankBits) - 1, " ranks, not ", num_ranks));
  }
  SWITCHYARD_ASSIGN(const std::vector<Interface> interfaces,
                    choose_interfaces(context.machine_ranks.count == int(num_ranks)));
  std::vector<Rail> rails;
  for (const Interface& interface : interfaces) {
    SWITCHYARD_ASSIGN(OfiFabric fabric, OfiFabric::open(context.name, interface));
    for (const Rail& other : rails) SWITCHYARD_TRY(check_apart(other.fabric, fabric));
    SWITCHYARD_TRY(try_out(context.name, interface, deadline));
    rails.push_back({std::move(fabric), random_bits<uint32_t>()});
  }
  std::unique_ptr<OfiEndpoint> endpoint(new OfiEndpoint(context, std::move(rails)));
  SWITCHYARD_TRY(endpoint->meet(deadline));
  SWITCHYARD_TRY(ProgressThreads::instance().add(*endpoint));
  SWITCHYARD_TRY(endpoint->register_region(kSinkRegion, endpoint->sink_, sizeof(endpoint->sink_), deadline));
  return std::unique_ptr<NetEndpoint>(std::move(endpoint));
}

OfiEndpoint::~OfiEndpoint() {
  ProgressThreads::instance().remove(*this);
  for (Rail& rail : rails_) rail.fabric.endpoint.reset();  // before the memory that it may still receive into
}

// Everybody learns everybody's addresses; a rail joins those of one number. Connections are made by the provider, with the
// first message.
Status OfiEndpoint::meet(Deadline deadline) {
  std::vector<RailOffer> mine;
  for (const Rail& rail : rails_) {
    SWITCHYARD_ASSIGN(const OfiFabric::Name name, rail.fabric.name());
    const fi_info& info = *rail.fabric.info;
    mine.push_back({name, std::min(env().net_data_bytes, uint64_t{info.domain_attr->cq_data_size}), info.ep_attr->protocol,
                    info.ep_attr->protocol_version, rail.tag, 0});
  }
  SWITCHYARD_FAILPOINT_TRY("net.join_before_addresses");
  SWITCHYARD_ASSIGN(const std::vector<std::vector<RailOffer>> offers,
                    bootstrap_.exchange_lists<RailOffer>(comm_id_, members_, mine, deadline));
  SWITCHYARD_FAILPOINT_TRY("net.join_after_addresses");
  const auto fewest = std::min_element(offers.begin(), offers.end(),
                                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (fewest->empty()) return Status::remote(text("rank ", fewest - offers.begin(), " has no address on the network"));
  if (fewest->size() < rails_.size()) {
    log(LogLevel::kWarn, "rank ", rank_, ": of ", rails_.size(), " interfaces (SWITCHYARD_INTERFACE) ofi uses the first ",
        fewest->size(), ": rank ", fewest - offers.begin(), " names no more");
    rails_.erase(rails_.begin() + int64_t(fewest->size()), rails_.end());
  }
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    for (size_t rail = 0; rail < rails_.size(); ++rail) {
      data_carries_signals_ &= offers[rank][rail].num_data_bytes >= sizeof(uint64_t);
      if (mine[rail].understands(offers[rank][rail])) continue;
      return Status::invalid_usage(text("rank ", rank, "'s libfabric speaks another protocol than rank ", rank_,
                                        "'s; do all ranks have one libfabric, one SWITCHYARD_NET and one "
                                        "FI_OFI_RXM_ENABLE_PASSTHRU?"));
    }
  }
  if (rails_.size() == 1 && rails_[0].fabric.keeps_order()) delivery_ = 0;
  std::vector<Interface> interfaces;
  for (size_t rail = 0; rail < rails_.size(); ++rail) {
    const OfiFabric& fabric = rails_[rail].fabric;
    log(LogLevel::kInfo, "rank ", rank_, ": network ofi, provider ", fabric.info->fabric_attr->prov_name, ", ", fabric.place(),
        rails_.size() == 1 ? std::string() : text(", rail ", rail + 1, " of ", rails_.size()),
        delivery_ == 0 ? ", in order" : ", in any order", data_carries_signals_ ? "" : ", signals apart");
    interfaces.push_back(fabric.interface);
    max_piece_bytes_ = std::min<uint64_t>(max_piece_bytes_, fabric.info->ep_attr->max_msg_size);
    for (const std::vector<RailOffer>& peer : offers) {
      SWITCHYARD_ASSIGN(const fi_addr_t address, fabric.add_peer(peer[rail].name));
      rails_[rail].ways.push_back({.address = address, .tag = peer[rail].tag});
    }
    std::vector<SignalMessage>& buffers = rails_[rail].receive_buffers;
    SWITCHYARD_ASSIGN(rails_[rail].receives, register_on(rails_[rail], kReceiveRegion, buffers.data(),
                                                         buffers.size() * sizeof(SignalMessage), FI_RECV));
    for (SignalMessage& buffer : buffers) {
      Operation* receive = take_operation(-1, rail);
      receive->buffer = &buffer;
      SWITCHYARD_TRY(receive_into(receive));
    }
  }
  if (rails_.size() > 1) links_.emplace(std::move(interfaces));
  return {};
}

Status OfiEndpoint::receive_into(Operation* operation) {
  const int64_t error = fi_recv(rails_[operation->rail].fabric.endpoint.get(), operation->buffer, sizeof(SignalMessage),
                                rails_[operation->rail].receives.descriptor, FI_ADDR_UNSPEC, &operation->context);
  return error == 0 ? Status() : fabric_error("fi_recv", error);
}

// Where keys are ours to choose: such as differ within a domain, which no two endpoints share, and as nobody finds by
// trying. A rank of another job may reach this port, if its peer had it before.
uint64_t OfiEndpoint::key_of(const Rail& rail, uint32_t id) const {
  const size_t num_bytes = rail.fabric.info->domain_attr->mr_key_size;
  return (key_base_ + id) & (num_bytes >= sizeof(uint64_t) ? ~uint64_t{0} : (uint64_t{1} << 8 * num_bytes) - 1);
}

Result<OfiEndpoint::Registration> OfiEndpoint::register_on(const Rail& rail, uint32_t id, void* memory, size_t num_bytes,
                                                           uint64_t access) const {
  const OfiFabric& fabric = rail.fabric;
  fid_mr* registration = nullptr;
  const int error =
      fi_mr_reg(fabric.domain.get(), memory, num_bytes, access, 0, key_of(rail, id), 0, &registration, nullptr);
  if (error != 0) return fabric_error(text("registering ", num_bytes, " bytes"), error);
  FidPtr<fid_mr> owner(registration);
  if (fabric.needs(FI_MR_ENDPOINT)) {
    int bound = fi_mr_bind(registration, &fabric.endpoint->fid, 0);
    if (bound == 0) bound = fi_mr_enable(registration);
    if (bound != 0) return fabric_error("binding a registration", bound);
  }
  const uint64_t base = fabric.needs(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(memory) : 0;
  return Registration{std::move(owner), fabric.needs(FI_MR_LOCAL) ? fi_mr_desc(registration) : nullptr,
                      {fi_mr_key(registration), base, num_bytes}};
}

Status OfiEndpoint::register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) {
  Region region{static_cast<char*>(memory), num_bytes, {}, {}, kNoWord};
  std::vector<RegionOffer> mine;
  {
    const std::lock_guard lock(mutex_);
    constexpr uint64_t kAccess = FI_WRITE | FI_REMOTE_WRITE;
    for (const Rail& rail : rails_) {
      SWITCHYARD_ASSIGN(region.registrations.emplace_back(), register_on(rail, id, memory, num_bytes, kAccess));
      mine.push_back(region.registrations.back().offer);
    }
  }
  SWITCHYARD_FAILPOINT_TRY("net.region_registered");
  SWITCHYARD_ASSIGN(region.offers, bootstrap_.exchange_lists<RegionOffer>(comm_id_, members_, mine, deadline));
  for (size_t rank = 0; rank < region.offers.size(); ++rank) {
    if (region.offers[rank].size() == rails_.size()) continue;
    return Status::remote(text("rank ", rank, " offers a region on ", region.offers[rank].size(), " rails where rank ", rank_,
                               " expects ", rails_.size(), "; do all ranks run the same program in the same order?"));
  }
  {
    const std::lock_guard lock(mutex_);
    // Equal on all ranks, because registrations are collective and windows have one size.
    const uint64_t num_words = num_bytes / sizeof(uint64_t);
    if (num_words <= kNoWord - num_words_) {
      region.first_word = num_words_;
      num_words_ += uint32_t(num_words);
    }
    regions_.insert_or_assign(id, std::move(region));
  }
  SWITCHYARD_FAILPOINT_TRY("net.region_known");
  // Nobody writes before everybody knows the region.
  return bootstrap_.barrier(comm_id_, members_, deadline);
}

void OfiEndpoint::deregister_region(uint32_t id) {
  const std::lock_guard lock(mutex_);
  regions_.erase(id);
}

const OfiEndpoint::Region* OfiEndpoint::find(uint32_t id) const {
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : &found->second;
}

NetPlugin ofi_plugin() { return {"ofi", {true, false, false, false, ~uint64_t{0}}, &OfiEndpoint::connect}; }

}  // namespace switchyard
