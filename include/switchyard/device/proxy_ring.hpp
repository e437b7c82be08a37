// The descriptor ring: how kernels hand operations to the proxy, a worker on the host that calls the network plugin.
//
// Many producers, one consumer. A producer draws a ticket, waits until its slot is free, writes the descriptor and publishes
// it with one store, of the head word, whose highest bit tells the laps apart: the consumer never writes a slot. Producers
// keep a common copy of how far the consumer is and look at its own word only when the copy says that there is no room.
//
// An operation takes one slot of 32 bytes. A signal value or place that does not fit, or a counter, goes into a second slot
// in front of it, drawn with the same ticket.
//
// THREADS  post() and flush(): any; take(), done() and flushed(): the worker that serves the ring.
#pragma once
#include <cstdint>

#include "switchyard/platform/hd.hpp"

namespace switchyard {

struct NetPut;

enum class ProxyOp : uint64_t { kPut, kPutValue, kFlush, kExtension };

//   head         lap 1 | op 2 | peer 15 | signal value 14 | bytes 32      of an extension: lap 1 | op 2 | counter / 8
//   to_offset                                                             signal offset
//   from_offset  of kPutValue: the value                                  signal value
//   windows      to 16 | from 16 | signal 16 | signal word 16             signal window
// What brings no bytes goes to no window: it names its context there.
struct alignas(32) ProxyDescriptor {
  uint64_t head;
  uint64_t to_offset;
  uint64_t from_offset;
  uint64_t windows;

  SWITCHYARD_HD ProxyOp op() const { return ProxyOp(head >> 61 & 3); }
};
static_assert(sizeof(ProxyDescriptor) == 32);

// What one post writes.
struct ProxyPost {
  ProxyDescriptor slots[2];
  int num_slots;  // 0: it can't be described; the post fails

  // The most one descriptor moves; Gin splits what is larger.
  static constexpr uint64_t kMaxBytes = 0xffffffff;

  template <class Put>
  SWITCHYARD_HD static ProxyPost put(const Put& put) {
    return describe(put, ProxyOp::kPut, put.from_offset);
  }
  template <class Put>
  SWITCHYARD_HD static ProxyPost put_value(const Put& put, uint64_t value) {
    return describe(put, ProxyOp::kPutValue, value);
  }
  SWITCHYARD_HD static ProxyPost flush() { return {{{uint64_t(ProxyOp::kFlush) << 61, 0, 0, 0}, {}}, 1}; }

 private:
  template <class Put>
  SWITCHYARD_HD static ProxyPost describe(const Put& put, ProxyOp op, uint64_t from) {
    constexpr uint32_t kMaxWindow = 0xffff, kMaxPeer = 0x7fff;
    const uint32_t to = put.num_bytes == 0 ? put.context : put.to_region;
    if (put.num_bytes > kMaxBytes || to > kMaxWindow || put.from_region > kMaxWindow || put.peer < 0 ||
        uint32_t(put.peer) > kMaxPeer) {
      return {{}, 0};
    }
    const bool is_compact = put.counter == nullptr && put.signal_value < (1u << 14) && put.signal_region <= kMaxWindow &&
                            put.signal_offset % 8 == 0 && put.signal_offset / 8 <= 0xffff;
    ProxyDescriptor main{uint64_t(op) << 61 | uint64_t(put.peer) << 46 | put.num_bytes, put.to_offset, from,
                         uint64_t(to) << 48 | uint64_t(put.from_region) << 32};
    if (is_compact) {
      main.head |= put.signal_value << 32;
      main.windows |= uint64_t(put.signal_region) << 16 | put.signal_offset / 8;
      return {{main, {}}, 1};
    }
    return {{{uint64_t(ProxyOp::kExtension) << 61 | reinterpret_cast<uint64_t>(put.counter) >> 3, put.signal_offset,
              put.signal_value, put.signal_region},
             main},
            2};
  }
};

// What a descriptor, with its extension if there is one, says. Adds to `put`, which an extension has begun.
template <class Put>
SWITCHYARD_HD void read_descriptor(const ProxyDescriptor& descriptor, Put& put) {
  if (descriptor.op() == ProxyOp::kExtension) {
    put.counter = reinterpret_cast<uint64_t*>(descriptor.head << 3);
    put.signal_offset = descriptor.to_offset;
    put.signal_value = descriptor.from_offset;
    put.signal_region = uint32_t(descriptor.windows);
    return;
  }
  put.peer = int(descriptor.head >> 46 & 0x7fff);
  put.num_bytes = descriptor.head & 0xffffffff;
  put.to_offset = descriptor.to_offset;
  put.from_offset = descriptor.from_offset;
  (put.num_bytes == 0 ? put.context : put.to_region) = uint32_t(descriptor.windows >> 48);
  put.from_region = uint32_t(descriptor.windows >> 32 & 0xffff);
  if (const uint64_t value = descriptor.head >> 32 & 0x3fff; value != 0) {
    put.signal_value = value;
    put.signal_region = uint32_t(descriptor.windows >> 16 & 0xffff);
    put.signal_offset = (descriptor.windows & 0xffff) * 8;
  }
}

template <uint64_t kNumSlots>
struct BasicProxyRing {
  static_assert((kNumSlots & (kNumSlots - 1)) == 0);
  static constexpr uint64_t kLapBit = uint64_t{1} << 63;

