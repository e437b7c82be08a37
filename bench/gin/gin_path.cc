#include <atomic>
#include <cstring>

#include "bench/gin/path.hpp"
#include "bench/gin/raw_ofi.hpp"
#include "switchyard/device/gin.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::bench {
namespace {

// Memory of a path, which all ranks reach. First half: mine; second half: the peer's; then its flag.
class PathWindow {
 public:
  // COLLECTIVE.
  static Result<std::unique_ptr<PathWindow>> create(Communicator& comm) {
    std::unique_ptr<PathWindow> made(new PathWindow(comm));
    SWITCHYARD_ASSIGN(made->memory_, comm.runtime().allocate(kNumBytes));
    std::memset(made->memory_, 0, kNumBytes);
    SWITCHYARD_ASSIGN(made->window_, comm.register_window(made->memory_, kNumBytes));
    return made;
  }
  ~PathWindow() {
    const Status left = window_ == nullptr ? Status() : comm_.deregister_window(window_);
    if (left.ok() && memory_ != nullptr) static_cast<void>(comm_.runtime().free(memory_));
  }
  WindowView view() const { return comm_.view(*window_); }

 private:
  static constexpr size_t kNumBytes = 2 * kMaxGinBytes + 128;
  explicit PathWindow(Communicator& comm) : comm_(comm) {}

  Communicator& comm_;
  void* memory_ = nullptr;
  Window* window_ = nullptr;
};

class OverGin final : public GinPath {
 public:
  OverGin(Communicator& comm, const DeviceComm& device, int context, std::unique_ptr<PathWindow> window)
      : device_(device), gin_(platform_, device_, context), memory_(std::move(window)), window_(memory_->view()), peer_(1 - comm.rank()) {}

  bool put(uint64_t num_bytes) override {
    return gin_.put(CoopThread{}, peer_, window_, kMaxGinBytes, window_, 0, num_bytes, SignalAdd{0}) == GinStatus::kOk;
  }
  bool flush() override { return gin_.flush() == GinStatus::kOk; }
  bool await(uint64_t num_told) override { return gin_.wait_signal(0, num_told, peer_) == GinStatus::kOk; }

 private:
  const HostPlatform platform_{};
  const DeviceComm device_;
  const Gin<HostPlatform> gin_;
  const std::unique_ptr<PathWindow> memory_;
  const WindowView window_;
  const int peer_;
};

class OverStores final : public GinPath {
 public:
  OverStores(Communicator& comm, std::unique_ptr<PathWindow> window)
      : memory_(std::move(window)),
        mine_(memory_->view().local(0)),
        inbox_(memory_->view().lsa(kMaxGinBytes, 1 - comm.rank())),
        told_(memory_->view().lsa_as<uint64_t>(2 * kMaxGinBytes, 1 - comm.rank())),
        heard_(memory_->view().local_as<uint64_t>(2 * kMaxGinBytes)) {}

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
  const std::unique_ptr<PathWindow> memory_;
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

}  // namespace

Result<GinPathPtr> make_gin_path(Communicator& comm, const DeviceComm& device, int context) {
  SWITCHYARD_ASSIGN(std::unique_ptr<PathWindow> window, PathWindow::create(comm));
  return GinPathPtr(std::make_unique<OverGin>(comm, device, context, std::move(window)));
}

Result<GinPathPtr> make_ofi_path(Communicator& comm, const std::string& net) {
  SWITCHYARD_ASSIGN(std::unique_ptr<RawOfi> raw, RawOfi::create(comm, net));
  return GinPathPtr(std::make_unique<OverOfi>(std::move(raw), 1 - comm.rank()));
}

Result<GinPathPtr> make_store_path(Communicator& comm) {
  SWITCHYARD_ASSIGN(std::unique_ptr<PathWindow> window, PathWindow::create(comm));
  return GinPathPtr(std::make_unique<OverStores>(comm, std::move(window)));
}

}  // namespace switchyard::bench
