#include "net/ofi_rail.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace switchyard {

Result<OfiRail::Name> OfiRail::name() const {
  SWITCHYARD_ASSIGN(const std::vector<std::byte> bytes, fabric_.name());
  Name name{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), name.size()), name.begin());
  return name;
}

Status OfiRail::open(std::span<const Name> names) {
  for (size_t rank = 0; rank < names.size(); ++rank) {
    SWITCHYARD_ASSIGN(links_[rank].address, fabric_.add_peer(names[rank].data()));
  }
  for (SignalMessage& buffer : receive_buffers_) SWITCHYARD_TRY(receive_into(take_operation(-1, 0, {}), &buffer));
  return {};
}

Status OfiRail::receive_into(Operation* operation, SignalMessage* buffer) {
  const int64_t error =
      fi_recv(fabric_.endpoint.get(), buffer, sizeof(*buffer), nullptr, FI_ADDR_UNSPEC, &operation->context);
  return error == 0 ? Status() : fabric_error("fi_recv", error);
}

Result<OfiRail::Registration> OfiRail::register_memory(void* memory, size_t num_bytes, uint64_t key) const {
  Registration registration;
  fid_mr* made = nullptr;
  constexpr uint64_t kAccess = FI_WRITE | FI_READ | FI_REMOTE_WRITE | FI_REMOTE_READ;
  // Where keys are ours to choose they must differ between those who share a domain; no two rails do.
  const int error = fi_mr_reg(fabric_.domain.get(), memory, num_bytes, kAccess, 0, key, 0, &made, nullptr);
  if (error != 0) return fabric_error(text("registering ", num_bytes, " bytes"), error);
  registration.memory.reset(made);
  if (fabric_.needs(FI_MR_ENDPOINT)) {
    int bound = fi_mr_bind(made, &fabric_.endpoint->fid, 0);
    if (bound == 0) bound = fi_mr_enable(made);
    if (bound != 0) return fabric_error("binding a registration", bound);
  }
  registration.descriptor = fabric_.needs(FI_MR_LOCAL) ? fi_mr_desc(made) : nullptr;
  return registration;
}

// ---- posting ----

OfiRail::Operation* OfiRail::take_operation(int peer, uint64_t num_bytes, const Purpose& purpose) {
  if (free_operations_.empty()) free_operations_.push_back(&operations_.emplace_back());
  Operation* operation = free_operations_.back();
  free_operations_.pop_back();
  operation->peer = peer;
  operation->num_bytes = num_bytes;
  operation->purpose = purpose;
  return operation;
}

int64_t OfiRail::posted(int64_t result, Operation* operation) {
  Link& link = links_[size_t(operation->peer)];
  if (result != 0) {
    free_operations_.push_back(operation);
    return result;
  }
  ++num_in_flight_;
  ++link.num_in_flight;
  link.bytes_in_flight += operation->num_bytes;
  add_bytes_in_flight(operation->num_bytes);
  link.refused_since_ns = 0;
  return 0;
}

int64_t OfiRail::write(const Transfer& transfer, uint64_t completion_data, const Purpose& purpose) {
  Link& link = links_[size_t(transfer.peer)];
  Operation* operation = take_operation(transfer.peer, transfer.num_bytes, purpose);
  iovec local{transfer.memory, transfer.num_bytes};
  void* descriptor = transfer.descriptor;
  fi_rma_iov remote{transfer.there.base + transfer.offset, transfer.num_bytes, transfer.there.key};
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = link.address;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &operation->context;
  message.data = completion_data;
  const uint64_t flags = FI_REMOTE_CQ_DATA | FI_COMPLETION |
                         (purpose.asks_delivery ? FI_DELIVERY_COMPLETE : uint64_t{0}) |
                         (transfer.inject ? FI_INJECT : uint64_t{0});
  const int64_t result = posted(fi_writemsg(fabric_.endpoint.get(), &message, flags), operation);
  if (result == 0) link.has_undelivered = !purpose.asks_delivery;
  return result;
}