  // Zeros at first. Producers' line, the worker's line, the slots.
  alignas(128) uint64_t next_ticket;
  uint64_t seen_taken;  // what a producer saw last of `taken`
  uint32_t failed;      // the network is lost, or a producer gave up with a ticket in hand
  alignas(128) uint64_t taken;
  uint64_t num_flushed;  // tickets up to the last flush that is complete
  alignas(128) ProxyDescriptor slots[kNumSlots];

  // Highest bit of the head words of a lap: not what the lap before left there; 1 in the first, since memory begins as 0.
  SWITCHYARD_HD static uint64_t lap_bit(uint64_t ticket) { return (ticket / kNumSlots & 1) == 0 ? kLapBit : 0; }

  // BLOCKING  while the ring is full, as long as patience() says so. False: it failed.
  template <class P, class Patience>
  SWITCHYARD_DEVICE bool post(const P& p, const ProxyPost& what, Patience patience) {
    uint64_t ticket;
    return post(p, what, patience, ticket);
  }

  // BLOCKING  until the worker has seen everything posted before reach a state in which sources are reusable.
  template <class P, class Patience>
  SWITCHYARD_DEVICE bool flush(const P& p, Patience patience) {
    uint64_t ticket;
    if (!post(p, ProxyPost::flush(), patience, ticket)) return false;
    // acquire; pairs with the release in flushed()
    while (int64_t(p.load_acquire_thread(&num_flushed) - ticket) <= 0) {
      if (p.load_relaxed_thread(&failed) != 0 || !patience()) return false;
    }
    return p.load_relaxed_thread(&failed) == 0;
  }

  // Has everything that was posted so far been given to the network? Posted so far: by this thread, or before something
  // that this thread has acquired.
  template <class P>
  SWITCHYARD_DEVICE bool is_drained(const P& p) const {
    // acquire; pairs with the release in done(): what the network got comes before what the caller does now
    return p.load_acquire_thread(&taken) == p.load_relaxed_thread(&next_ticket);
  }

  // The worker's side. What is at `ticket`, if it is there.
  template <class P>
  SWITCHYARD_DEVICE bool take(const P& p, uint64_t ticket, ProxyDescriptor& out) const {
    const ProxyDescriptor& slot = slots[ticket % kNumSlots];
    const uint64_t head = p.load_acquire_thread(&slot.head);  // acquire; pairs with the release in post()
    if ((head & kLapBit) != lap_bit(ticket)) return false;
    out = {head & ~kLapBit, p.read(&slot.to_offset), p.read(&slot.from_offset), p.read(&slot.windows)};
    return true;
  }
  // Everything below this ticket has been read and is with the network.
  template <class P>
  SWITCHYARD_DEVICE void done(const P& p, uint64_t ticket) {
    p.store_release_thread(&taken, ticket);  // release; pairs with the acquire in has_room(): the slots are read
  }
  template <class P>
  SWITCHYARD_DEVICE void flushed(const P& p, uint64_t ticket) {
    p.store_release_thread(&num_flushed, ticket);  // release; pairs with the acquire in flush()
  }

 private:
  template <class P, class Patience>
  SWITCHYARD_DEVICE bool post(const P& p, const ProxyPost& what, Patience& patience, uint64_t& ticket) {
    if (what.num_slots == 0 || p.load_relaxed_thread(&failed) != 0) return false;
    ticket = p.fetch_add_thread(&next_ticket, uint64_t(what.num_slots));
    const uint64_t end = ticket + uint64_t(what.num_slots);
    while (!has_room(p, end)) {
      if (p.load_relaxed_thread(&failed) != 0 || !patience()) {
        // The slots stay empty, so nothing behind them can ever be taken: the ring is over.
        p.store_relaxed_thread(&failed, uint32_t{1});
        return false;
      }
    }
    for (int i = 0; i < what.num_slots; ++i) {
      ProxyDescriptor& slot = slots[(ticket + uint64_t(i)) % kNumSlots];
      p.write(&slot.to_offset, what.slots[i].to_offset);
      p.write(&slot.from_offset, what.slots[i].from_offset);
      p.write(&slot.windows, what.slots[i].windows);
      // release; pairs with the acquire in take()
      p.store_release_thread(&slot.head, what.slots[i].head | lap_bit(ticket + uint64_t(i)));
    }
    ticket = end - 1;
    return true;
  }

  // Acquire and release on the common copy, too: who trusts it must have what the one who made it acquired. Who looks
  // in vain writes nothing, so that producers that wait don't take the line from each other.
  template <class P>
  SWITCHYARD_DEVICE bool has_room(const P& p, uint64_t end) {
    const uint64_t seen = p.load_acquire_thread(&seen_taken);
    if (end - seen <= kNumSlots) return true;
    const uint64_t now_taken = p.load_acquire_thread(&taken);  // acquire; pairs with the release in done()
    if (now_taken != seen) p.store_release_thread(&seen_taken, now_taken);
    return end - now_taken <= kNumSlots;
  }
};

using ProxyRing = BasicProxyRing<1024>;

}  // namespace switchyard
