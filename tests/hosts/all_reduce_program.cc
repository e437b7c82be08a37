// A rank for the tests of `switchyard run --hosts`: adds up over all ranks and prints the sum and the number of nodes.
#include <cstdio>

#include "switchyard/coll.hpp"
#include "switchyard/comm.hpp"

using namespace switchyard;

int main() try {
  const Comm comm = Comm::from_environment();
  coll::CollGroup group(comm);
  HostStream stream;
  float sum = float(1 << comm.rank());
  group.all_reduce(&sum, &sum, 1, DType::kFloat32, coll::ReduceOp::kSum, stream);
  stream.synchronize();
  std::printf("%.0f over %d nodes\n", double(sum), comm.num_nodes());
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
