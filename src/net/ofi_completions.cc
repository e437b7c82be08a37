#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "base/clock.hpp"
#include "base/failpoint.hpp"
#include "base/guarded.hpp"
#include "base/log.hpp"
#include "net/ofi_endpoint.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {

// However fast others go on sending, and whoever holds the lock to wait for room, this ends.
void OfiEndpoint::catch_up() {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!lock_within(lock, kSecond / 4)) return;
  const Deadline enough = Deadline::after_ns(kSecond / 4);
  while (poll() && !enough.expired()) continue;
}

bool OfiEndpoint::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  count_help();
  SWITCHYARD_FAILPOINT("net.progress");
  const uint64_t begin_ns = now_ns();
  const bool has_completed = poll();
  // Of what arrives nobody is told before all of it is here, but taking it in takes time: who is at it should not nap.
  const bool took_in = now_ns() - begin_ns > kIdlePollNs;
  look_after_peers();
  return has_completed || took_in;
}

// True when something had completed, here or from a peer.
bool OfiEndpoint::poll() {
  if (links_) look_at_links();  // whoever waits for room comes by here, too
  settle_losses();
  bool any = false;
  for (size_t rail = 0; rail < rails_.size(); ++rail) {
    const Status polled = guarded([&] { any |= poll(rail); });
    if (!polled.ok()) fail(polled);  // without memory to take them in, completions are missing for good
  }
  return any;
}

bool OfiEndpoint::poll(size_t rail) {
  fi_cq_data_entry entries[32];
  constexpr int kMaxBatches = 64;  // whoever polls has a deadline to look at
  bool any = false;
  for (int batch = 0; batch < kMaxBatches; ++batch) {
    const int64_t count = fi_cq_read(rails_[rail].fabric.completions.get(), entries, std::size(entries));
    if (count == -FI_EAGAIN || count == 0) return any;
    any = true;
    if (count == -FI_EAVAIL) {
      if (!take_failure(rail)) return any;
      continue;
    }
    if (count < 0) {
      fail(fabric_error(text("rank ", rank_, ": fi_cq_read", on_rail(rail)), count));
      return any;
    }
    for (int64_t i = 0; i < count; ++i) take(entries[i]);
    if (count < int64_t(std::size(entries))) return any;
  }
  return any;
}

void OfiEndpoint::take(const fi_cq_data_entry& entry) {
  // Of writes; a message that brings data along is one like any other.
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0 && (entry.flags & FI_RECV) == 0) {
    SWITCHYARD_FAILPOINT("net.write_arrived");
    const CompletionData data = CompletionData::unpack(entry.data);
    Signal signal;
    if (data.word != kNoWord) {
      const auto owner = std::find_if(regions_.begin(), regions_.end(), [&](const auto& item) {
        const Region& region = item.second;
        return region.first_word != kNoWord && data.word >= region.first_word &&
               data.word - region.first_word < region.num_bytes / sizeof(uint64_t);
      });
      // A region that is gone: nobody looks at its signals any more.
      if (owner != regions_.end()) {
        signal = {owner->first, (data.word - owner->second.first_word) * sizeof(uint64_t), data.value};
      }
    }
    return arrived(data.rank, data.sequence, signal);
  }
  auto* operation = reinterpret_cast<Operation*>(entry.op_context);
  if (operation == nullptr) return fail(Status::internal(text("rank ", rank_, ": a completion of libfabric names no operation")));
  if (operation->peer >= 0) {
    SWITCHYARD_FAILPOINT("net.operation_complete");
    Peer& peer = peers_[size_t(operation->peer)];
    if (operation->is_answered) peer.num_answered = std::max(peer.num_answered, operation->num_posted);
    return end(operation);
  }
  SWITCHYARD_FAILPOINT("net.message_arrived");
  const Rail& rail = rails_[operation->rail];
  const SignalMessage message = *operation->buffer;
  if (entry.len == sizeof(message) && message.tag == rail.tag) {
    arrived(message.rank, message.sequence, {message.region, message.offset, message.value});
  } else if (!std::exchange(was_disturbed_, true)) {
    log(LogLevel::kWarn, "rank ", rank_, ": somebody who is not of this job sends to its port", on_rail(operation->rail),
        " (address ", rail.fabric.interface.address, "); such messages are dropped, this one and all that follow");
  }
  receive_again(operation);
}

void OfiEndpoint::receive_again(Operation* operation) {
  if (const Status receiving = receive_into(operation); !receiving.ok()) fail(receiving);
}

// What a peer says is not trusted: it names a rank, a number and a place, and each may be nonsense.
void OfiEndpoint::arrived(uint32_t rank, uint32_t sequence, const Signal& signal) {
  const auto apply = [&](const Signal& due) {
    const Region* region = find(due.region);
    if (region == nullptr) return;  // gone meanwhile
    if (due.offset % sizeof(uint64_t) != 0 || !range_fits(due.offset, sizeof(uint64_t), region->num_bytes)) {
      return fail(Status::remote(text("rank ", rank_, ": rank ", rank, " signals a place outside of region ", due.region)));
    }
    // release; pairs with the acquire in Gin::read_signal() and Barrier::heard()
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(region->memory + due.offset))
        .fetch_add(due.value, std::memory_order_release);
    SWITCHYARD_FAILPOINT("net.signal_applied");
  };
  const bool is_peer = rank < peers_.size();
  // For good: numbers come again after 16384 others.
  if (is_peer && peers_[rank].misses_writes) return;
  // Where the network keeps their order, writes come by their numbers: what is missing now was lost.
  if (is_peer && delivery_ == 0 && sequence != peers_[rank].incoming.next()) {
    lose(int(rank), text("its write ", sequence, " came where ", peers_[rank].incoming.next(),
                         " was due: its connection ended, was made anew, and what was on its way is lost"));
    peers_[rank].misses_writes = true;
    return;
  }
  if (!is_peer || !peers_[rank].incoming.arrive(sequence, signal, apply)) {
    fail(Status::remote(text("rank ", rank_, ": write ", sequence, " of rank ", rank, " came twice, or was never due")));
  }
}

// False: there was none.
bool OfiEndpoint::take_failure(size_t rail) {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(rails_[rail].fabric.completions.get(), &entry, 0) <= 0) return false;
  auto* operation = static_cast<Operation*>(entry.op_context);
  const int peer = operation == nullptr ? -1 : operation->peer;
  if (peer < 0) {
    // A message that was cut, or is longer than any of ours.
    log(LogLevel::kInfo, "rank ", rank_, ": a receive ended", on_rail(rail), ": ", fabric_words(entry.err));
    if (operation != nullptr && entry.err != FI_ECANCELED) receive_again(operation);
    return true;
  }
  end(operation);
  suspect(peer, text(fabric_words(entry.err), on_rail(rail)));
  return true;
}

}  // namespace switchyard
