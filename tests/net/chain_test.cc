// Chains over a provider that takes FI_MORE at its word: a write that is said not to be the last stays where it is
// until the next post. No provider that can be tried here does, so this one is libfabric's with a doorbell put in
// front.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>

#include "net/net_rank.hpp"
#include "net/ofi_library.hpp"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

namespace switchyard::testing {
namespace {

// A write as it was posted, with all that the post pointed to.
struct HeldWrite {
  fi_msg_rma message;
  iovec local;
  void* descriptor;
  fi_rma_iov remote;
  uint64_t flags;

  HeldWrite(const fi_msg_rma& posted, uint64_t posted_flags)
      : message(posted),
        local(*posted.msg_iov),
        descriptor(*posted.desc),
        remote(*posted.rma_iov),
        flags(posted_flags) {}
  int64_t post(fid_ep* endpoint, const fi_ops_rma& through) {
    message.msg_iov = &local;
    message.desc = &descriptor;
    message.rma_iov = &remote;
    return through.writemsg(endpoint, &message, flags);
  }
};

// The doorbells of all endpoints; each is used by one thread at a time, as its owner's lock has it.
class Doorbells {
 public:
  std::atomic<uint64_t> num_held{0}, num_released{0};

  void install(fid_ep* endpoint) {
    const std::lock_guard lock(mutex_);
    Doorbell& bell = bells_[endpoint];
    bell = {*endpoint->rma, *endpoint->msg, *endpoint->rma, *endpoint->msg, {}};
    bell.rma.writemsg = [](fid_ep* self, const fi_msg_rma* message, uint64_t flags) -> ssize_t {
      return instance().write(self, *message, flags);
    };
    bell.msg.sendmsg = [](fid_ep* self, const fi_msg* message, uint64_t flags) -> ssize_t {
      Doorbell& mine = instance().of(self);
      if (const int64_t rung = instance().ring(self, mine); rung != 0) return rung;
      return mine.real_msg.sendmsg(self, message, flags);
    };
    endpoint->rma = &bell.rma;
    endpoint->msg = &bell.msg;
  }
  static Doorbells& instance() {
    static Doorbells doorbells;
    return doorbells;
  }

 private:
  struct Doorbell {
    fi_ops_rma real_rma;
    fi_ops_msg real_msg;
    fi_ops_rma rma;
    fi_ops_msg msg;
    std::deque<HeldWrite> held;
  };

  Doorbell& of(fid_ep* endpoint) {
    const std::lock_guard lock(mutex_);
    return bells_.at(endpoint);
  }
  int64_t ring(fid_ep* endpoint, Doorbell& bell) {
    for (; !bell.held.empty(); bell.held.pop_front(), ++num_released) {
      if (const int64_t posted = bell.held.front().post(endpoint, bell.real_rma); posted != 0) return posted;
    }
    return 0;
  }
  int64_t write(fid_ep* endpoint, const fi_msg_rma& message, uint64_t flags) {
    Doorbell& bell = of(endpoint);
    if ((flags & FI_MORE) != 0) {
      bell.held.emplace_back(message, flags & ~FI_MORE);
      ++num_held;
      return 0;
    }
    if (const int64_t rung = ring(endpoint, bell); rung != 0) return rung;
    return bell.real_rma.writemsg(endpoint, &message, flags);
  }

  std::mutex mutex_;
  std::map<fid_ep*, Doorbell> bells_;  // by endpoint; the addresses of its values stay
};

// Each object's table of functions is replaced by one that makes the next object with a doorbell, down to endpoints.
decltype(&fi_fabric) g_real_fabric;
fi_ops_fabric g_fabric_ops, g_real_fabric_ops;
fi_ops_domain g_domain_ops, g_real_domain_ops;

int make_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  const int made = g_real_domain_ops.endpoint(domain, info, endpoint, context);
  if (made == 0) Doorbells::instance().install(*endpoint);
  return made;
}
int make_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  const int made = g_real_fabric_ops.domain(fabric, info, domain, context);
  if (made != 0) return made;
  g_real_domain_ops = g_domain_ops = *(*domain)->ops;
  g_domain_ops.endpoint = make_endpoint;
  (*domain)->ops = &g_domain_ops;
  return made;
}
int make_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  const int made = g_real_fabric(attributes, fabric, context);
  if (made != 0) return made;
  g_real_fabric_ops = g_fabric_ops = *(*fabric)->ops;
  g_fabric_ops.domain = make_domain;
  (*fabric)->ops = &g_fabric_ops;
  return made;
}

class Chain : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(OfiLibrary::load().ok());
    auto& library = const_cast<OfiLibrary&>(OfiLibrary::get());
    g_real_fabric = std::exchange(library.fabric, &make_fabric);
  }
  void TearDown() override {
    EXPECT_EQ(Doorbells::instance().num_released, Doorbells::instance().num_held) << "nothing waits for ever";
  }

  void on_both(const std::function<void(NetRank&)>& body) {
    ThreadRanks ranks(2, {.net = "ofi"}, {0, 1});
    ranks.on_all([&](int rank) {
      NetRank self(ranks.comm(rank));
      body(self);
      EXPECT_TRUE(self.comm.barrier().ok());
    });
  }
};

TEST_F(Chain, WhatIsHeldBackIsReleasedByTheEndOfItsChain) {
  const uint64_t num_held_before = Doorbells::instance().num_held;
  on_both([](NetRank& self) {
    uint64_t num_sent = 0;
    for (size_t size = 1; size <= 1000; size = 2 * size + 1) {
      const std::vector<NetPut> puts(size, self.put_of(4096, 0, 64, 1));
      size_t num_posted = 0;
      const auto post = [&] {
        NetPost result;
        num_posted += self.net.put_chain({puts.data() + num_posted, size - num_posted}, result);
        return result;
      };
      ASSERT_EQ(self.insist(post), NetPost::kPosted);
      // Nothing else is posted before all of it was seen.
      ASSERT_TRUE(self.wait_signal(1, num_sent += size)) << "a chain of " << size;
      ASSERT_TRUE(self.comm.barrier().ok());
    }
    ASSERT_EQ(self.flush(), NetPost::kPosted);
  });
  EXPECT_GT(Doorbells::instance().num_held, num_held_before) << "chains were posted";
}

TEST_F(Chain, OneThatWillBeRefusedIsNotWaitedFor) {
  on_both([](NetRank& self) {
    std::vector<NetPut> puts(3, self.put_of(4096, 0, 64, 2));
    puts[2].to_region = 77;
    size_t num_posted = 0;
    const auto post = [&] {
      NetPost result;
      num_posted += self.net.put_chain({puts.data() + num_posted, puts.size() - num_posted}, result);
      return result;
    };
    EXPECT_EQ(self.insist(post), NetPost::kFailed);
    EXPECT_EQ(num_posted, 2u);
    EXPECT_TRUE(self.wait_signal(2, 2));
  });
}

}  // namespace
}  // namespace switchyard::testing
