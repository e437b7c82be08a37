// A member of a job that offers others window memory which would harm them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "boot_support.hpp"
#include "comm/window.hpp"
#include "platform/host/memory.hpp"

namespace switchyard::test {
namespace {

constexpr size_t kBytes = 64 << 10;
constexpr uint64_t kCommId = 5, kLinkId = 6;

// What a Window tells the other members (window.cc).
struct Offer {
  uint64_t num_bytes, alloc_bytes, offset;
  uint32_t mappable, reserved;
};

Fd make_memory(size_t num_bytes, unsigned seals) {
  Fd fd(memfd_create("switchyard_test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), off_t(num_bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

// Rank 1 plays its part by hand; what registering then says to rank 0.
Status register_with(const Offer& offer, const Fd& memory) {
  Status verdict;
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 2, [&](Bootstrap& bootstrap) {
    const std::vector<int> members = world(2);
    const auto link = NodeLink::create(bootstrap, kLinkId, members, bootstrap.rank(), in_seconds(30));
    ASSERT_TRUE(link.ok()) << link.status().to_string();
    if (bootstrap.rank() == 1) {
      (void)bootstrap.exchange_values(kCommId, members, offer, in_seconds(30));
      (void)link.value()->share(memory.get(), in_seconds(30));
      (void)bootstrap.barrier(kCommId, members, in_seconds(30));
      return;
    }
    auto mine = Whereabouts::mine({});
    ASSERT_TRUE(mine.ok());
    std::vector<Whereabouts> whereabouts(2, *mine);
    whereabouts[1].pid++;  // not a thread of ours, whose memory would need no mapping
    Runtime& runtime = host_runtime();
    auto own = runtime.allocate(kBytes);
    ASSERT_TRUE(own.ok());
    const Window::Context context{
        runtime, bootstrap, link.value().get(), {0, 2}, whereabouts, members, coordinator->id().job_id, kCommId, 0};
    verdict = Window::create(context, 1, *own, kBytes, in_seconds(30)).status();
    EXPECT_TRUE(runtime.free(*own).ok());
  });
  return verdict;
}

constexpr unsigned kGoodSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TEST(HostileMember, HonestOfferIsTaken) {
  const Status status = register_with({kBytes, kBytes, 0, 1, 0}, make_memory(kBytes, kGoodSeals));
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(HostileMember, MemoryShorterThanItsOfferIsRefused) {
  const Status status = register_with({kBytes, kBytes, 0, 1, 0}, make_memory(4096, kGoodSeals));
  EXPECT_NE(status.message().find("rank 1 offered 65536 bytes of window memory and sent 4096"), std::string::npos)
      << status.to_string();
}

TEST(HostileMember, MemoryThatCouldBeTakenAwayIsRefused) {
  const Status status = register_with({kBytes, kBytes, 0, 1, 0}, make_memory(kBytes, F_SEAL_GROW));
  EXPECT_NE(status.message().find("could take away"), std::string::npos) << status.to_string();
}

TEST(HostileMember, SizesWhoseSumWouldWrapAreRefused) {
  const Status status = register_with({kBytes, uint64_t(1) << 63, 0, 1, 0}, make_memory(kBytes, kGoodSeals));
  EXPECT_NE(status.message().find("rank 1 sent an impossible window offer"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace switchyard::test
