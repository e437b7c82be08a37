// Two ranks on two nodes under this process's environment: prints how the first one's network is decorated, or why there is
// none. (The environment is read once a process.)
#include <cstdio>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/coordinator.hpp"
#include "net/fault.hpp"

int main() {
  using namespace switchyard;
  const auto id = create_unique_id();
  if (!id.ok()) return 1;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm =
          Communicator::create(id.value(), rank, 2, {.timeout_ns = 10 * kSecond, .node_id = rank, .net = "mem"});
      if (rank != 0) return;
      NetEndpoint* const net = comm.ok() ? comm.value()->net() : nullptr;
      const FaultEndpoint* const faults = find_faults(net);
      const bool checksum = net != nullptr && net->inner() != nullptr && faults != net;
      std::printf("%s faults %d checksum %d\n", comm.status().to_string().c_str(), int(faults != nullptr), int(checksum));
    });
  }
  for (std::thread& thread : threads) thread.join();
}
