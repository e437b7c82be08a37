#include "platform/host/memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace switchyard {
namespace {

using Kind = DeviceMemory::Kind;

TEST(Memory, IsZeroedPageAlignedAndWritable) {
  auto memory = Memory::create(10'000);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % size_t(sysconf(_SC_PAGESIZE)), 0u);
  EXPECT_EQ(memory->size(), 10'000u);
  EXPECT_TRUE(std::all_of(memory->data(), memory->data() + 10'000, [](std::byte b) { return b == std::byte(0); }));
  std::fill_n(memory->data(), 10'000, std::byte(0x5a));
}

TEST(Memory, IsTheSameMemoryThroughItsDescriptor) {
  auto memory = Memory::create(4096);
  ASSERT_TRUE(memory.ok());
  void* other = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  memory->data()[17] = std::byte(99);
  EXPECT_EQ(static_cast<std::byte*>(other)[17], std::byte(99));
  munmap(other, 4096);
}

TEST(Memory, CannotBeResizedByWhoeverHoldsTheDescriptor) {
  auto memory = Memory::create(8192);
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(ftruncate(memory->fd(), 4096), 0);
  EXPECT_NE(ftruncate(memory->fd(), 16384), 0);
  const int seals = fcntl(memory->fd(), F_GET_SEALS);
  EXPECT_EQ(seals, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(fcntl(memory->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Memory, CostsNothingUntilItIsTouched) {
  auto memory = Memory::create(size_t(1) << 38);  // 256 GiB
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  memory->data()[(size_t(1) << 37) + 5] = std::byte(1);
  struct stat info;
  ASSERT_EQ(fstat(memory->fd(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 4 << 20);  // one page, or one huge page
}

TEST(Memory, MovesItsOwnershipAlong) {
  auto created = Memory::create(4096);
  ASSERT_TRUE(created.ok());
  Memory first = std::move(created).value();
  std::byte* const data = first.data();
  Memory second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT: the moved-from state is what is tested
  data[0] = std::byte(1);
}

TEST(Memory, RefusesSizesThatCannotBe) {
  EXPECT_EQ(Memory::create(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Memory::create(Memory::kMaxBytes + 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Memory::create(~size_t(0)).status().code(), Code::kInvalidArgument);
}

TEST(Memory, SaysSoWhenDescriptorsRunOut) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto memory = Memory::create(4096);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), Code::kSystemError);
  EXPECT_NE(memory.status().message().find("ulimit -n"), std::string::npos);
}

TEST(DeviceMemory, FindsTheAllocationOfAnyAddressInsideIt) {
  DeviceMemory registry;
  const auto first = registry.allocate(5'000), second = registry.allocate(4096, Kind::kPinnedHost, 3);
  ASSERT_TRUE(first.ok() && second.ok());
  auto* const base = static_cast<std::byte*>(first.value());
  for (const size_t offset : {size_t(0), size_t(1), size_t(4'999)}) {
    const auto found = registry.find(base + offset);
    ASSERT_TRUE(found) << offset;
    EXPECT_EQ(found->base, base);
    EXPECT_EQ(found->num_bytes, 5'000u);
    EXPECT_EQ(found->kind, Kind::kDevice);
    EXPECT_GE(found->fd, 0);
  }
  const auto other = registry.find(second.value());
  ASSERT_TRUE(other);
  EXPECT_EQ(other->kind, Kind::kPinnedHost);
  EXPECT_EQ(other->device_ordinal, 3);
}

TEST(DeviceMemory, DoesNotFindWhatIsNotItsOwn) {
  DeviceMemory registry;
  int local = 0;
  EXPECT_FALSE(registry.find(&local));
  EXPECT_FALSE(registry.find(nullptr));
  const auto pointer = registry.allocate(5'000);
  ASSERT_TRUE(pointer.ok());
  EXPECT_FALSE(registry.find(static_cast<std::byte*>(pointer.value()) + 5'000));
  EXPECT_FALSE(registry.find(static_cast<std::byte*>(pointer.value()) - 1));
}

TEST(DeviceMemory, FreesEachAllocationOnce) {
  DeviceMemory registry;
  const auto pointer = registry.allocate(4096);
  ASSERT_TRUE(pointer.ok());
  EXPECT_EQ(registry.num_bytes_allocated(), 4096u);
  EXPECT_EQ(registry.free(static_cast<std::byte*>(pointer.value()) + 16).code(), Code::kInvalidArgument);
  EXPECT_TRUE(registry.free(pointer.value()).ok());
  EXPECT_EQ(registry.free(pointer.value()).code(), Code::kInvalidArgument);
  EXPECT_FALSE(registry.find(pointer.value()));
  EXPECT_EQ(registry.num_bytes_allocated(), 0u);
}

TEST(DeviceMemory, ServesManyThreadsAtOnce) {
  DeviceMemory registry;
  std::vector<std::thread> threads;
  for (int thread_idx = 0; thread_idx < 4; ++thread_idx) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        const auto pointer = registry.allocate(4096 * size_t(1 + round % 5));
        ASSERT_TRUE(pointer.ok());
        ASSERT_TRUE(registry.find(pointer.value()));
        ASSERT_TRUE(registry.free(pointer.value()).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.num_bytes_allocated(), 0u);
}

}  // namespace
}  // namespace switchyard
