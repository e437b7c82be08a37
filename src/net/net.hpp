// Network plugins: how rows and signals reach ranks that load and store don't.
//
// A plugin is an entry of one table: a name, a row of capabilities, and a way to connect. A protocol states what it needs
// and is refused at start-up, with the reason, where a capability is missing; nothing tests for names.
// put+signal is one operation: the signal is applied at the target after its data and after all earlier puts of the
// same (endpoint, peer). A plugin whose network reorders has to see to that itself, at the target.
//
// THREADS    any.
// OWNERSHIP  the endpoint owns its connections and registrations, never the memory.
// ERRORS     posting answers kBusy when there is no room, or it is not certain yet whether the peer is lost (call progress()
//            and try again), and kFailed when the peer or the network is lost, for good; why says why_lost().
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/window.hpp"
#include "net/fault_plan.hpp"
#include "net/progress.hpp"
#include "switchyard/device/net.hpp"

namespace switchyard {

struct NetCapabilities {
  bool signal_after_data;     // put+signal as defined above
  bool ordered_puts;          // puts to one peer land in order even without a signal
  bool target_progress_free;  // data lands while the target computes, without anybody's help there
  bool device_memory;         // reads and writes GPU memory
  uint64_t max_message_bytes;
};

enum class NetPost { kPosted, kBusy, kFailed };

// The source of a put may be reused. `counter`: the put's; null: nobody wants to know.
inline void count_reusable(uint64_t* counter) {
  // release; pairs with the acquire in Gin::read_counter()
  if (counter != nullptr) std::atomic_ref<uint64_t>(*counter).fetch_add(1, std::memory_order_release);
}

// What somebody waits for to be delivered: what had been posted when they first asked. Others may go on posting.
struct Delivery {
  std::vector<uint64_t> num_in_rings;  // descriptors, of a proxy's rings
  std::vector<uint64_t> num_posted;    // writes, by peer
  std::vector<bool> is_open;           // by peer: not all of it has arrived; empty: nobody knows, or there is nothing
};

class NetEndpoint : public Progressed {
 public:
  // COLLECTIVE over the ranks of the communicator, in the same order; ids are equal everywhere and never used twice.
  virtual Status register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) = 0;
  virtual void deregister_region(uint32_t id) = 0;

  virtual NetPost put(const NetPut& put) = 0;
  // Several to one peer, in this order, as put() does it one by one; how many were posted. `result` is that of the last
  // one tried; who gets kBusy comes back with the rest. A chain: a network with a doorbell need ring it once only.
  virtual size_t put_chain(std::span<const NetPut> puts, NetPost& result) {
    for (size_t i = 0; i < puts.size(); ++i) {
      if ((result = put(puts[i])) != NetPost::kPosted) return i;
    }
    return puts.size();
  }
  // Writes up to 8 bytes that travel with the call, then the signal, as put() does.
  virtual NetPost put_value(const NetPut& put, uint64_t value) = 0;
  // Are the sources of all puts so far reusable?
  virtual NetPost flush() = 0;
  // Has everything arrived that was posted before the first call with this one? What was for a peer that is lost or has
  // left does not count. kFailed: the network is lost.
  virtual NetPost deliver(Delivery& delivery) = 0;
  // Here and for peers that write to this rank.
  bool progress() override = 0;
  // Applies what has been delivered here. May wait for another thread that is at it.
  virtual void catch_up() = 0;
  // Of puts whose sources are not reusable yet.
  virtual uint64_t bytes_in_flight() const = 0;
  // False once this peer, or everything, is lost: nothing goes there or comes from there any more.
  virtual bool usable(int peer) const = 0;
  // That peer is gone, as others know: nothing is posted to it any more, and nobody waits for what is in flight to it. A
  // machine that vanished answers neither yes nor no for minutes.
  virtual void give_up(int /*peer*/, const std::string& /*why*/) {}
  // That peer has left in good order: what it sent before counts, and what is posted to it goes nowhere and is as good as
  // delivered.
  virtual void forget(int /*peer*/) {}
  // Ends every operation in flight; later posts fail.
  virtual void abort() = 0;
  // What went wrong first.
  virtual Status error() const = 0;
  // Why the peer is not usable; ok where it is.
  virtual Status why_lost(int peer) const {
    return usable(peer) ? Status() : error();
  }
  // The endpoint that this one decorates; null: a plugin's own.
  virtual NetEndpoint* inner() { return nullptr; }
};

