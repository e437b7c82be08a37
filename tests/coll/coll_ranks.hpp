// Ranks as threads with collectives, spread over nodes as a test wants it.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "coll/collectives.hpp"
#include "coll/reference.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {

struct Nodes {
  const char* name;
  std::vector<int> of_rank;
  const char* net = "mem";
  const char* gin = "direct";
};

// Small vectors go through in many pieces.
constexpr uint64_t kSmallStage = 32 << 10;

class CollRanks {
 public:
  explicit CollRanks(const Nodes& nodes, uint64_t stage_bytes = kSmallStage, Communicator::Options options = {})
      : nodes_(nodes.of_rank),
        ranks_(int(nodes.of_rank.size()), with_network(std::move(options), nodes), nodes.of_rank),
        collectives_(nodes.of_rank.size()) {
    ranks_.on_all([&](int rank) {
      auto made = coll::Collectives::create(ranks_.comm(rank), {.stage_bytes = stage_bytes});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      collectives_[size_t(rank)] = std::move(made).value();
    });
  }
  ~CollRanks() {
    ranks_.on_all([&](int rank) { (void)ranks_.stream(rank).synchronize(Deadline::after_ns(10 * kSecond)); });
    ranks_.on_all([&](int rank) { collectives_[size_t(rank)].reset(); });
  }

  int size() const { return ranks_.size(); }
  const std::vector<int>& nodes() const { return nodes_; }
  coll::Collectives& operator[](int rank) { return *collectives_[size_t(rank)]; }
  Communicator& comm(int rank) { return ranks_.comm(rank); }
  Stream& stream(int rank) { return ranks_.stream(rank); }
  StreamRef stream_ref(int rank) { return ranks_.stream_ref(rank); }
  void on_all(const std::function<void(int)>& body) { ranks_.on_all(body); }

  // What the rank's stream says when everything posted so far has run; and it goes on.
  Status finish(int rank) {
    const Status status = stream(rank).synchronize(Deadline::after_ns(60 * kSecond));
    (void)stream(rank).take_error();
    return status;
  }
  void expect_finished(int rank) {
    const Status status = finish(rank);
    EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status.to_string();
  }

 private:
  static Communicator::Options with_network(Communicator::Options options, const Nodes& nodes) {
    options.net = nodes.net;
    options.gin = nodes.gin;
    return options;
  }

  std::vector<int> nodes_;
  ThreadRanks ranks_;
  std::vector<std::unique_ptr<coll::Collectives>> collectives_;
};

inline void expect_posted(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

}  // namespace switchyard::testing
