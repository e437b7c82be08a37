// Device communicators: the memory behind a kernel's signals, counters and barriers.
#include "base/checked.hpp"
#include "base/env.hpp"
#include "comm/communicator.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

// The kernel's thread posts; when the network has no room it helps the network along, up to the time limit. Groups rely on
// that limit: what a kernel uses is freed when it must have ended.
template <class Post>
bool post_with_patience(void* target, Post post) {
  const auto& net = *static_cast<DirectNet*>(target);
  NetPost result = NetPost::kBusy;
  wait_until(
      [&] {
        result = post(*net.endpoint);
        if (result == NetPost::kBusy) net.endpoint->progress();
        return result != NetPost::kBusy || std::atomic_ref(*net.abort).load(std::memory_order_relaxed) != 0;
      },
      Deadline::after_ns(net.timeout_ns));
  return result == NetPost::kPosted;
}

NetEndpoint& endpoint_of(void* target) { return *static_cast<DirectNet*>(target)->endpoint; }

constexpr NetCalls kDirectCalls = {
    [](void* target, const NetPut& put) {
      return post_with_patience(target, [&](NetEndpoint& endpoint) { return endpoint.put(put); });
    },
    [](void* target, const NetPut& put, uint64_t value) {
      return post_with_patience(target, [&](NetEndpoint& endpoint) { return endpoint.put_value(put, value); });
    },
    [](void* target) { return post_with_patience(target, [](NetEndpoint& endpoint) { return endpoint.flush(); }); },
    [](void* target) { return endpoint_of(target).progress() || endpoint_of(target).bytes_in_flight() > 0; },
    [](void* target, int peer) { return endpoint_of(target).usable(peer); },
};

// Kernels write into the rings; all they call is for help.
constexpr NetCalls kProxyCalls = {
    nullptr,
    nullptr,
    nullptr,
    [](void* target) {
      auto& proxy = *static_cast<Proxy*>(target);
      return proxy.progress() || proxy.endpoint().bytes_in_flight() > 0;
    },
    [](void* target, int peer) { return static_cast<Proxy*>(target)->endpoint().usable(peer); },
};

Status check(const DeviceCommRequirements& requirements) {
  const auto in_range = [](const char* name, int value, int low) {
    return value >= low && value <= (1 << 16) ? Status()
                                              : Status::invalid_argument(text(name, " is ", value, ", allowed ", low, "..", 1 << 16));
  };
  SWITCHYARD_TRY(in_range("num_contexts", requirements.num_contexts, 1));
  SWITCHYARD_TRY(in_range("num_signals", requirements.num_signals, 0));
  SWITCHYARD_TRY(in_range("num_counters", requirements.num_counters, 0));
  return in_range("num_barriers", requirements.num_barriers, 0);
}

}  // namespace

Result<bool> Communicator::is_proxy_wanted() const {
  const std::string asked = options_.gin.empty() ? env().gin : options_.gin;
  if (asked == "proxy") return true;
  if (asked.empty() || asked == "direct") return false;
  return Status::invalid_argument(text("the way to the network is '", asked, "', allowed are direct and proxy (SWITCHYARD_GIN)"));
}

Status Communicator::open_net_path() {
  SWITCHYARD_ASSIGN(const bool by_proxy, is_proxy_wanted());
  if (by_proxy) {
    SWITCHYARD_ASSIGN(proxy_, Proxy::create(runtime_, *net_, num_ranks()));
    net_path_ = {proxy_.get(), &kProxyCalls, proxy_->rings(), Proxy::kNumBulkRings, timeout_ns_, health_->abort_word()};
    return {};
  }
  direct_net_ = {net_.get(), health_->abort_word(), timeout_ns_};
  net_path_ = {&direct_net_, &kDirectCalls, nullptr, 0, timeout_ns_, health_->abort_word()};
  return {};
}

WindowView Communicator::view(const Window& window) const {
  return {window.bases(), window.size(), rank_, window.id()};
}

Result<void*> Communicator::allocate_owned(size_t num_bytes) {
  make_room();
  SWITCHYARD_ASSIGN(void* memory, runtime_.allocate(num_bytes));
  const std::lock_guard lock(mutex_);
  owned_.push_back(memory);
  return memory;
}

Result<DeviceComm> Communicator::create_device_comm(const DeviceCommRequirements& requirements) {
  SWITCHYARD_TRY(check(requirements));
  SWITCHYARD_ASSIGN(const std::vector<DeviceCommRequirements> all, exchange(requirements));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const DeviceCommRequirements& theirs = all[rank];
    if (theirs.num_contexts == requirements.num_contexts && theirs.num_signals == requirements.num_signals &&
        theirs.num_barriers == requirements.num_barriers) {
      continue;
    }
    return Status::invalid_usage(text("rank ", rank, " asks for other contexts, signals or barriers than rank ", rank_));
  }
  DeviceComm device{};
  device.world = {num_ranks(), rank_, 0};
  const RankRange node = topology_->my_node_ranks();
  device.lsa = {node.count, rank_ - node.first, node.first};
  device.num_nodes = topology_->num_nodes();
  device.node = topology_->my_node();
  device.num_contexts = requirements.num_contexts;
  device.num_signals = requirements.num_signals;
  device.num_counters = requirements.num_counters;
  device.num_barriers = requirements.num_barriers;
  device.peer_state = health_->peer_state();
  device.abort = health_->abort_word();
  device.timeout_ns = timeout_ns_;

  std::vector<int32_t> nodes;
  for (int i = 0; i < device.num_nodes; ++i) nodes.push_back(topology_->node_first(i));
  for (int i = 0; i < device.num_nodes; ++i) nodes.push_back(topology_->node_size(i));
  SWITCHYARD_ASSIGN(void* node_table, allocate_owned(nodes.size() * sizeof(int32_t)));
  SWITCHYARD_TRY(runtime_.upload(node_table, nodes.data(), nodes.size() * sizeof(int32_t)));
  device.node_first = static_cast<int32_t*>(node_table);
  device.node_size = device.node_first + device.num_nodes;

  const size_t num_words = size_t(device.num_contexts) * size_t(device.num_counters) +
                           size_t(device.num_barriers) * (1 + size_t(num_ranks())) + 1;
  SWITCHYARD_ASSIGN(void* words, allocate_owned(num_words * sizeof(uint64_t)));
  device.counters = static_cast<uint64_t*>(words);
  device.barrier_epochs = device.counters + size_t(device.num_contexts) * size_t(device.num_counters);

  SWITCHYARD_ASSIGN(void* resources, allocate_owned(device.resource_bytes()));
  SWITCHYARD_ASSIGN(const Window* window, register_window(resources, device.resource_bytes()));
  device.resources = view(*window);
  device.net = net_path_;
  return device;
}

}  // namespace switchyard