// For a decorator that has taken posts and holds some back: those of others are delivered meanwhile, and who is open is seen.
// `is_held(peer)`: something for that peer is.
template <class IsHeld>
NetPost deliver_beneath(NetEndpoint& inner, Delivery& delivery, size_t num_ranks, IsHeld is_held) {
  std::vector<bool> held(num_ranks);
  bool any = false;
  for (size_t peer = 0; peer < num_ranks; ++peer) any |= held[peer] = is_held(peer);
  if (!any || !delivery.num_posted.empty()) return inner.deliver(delivery);
  Delivery so_far;
  const NetPost result = inner.deliver(so_far);
  if (result == NetPost::kBusy && so_far.is_open.empty()) {
    delivery.is_open.clear();
    return result;
  }
  so_far.is_open.resize(num_ranks);
  for (size_t peer = 0; peer < num_ranks; ++peer) held[peer] = held[peer] || so_far.is_open[peer];
  delivery.is_open = std::move(held);
  return result == NetPost::kFailed ? result : NetPost::kBusy;
}

struct NetContext {
  std::string name;         // as it was asked for
  Window::Context window;   // who is in the communicator and how they exchange
  RankRange machine_ranks;  // ranks of this machine, whatever nodes it pretends to be
  uint64_t comm_id;         // names the plugin's own exchanges
};

// Tells others, through the bootstrap, that their network has lost them: nobody need wait for its time limit.
// THREADS  any; never blocks.
class LossTeller {
 public:
  explicit LossTeller(const NetContext& context)
      : bootstrap_(&context.window.bootstrap),
        comm_id_(context.comm_id),
        members_(context.window.members.begin(), context.window.members.end()) {}
  void tell(int peer, const std::string& why) const;
  void tell_all(const std::string& why) const;

 private:
  Bootstrap* bootstrap_;
  uint64_t comm_id_;
  std::vector<int> members_;
};

struct NetPlugin {
  const char* name;
  NetCapabilities capabilities;
  Result<std::unique_ptr<NetEndpoint>> (*connect)(const NetContext& context, Deadline deadline);
};

// Ok, or which capability that is needed is missing.
Status check_capabilities(const NetPlugin& plugin, const NetCapabilities& needs);

// What lies between an endpoint and those who post. Faults are each rank's own; checksums all ranks have or none.
struct NetDecorations {
  std::optional<FaultPlan> faults{};  // none: SWITCHYARD_NET_FAULTS
  std::optional<bool> checksum{};     // none: SWITCHYARD_NET_CHECKSUM
};
// The faults that are wanted, or why they can't be had: a list that is malformed, or names no rank of the job.
Result<std::optional<FaultPlan>> faults_wanted(const NetDecorations& wanted, int num_world_ranks);
// COLLECTIVE. The endpoint as it shall be used: checksums over faults over the plugin's. Whatever is outermost is what
// the progress thread helps along. Refused where ranks chose differently, or the plugin lacks what Gin needs.
Result<std::unique_ptr<NetEndpoint>> connect_network(const NetPlugin& plugin, const NetContext& context,
                                                     const NetDecorations& wanted, Deadline deadline);

std::span<const NetPlugin> net_plugins();
// "ofi", or with what the plugin makes of the rest, "ofi:net".
Result<const NetPlugin*> find_net_plugin(const std::string& name);

}  // namespace switchyard
