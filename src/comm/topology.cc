#include "comm/topology.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.hpp"
#include "base/fd.hpp"
#include "base/retry.hpp"

namespace switchyard {
namespace {

// Changes with every boot and differs between machines; containers of one machine share it, and its memory.
Result<std::string> boot_id() {
  Fd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char buffer[64];
  const ssize_t length =
      file.valid() ? retry_interrupted([&] { return read(file.get(), buffer, sizeof(buffer)); }) : -1;
  if (length <= 0) return Status::system_error("reading /proc/sys/kernel/random/boot_id to tell this machine from others");
  return std::string(buffer, size_t(length));
}

// Descriptors travel over abstract Unix sockets, which end at the network namespace.
uint64_t network_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/net", &info) == 0 ? uint64_t(info.st_ino) : 0;
}

std::array<uint64_t, 2> hash_of(const std::string& name) {
  std::array<uint64_t, 2> hash{};
  static_assert(sizeof(hash) == crypto_generichash_BYTES_MIN);
  crypto_generichash(reinterpret_cast<unsigned char*>(hash.data()), sizeof(hash),
                     reinterpret_cast<const unsigned char*>(name.data()), name.size(), nullptr, 0);
  return hash;
}

}  // namespace

Result<Whereabouts> Whereabouts::mine(std::optional<int64_t> node_id) {
  SWITCHYARD_ASSIGN(std::string machine, boot_id());
  machine += text("/", network_namespace());
  Whereabouts here{};
  here.machine = hash_of(machine);
  if (!node_id) node_id = env().node_id;
  here.node = hash_of(machine + (node_id ? text("/", *node_id) : std::string()));
  here.pid = getpid();
  here.uid = geteuid();
  return here;
}

Result<Topology> Topology::build(std::span<const Whereabouts> ranks, int my_rank) {
  Topology topology;
  topology.my_rank_ = my_rank;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank == 0 || !ranks[rank].same_node(ranks[rank - 1])) {
      for (const int first : topology.node_first_) {
        if (!ranks[size_t(first)].same_node(ranks[rank])) continue;
        return Status::invalid_usage(
            text("ranks ", first, " and ", rank, " share a node but ranks between them do not: number the ranks of a node "
                 "consecutively (mpirun --map-by slot, switchyard run --nodes)"));
      }
      topology.node_first_.push_back(int(rank));
      topology.node_size_.push_back(0);
    }
    topology.node_of_.push_back(int(topology.node_first_.size()) - 1);
    ++topology.node_size_.back();
  }
  return topology;
}

}  // namespace switchyard
