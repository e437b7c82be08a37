#include <atomic>
#include <cstring>

#include "bench/gin/path.hpp"
#include "bench/gin/raw_ofi.hpp"
#include "net/net.hpp"
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
      : comm_(comm),
        device_(device),
        gin_(platform_, device_, context),
        memory_(std::move(window)),
        window_(memory_->view()),
        peer_(1 - comm.rank()) {}

  bool put(uint64_t num_bytes) override {
    return is_ok(gin_.put(CoopThread{}, peer_, window_, kMaxGinBytes, window_, 0, num_bytes, SignalAdd{0}));
  }
  bool flush() override { return is_ok(gin_.flush()); }
  bool await(uint64_t num_told) override { return is_ok(gin_.wait_signal(0, num_told, peer_)); }
  std::string why() const override {
    switch (end_) {
      case GinStatus::kOk: return "";
      case GinStatus::kTimeout: return "not within the time limit (SWITCHYARD_TIMEOUT_MS)";
      case GinStatus::kAborted: return "the communicator was aborted";
      case GinStatus::kPeerGone:
      case GinStatus::kFailed: break;
    }
    const Status lost = comm_.net() == nullptr ? Status() : comm_.net()->why_lost(peer_);
    return lost.ok() ? comm_.why_gone(peer_) : lost.message();
  }

 private:
  bool is_ok(GinStatus end) { return (end_ = end) == GinStatus::kOk; }

  const Communicator& comm_;
  GinStatus end_ = GinStatus::kOk;
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
      backoff.spin();
      if (backoff.waited_ns() > kLimitNs) return false;
    }
    return true;
  }
  std::string why() const override { return text("nothing came within ", kLimitNs / kSecond, " s"); }

 private:
  static constexpr uint64_t kLimitNs = 30 * kSecond;

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
  std::string why() const override { return raw_->error().message(); }

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
