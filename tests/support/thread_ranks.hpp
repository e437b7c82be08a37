// Ranks as threads of the test's process: communicators that live as long as the object, and a way to run a function
// on all of them at once.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/coordinator.hpp"
#include "platform/host/stream.hpp"

namespace switchyard::testing {

class ThreadRanks {
 public:
  // Of each rank: as many pretended nodes as SWITCHYARD_TEST_NODES says, so that whole suites can be run over a network;
  // without that none, which is one node.
  static std::vector<int> default_nodes(int num_ranks) {
    std::vector<int> nodes;
    if (const char* wanted = std::getenv("SWITCHYARD_TEST_NODES"); wanted != nullptr) {
      const int num_nodes = std::min(std::atoi(wanted), num_ranks);
      for (int rank = 0; rank < num_ranks; ++rank) nodes.push_back(rank * num_nodes / num_ranks);
    }
    return nodes;
  }

  // `nodes`: the pretended node of each rank; empty: the default ones.
  explicit ThreadRanks(int num_ranks, Communicator::Options options = {}, std::vector<int> nodes = {})
      : comms_(size_t(num_ranks)) {
    if (nodes.empty()) nodes = default_nodes(num_ranks);
    const auto id = create_unique_id();
    if (!id.ok()) {
      ADD_FAILURE() << id.status().to_string();
      return;
    }
    on_all([&](int rank) {
      Communicator::Options mine = options;
      if (!nodes.empty()) mine.node_id = nodes[size_t(rank)];
      auto comm = Communicator::create(id.value(), rank, num_ranks, mine);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      comms_[size_t(rank)] = std::move(comm).value();
    });
    for (int rank = 0; rank < num_ranks; ++rank) streams_.push_back(std::move(Stream::create()).value());
  }
  ~ThreadRanks() {
    streams_.clear();
    on_all([&](int rank) { comms_[size_t(rank)].reset(); });
  }

  int size() const { return int(comms_.size()); }
  Communicator& comm(int rank) { return *comms_[size_t(rank)]; }
  Stream& stream(int rank) { return *streams_[size_t(rank)]; }
  StreamRef stream_ref(int rank) { return {streams_[size_t(rank)].get()}; }

  // That rank's communicator goes before the others'.
  void leave(int rank) { comms_[size_t(rank)].reset(); }

  // Runs body(rank) on a thread per rank and waits for all.
  void on_all(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<Communicator>> comms_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace switchyard::testing
