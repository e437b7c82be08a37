// The CUDA runtime of the host flavour, used as a C++ program uses CUDA's. Each test has a device of its own.
#include <cuda.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "platform/host/device.hpp"
#include "platform/host/memory.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

class HostCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    static int next_device = 0;
    ASSERT_EQ(cudaSetDevice(next_device = (next_device + 1) % Device::kNumDevices), cudaSuccess);
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  }
  void TearDown() override {
    open_gate();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    cudaGetLastError();
  }

  // Holds a stream up until the test opens the gate.
  void hold(cudaStream_t held) {
    const cudaHostFn_t wait = [](void* test) {
      std::atomic<uint32_t>& gate = static_cast<HostCuda*>(test)->gate_;
      // Longer than the test's own time limit: a call that wrongly waits for the gate hangs, and the test fails.
      wait_until([&] { return gate.load(std::memory_order_acquire) != 0; }, Deadline::after_ns(600 * kSecond));
    };
    ASSERT_EQ(cudaLaunchHostFunc(held, wait, this), cudaSuccess);
  }
  void open_gate() { gate_.store(1, std::memory_order_release); }  // pairs with acquire in hold()
  bool gate_is_open() const { return gate_.load(std::memory_order_relaxed) != 0; }

  cudaStream_t stream = nullptr;

 private:
  std::atomic<uint32_t> gate_{0};
};

TEST_F(HostCuda, LooksLikeManyDevicesOfComputeCapabilityTen) {
  int count = 0, major = 0, minor = -1, multicast = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_GE(count, 64);
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), cudaSuccess);
  EXPECT_EQ(major, 10);
  EXPECT_EQ(minor, 0);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, count - 1), cudaSuccess);
  EXPECT_EQ(properties.major, 10);
  EXPECT_GT(properties.multiProcessorCount, 0);
  EXPECT_GT(properties.totalGlobalMem, size_t(1) << 28);
  ASSERT_EQ(cuDeviceGetAttribute(&multicast, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0), CUDA_SUCCESS);
  EXPECT_EQ(multicast, 1);
}

