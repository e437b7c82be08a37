#include "platform/host/pin.hpp"

#include <algorithm>
#include <memory>
#include <type_traits>

#if SWITCHYARD_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace switchyard {
namespace {

thread_local CoreShare g_share;

}  // namespace

CoreShare this_threads_share() { return g_share; }
void set_this_threads_share(CoreShare share) { g_share = share; }

#if SWITCHYARD_HAVE_HWLOC
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDeleter>;

Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Topology owner(topology);
  // As taskset and containers left us, not as the machine was built.
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING);
  if (hwloc_topology_load(topology) != 0) return nullptr;
  return owner;
}

}  // namespace

Status pin_current_thread(CoreShare share) {
  if (share.share_idx < 0 || share.num_shares < 1) {
    return Status::invalid_argument(text("pinning: there is no share ", share.share_idx, " of ", share.num_shares));
  }
  static const Topology topology = load_topology();  // discovery takes milliseconds; read-only afterwards
  if (!topology) return Status::system_error("pinning: hwloc cannot read this machine's topology");
  const int num_cores = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE);
  if (num_cores <= 0) return Status::system_error("pinning: hwloc sees no cores");
  const int num_shares = std::min(share.num_shares, num_cores);
  const int share_idx = share.share_idx % num_shares;

  const int first = int(int64_t(num_cores) * share_idx / num_shares);
  const int last = int(int64_t(num_cores) * (share_idx + 1) / num_shares);
  const std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, decltype(&hwloc_bitmap_free)> cpus(hwloc_bitmap_alloc(),
                                                                                                  &hwloc_bitmap_free);
  for (int core_idx = first; core_idx < last; ++core_idx) {
    hwloc_bitmap_or(cpus.get(), cpus.get(),
                    hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_CORE, unsigned(core_idx))->cpuset);
  }
  if (hwloc_set_cpubind(topology.get(), cpus.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return Status::system_error(text("pinning to cores ", first, "..", last - 1, " of ", num_cores));
  }
  return {};
}

#else

Status pin_current_thread(CoreShare) {
  return Status::invalid_usage("pinning: this build has no hwloc; install libhwloc-dev and configure again");
}

#endif

}  // namespace switchyard
