// The descriptor ring and the rule by which signals may leave it (include/switchyard/device/proxy_ring.hpp and net.hpp,
// as they are) as programs for the explorer. The worker's side is extracted from src/net/proxy.cc, which is no
// template: mutants.cmake fails the configure step when one of the extracted lines changes.
#pragma once
#include <string>
#include <vector>

#include "model/explorer.hpp"
#include "model/kernels.hpp"

namespace switchyard::model {

// What the worker does wrong.
enum class WorkerFault { kNone, kDoneBeforeTheNetworkHasIt, kFlushedWhenTaken };

struct RingCase {
  int num_slots = 2;  // 2 or 4
  // What each producer posts, one letter an operation: p a put of one slot, P a put of two; f a flush, after which it
  // overwrites the sources of its puts.
  std::vector<std::string> producers;
  int batch = 2;  // descriptors between two done()
  WorkerFault fault = WorkerFault::kNone;
};
Report explore_ring(const RingCase& c, const Kernels& kernels, const Options& options = {});

// A producer posts puts (p) and signals (s) to a context through net_put(), P and S with an extension. When a worker
// takes a signal, from whichever ring, the network has all earlier puts.
struct ReservedCase {
  std::string script;
  std::string others_script = {};  // of another thread, which the producer tells when it is through with its own
  WorkerFault fault = WorkerFault::kNone;
};
Report explore_reserved(const ReservedCase& c, const Kernels& kernels, const Options& options = {});

}  // namespace switchyard::model