TEST_F(HostCuda, RefusesDevicesAndAttributesThatDoNotExist) {
  int value = 0;
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(1'000), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1'000), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDeviceAttr(9'999), 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetAttribute(nullptr, cudaDevAttrWarpSize, 0), cudaErrorInvalidValue);
}

TEST_F(HostCuda, RemembersTheLastErrorOfEachThreadOnce) {
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
  EXPECT_STREQ(cudaGetErrorString(cudaError_t(12'345)), "unrecognized error code");
}

TEST_F(HostCuda, AllocatesMemoryThatLeadsBackToADescriptor) {
  float* tokens = nullptr;
  ASSERT_EQ(cudaMalloc(&tokens, 100'000), cudaSuccess);
  const auto found = DeviceMemory::instance().find(tokens + 100);
  ASSERT_TRUE(found);
  EXPECT_GE(found->fd, 0);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, tokens + 100), cudaSuccess);
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, device);
  EXPECT_EQ(cudaFree(tokens), cudaSuccess);
  EXPECT_EQ(cudaFree(tokens), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST_F(HostCuda, TellsPinnedDeviceAndPlainMemoryApart) {
  int *pinned = nullptr, plain = 0;
  ASSERT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &plain), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(HostCuda, GivesNullForZeroBytesAndAnErrorForTooMany) {
  void* pointer = &pointer;
  EXPECT_EQ(cudaMalloc(&pointer, 0), cudaSuccess);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(cudaMalloc(&pointer, ~size_t(0)), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(static_cast<void**>(nullptr), 8), cudaErrorInvalidValue);
}

TEST_F(HostCuda, MemcpyAndMemsetSeeWhatBlockingStreamsDidBefore) {
  // No synchronization in between: the legacy order of the default stream is what programs rely on.
  int* value = nullptr;
  ASSERT_EQ(cudaMalloc(&value, sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMemset(value, 0, sizeof(int)), cudaSuccess);
  for (int round = 0; round < 50; ++round) {
    const cudaHostFn_t increment = [](void* data) { ++*static_cast<int*>(data); };
    ASSERT_EQ(cudaLaunchHostFunc(stream, increment, value), cudaSuccess);
    int seen = -1;
    ASSERT_EQ(cudaMemcpy(&seen, value, sizeof(int), cudaMemcpyDeviceToHost), cudaSuccess);
    ASSERT_EQ(seen, round + 1);
  }
  EXPECT_EQ(cudaFree(value), cudaSuccess);
}

TEST_F(HostCuda, AsynchronousCopyReturnsBeforeTheStreamGetsThere) {
  std::byte *from = nullptr, *to = nullptr;
  ASSERT_EQ(cudaMalloc(&from, 4096), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&to, 4096), cudaSuccess);
  ASSERT_EQ(cudaMemset(from, 7, 4096), cudaSuccess);
  hold(stream);
  ASSERT_EQ(cudaMemcpyAsync(to, from, 4096, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(to[4095], std::byte(0));
  open_gate();
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(to[4095], std::byte(7));
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(from), cudaSuccess);
  EXPECT_EQ(cudaFree(to), cudaSuccess);
}

TEST_F(HostCuda, ASmallPlainSourceMayBeReusedWhenTheCopyReturns) {
  int* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, sizeof(int)), cudaSuccess);
  hold(stream);
  int source = 42;
  ASSERT_EQ(cudaMemcpyAsync(device, &source, sizeof(int), cudaMemcpyHostToDevice, stream), cudaSuccess);
  source = 13;
  open_gate();
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*device, 42);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(HostCuda, ACopyToPlainMemoryIsThereWhenItReturns) {
  std::vector<int> host(100'000), back(host.size());
  std::iota(host.begin(), host.end(), 0);
  int* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, host.size() * sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device, host.data(), host.size() * sizeof(int), cudaMemcpyHostToDevice, stream), cudaSuccess);
  std::fill(host.begin(), host.end(), -1);  // larger than what is staged: the copy is done already
  ASSERT_EQ(cudaMemcpyAsync(back.data(), device, back.size() * sizeof(int), cudaMemcpyDefault, stream), cudaSuccess);
  EXPECT_EQ(back[99'999], 99'999);
  EXPECT_TRUE(std::is_sorted(back.begin(), back.end()));
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(HostCuda, RefusesCopiesThatCannotBe) {
  int value = 0;
  EXPECT_EQ(cudaMemcpy(&value, nullptr, 4, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(&value, &value, 4, cudaMemcpyKind(7), stream), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(nullptr, 0, 4, stream), cudaErrorInvalidValue);
}

TEST_F(HostCuda, FreeWaitsForTheWorkThatUsesTheMemory) {
  int* value = nullptr;
  ASSERT_EQ(cudaMalloc(&value, sizeof(int)), cudaSuccess);
  hold(stream);
  ASSERT_EQ(cudaMemsetAsync(value, 1, sizeof(int), stream), cudaSuccess);
  std::atomic<bool> opened{false};
  std::thread opener([&] {
    opened.store(true);
    open_gate();
  });
  EXPECT_EQ(cudaFree(value), cudaSuccess);  // a crash of the memset on unmapped memory if it did not wait
  EXPECT_TRUE(opened.load());
  opener.join();
}

TEST_F(HostCuda, FreesInStreamOrder) {
  int* value = nullptr;
  ASSERT_EQ(cudaMallocAsync(&value, sizeof(int), stream), cudaSuccess);
  hold(stream);
  ASSERT_EQ(cudaMemsetAsync(value, 1, sizeof(int), stream), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(value, stream), cudaSuccess);
  EXPECT_TRUE(DeviceMemory::instance().find(value));
  open_gate();
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_FALSE(DeviceMemory::instance().find(value));
}

TEST_F(HostCuda, OneRanksDeviceDoesNotWaitForAnothers) {
  hold(stream);
  std::thread([&] {
    int device = 0;
    ASSERT_EQ(cudaSetDevice(63), cudaSuccess);
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 63);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // would wait for the gate if the devices were one
    EXPECT_FALSE(gate_is_open());
  }).join();
}

TEST_F(HostCuda, EventsOrderStreamsAndMeasureTime) {
  cudaStream_t other = nullptr;
  cudaEvent_t start = nullptr, done = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&done), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(start, stream), cudaSuccess);
  hold(stream);
  ASSERT_EQ(cudaEventRecord(done, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, done), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(done), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, done), cudaErrorNotReady);
  open_gate();
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(done), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&ms, start, done), cudaSuccess);
  EXPECT_GT(ms, 0);
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(done), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(done), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(HostCuda, AnEventWithoutTimingRefusesToMeasure) {
  cudaEvent_t start = nullptr, end = nullptr;
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(start, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
}

TEST_F(HostCuda, ReportsAStreamsFailureOnceAndGoesOn) {
  Stream* const inside = Device::find_stream(stream).value();
  ASSERT_TRUE(inside->post([](Stream& self) { self.fail(Status::remote("peer 1 did not answer")); }).ok());
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_TRUE(inside->post([](Stream& self) { self.fail(Status::remote("peer 1 did not answer")); }).ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(HostCuda, RefusesStreamsThatAreGone) {
  cudaStream_t gone = nullptr;
  ASSERT_EQ(cudaStreamCreate(&gone), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(gone), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(gone), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(gone), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamCreateWithFlags(&gone, 0x80), cudaErrorInvalidValue);
}

TEST_F(HostCuda, SaysThatCaptureIsNotSupported) {
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaErrorNotSupported);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_F(HostCuda, DriverNamesSpeakOfTheSameDeviceAndMemory) {
  CUcontext context = nullptr, current = nullptr;
  CUdevice device = -1;
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 40), CUDA_SUCCESS);
  int before = -1;
  ASSERT_EQ(cudaGetDevice(&before), cudaSuccess);
  ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(current, context);
  EXPECT_EQ(device, 40);
  ASSERT_EQ(cudaSetDevice(before), cudaSuccess);

  CUdeviceptr memory = 0, base = 0;
  size_t num_bytes = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 1'000), CUDA_SUCCESS);
  ASSERT_EQ(cuMemGetAddressRange(&base, &num_bytes, memory + 999), CUDA_SUCCESS);
  EXPECT_EQ(base, memory);
  EXPECT_EQ(num_bytes, 1'000u);
  EXPECT_EQ(cuMemGetAddressRange(&base, &num_bytes, memory + 1'000), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
  int local = 0;
  EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(&local)), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace switchyard