int64_t OfiRail::send(int peer, const SignalMessage& what, const Purpose& purpose) {
  Link& link = links_[size_t(peer)];
  Operation* operation = take_operation(peer, 0, purpose);
  operation->message = what;
  iovec local{&operation->message, sizeof(operation->message)};
  fi_msg message{};
  message.msg_iov = &local;
  message.iov_count = 1;
  message.addr = link.address;
  message.context = &operation->context;
  const uint64_t flags = FI_INJECT | FI_COMPLETION | (purpose.asks_delivery ? FI_DELIVERY_COMPLETE : uint64_t{0});
  const int64_t result = posted(fi_sendmsg(fabric_.endpoint.get(), &message, flags), operation);
  if (result == 0) link.has_undelivered = !purpose.asks_delivery;
  return result;
}

int64_t OfiRail::read(const Transfer& transfer) {
  Operation* operation = take_operation(transfer.peer, 0, {});
  return posted(fi_read(fabric_.endpoint.get(), transfer.memory, transfer.num_bytes, transfer.descriptor,
                        links_[size_t(transfer.peer)].address, transfer.there.base + transfer.offset,
                        transfer.there.key, &operation->context),
                operation);
}

bool OfiRail::keeps_refusing(int peer) {
  Link& link = links_[size_t(peer)];
  const uint64_t now = now_ns();
  if (link.refused_since_ns == 0 || link.num_in_flight > 0) link.refused_since_ns = now;
  return now - link.refused_since_ns > kConnectLimitNs;
}

void OfiRail::write_off(int peer) {
  Link& link = links_[size_t(peer)];
  if (std::exchange(link.is_written_off, true)) return;
  num_in_flight_ -= link.num_in_flight;
  add_bytes_in_flight(-link.bytes_in_flight);
}

// ---- completions ----

bool OfiRail::poll(Owner& owner) {
  fi_cq_data_entry entries[32];
  bool any = false;
  for (;;) {
    const int64_t count = fi_cq_read(fabric_.completions.get(), entries, std::size(entries));
    if (count == -FI_EAGAIN || count == 0) return any;
    any = true;
    if (count == -FI_EAVAIL) {
      take_failure(owner);
      continue;
    }
    if (count < 0) {
      owner.on_failure(fabric_error("fi_cq_read", count));
      return any;
    }
    for (int64_t i = 0; i < count; ++i) take(entries[i], owner);
    if (count < int64_t(std::size(entries))) return any;
  }
}

void OfiRail::take(const fi_cq_data_entry& entry, Owner& owner) {
  if (entry.flags & FI_REMOTE_CQ_DATA) return owner.on_write(*this, entry.data);
  auto* operation = reinterpret_cast<Operation*>(entry.op_context);
  if (operation->peer >= 0) {
    end(operation);
    return owner.on_end(*this, operation->peer, operation->purpose);
  }
  auto* buffer = static_cast<SignalMessage*>(entry.buf);
  if (entry.len != sizeof(*buffer)) {
    return owner.on_failure(Status::remote(text("a peer sent ", entry.len, " bytes that are no signal")));
  }
  owner.on_message(*this, *buffer);
  if (const Status receiving = receive_into(operation, buffer); !receiving.ok()) owner.on_failure(receiving);
}

void OfiRail::take_failure(Owner& owner) {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(fabric_.completions.get(), &entry, 0) < 0) return;
  auto* operation = static_cast<Operation*>(entry.op_context);
  if (operation == nullptr || operation->peer < 0) {
    log(LogLevel::kInfo, "a receive of the network ended: ", fi_strerror(entry.err));
    return;
  }
  end(operation);
  owner.on_loss(*this, operation->peer, fi_strerror(entry.err));
}

// It was posted and is complete, or lost. Its fields stay until the next one is taken.
void OfiRail::end(Operation* operation) {
  Link& link = links_[size_t(operation->peer)];
  --link.num_in_flight;
  link.bytes_in_flight -= operation->num_bytes;
  if (!link.is_written_off) {
    --num_in_flight_;
    add_bytes_in_flight(-operation->num_bytes);
  }
  free_operations_.push_back(operation);
}

}  // namespace switchyard
