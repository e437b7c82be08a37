#include <atomic>
#include <cstring>

#include "bench/gin/path.hpp"
#include "bench/gin/raw_ofi.hpp"
#include "switchyard/device/gin.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::bench {
namespace {

class OverGin final : public GinPath {
 public:
  OverGin(Communicator& comm, const DeviceComm& device, int context, const WindowView& window)
      : device_(device), gin_(platform_, device_, context), window_(window), peer_(1 - comm.rank()) {}

  bool put(uint64_t num_bytes) override {
    return gin_.put(CoopThread{}, peer_, window_, kMaxGinBytes, window_, 0, num_bytes, SignalAdd{0}) == GinStatus::kOk;
  }
  bool flush() override { return gin_.flush() == GinStatus::kOk; }
  bool await(uint64_t num_told) override { return gin_.wait_signal(0, num_told, peer_) == GinStatus::kOk; }

 private:
  const HostPlatform platform_{};
  const DeviceComm device_;
  const Gin<HostPlatform> gin_;
  const WindowView window_;  // first half: mine; second half: the peer's
  const int peer_;
};

class OverStores final : public GinPath {
 public:
  OverStores(Communicator& comm, const WindowView& window)
      : mine_(window.local(0)),
        inbox_(window.lsa(kMaxGinBytes, 1 - comm.rank())),
        told_(window.lsa_as<uint64_t>(2 * kMaxGinBytes, 1 - comm.rank())),
        heard_(window.local_as<uint64_t>(2 * kMaxGinBytes)) {}

  bool put(uint64_t num_bytes) override {
    platform_.push(mine_, &inbox_, 1, num_bytes);
    platform_.drain();
    std::atomic_ref<uint64_t>(*told_).fetch_add(1, std::memory_order_release);  // pairs with the acquire in await()
    return true;
  }
  bool flush() override { return true; }
  bool await(uint64_t num_told) override {
    Backoff backoff;
    while (std::atomic_ref<uint64_t>(*heard_).load(std::memory_order_acquire) < num_told) {
      backoff.pause();
      if (backoff.waited_ns() > 30'000'000'000) return false;
    }
    return true;
  }

 private:
  const HostPlatform platform_{};
  const char* mine_;
  char* inbox_;
  uint64_t* told_;
  uint64_t* heard_;
};

class OverOfi final : public GinPath {
 public:
  OverOfi(std::unique_ptr<RawOfi> raw, int peer) : raw_(std::move(raw)), peer_(peer) {}
  bool put(uint64_t num_bytes) override { return raw_->put(peer_, num_bytes); }
  bool await(uint64_t num_told) override { return raw_->await(num_told); }
  bool flush() override { return raw_->flush(); }

 private:
  const std::unique_ptr<RawOfi> raw_;
  const int peer_;
};

Result<WindowView> make_window(Communicator& comm) {
  constexpr size_t kNumBytes = 2 * kMaxGinBytes + 128;
  SWITCHYARD_ASSIGN(void* memory, comm.runtime().allocate(kNumBytes));  // lives as long as the process
  std::memset(memory, 0, kNumBytes);
  SWITCHYARD_ASSIGN(const Window* window, comm.register_window(memory, kNumBytes));
  return comm.view(*window);
}

}  // namespace

Result<GinPathPtr> make_gin_path(Communicator& comm, const DeviceComm& device, int context) {
  SWITCHYARD_ASSIGN(const WindowView window, make_window(comm));
  return GinPathPtr(std::make_unique<OverGin>(comm, device, context, window));
}

Result<GinPathPtr> make_ofi_path(Communicator& comm, const std::string& net) {
  SWITCHYARD_ASSIGN(std::unique_ptr<RawOfi> raw, RawOfi::create(comm, net));
  return GinPathPtr(std::make_unique<OverOfi>(std::move(raw), 1 - comm.rank()));
}

Result<GinPathPtr> make_store_path(Communicator& comm) {
  SWITCHYARD_ASSIGN(const WindowView window, make_window(comm));
  return GinPathPtr(std::make_unique<OverStores>(comm, window));
}

}  // namespace switchyard::bench
