#include "bench/gin/raw_ofi.hpp"
#if SWITCHYARD_HAVE_OFI
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "net/ofi_fabric.hpp"
#endif

namespace switchyard::bench {

#if SWITCHYARD_HAVE_OFI
namespace {

constexpr size_t kMaxInFlight = 128;

class RawOfiEndpoint final : public RawOfi {
 public:
  RawOfiEndpoint(OfiFabric fabric, Runtime& runtime, std::span<char> memory)
      : fabric_(std::move(fabric)), runtime_(runtime), memory_(memory) {}
  ~RawOfiEndpoint() override {
    fabric_.endpoint.reset();  // before the memory that it may still write or read
    registration_.reset();
    static_cast<void>(runtime_.free(memory_.data()));
  }

  Status connect(Communicator& comm) {
    struct Offer {
      OfiFabric::Name name;
      uint64_t key;
      uint64_t base;
    };
    fid_mr* registration = nullptr;
    constexpr uint64_t kAccess = FI_WRITE | FI_REMOTE_WRITE;
    if (const int error = fi_mr_reg(fabric_.domain.get(), memory_.data(), memory_.size(), kAccess, 0, 1, 0, &registration,
                                    nullptr)) {
      return fabric_error("fi_mr_reg", error);
    }
    registration_.reset(registration);
    if (fabric_.needs(FI_MR_ENDPOINT)) {
      fi_mr_bind(registration, &fabric_.endpoint->fid, 0);
      fi_mr_enable(registration);
    }
    descriptor_ = fi_mr_desc(registration);
    SWITCHYARD_ASSIGN(const OfiFabric::Name name, fabric_.name());
    const Offer mine{name, fi_mr_key(registration), fabric_.needs(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(memory_.data()) : 0};
    SWITCHYARD_ASSIGN(const std::vector<Offer> offers, comm.exchange(mine));
    for (const Offer& offer : offers) {
      SWITCHYARD_ASSIGN(const fi_addr_t address, fabric_.add_peer(offer.name));
      peers_.push_back({address, offer.key, offer.base});
    }
    return {};
  }

  bool put(int rank, uint64_t num_bytes) override {
    const Peer& peer = peers_[size_t(rank)];
    if (!poll_until([&] { return num_in_flight_ < kMaxInFlight; })) return false;
    iovec local{memory_.data(), num_bytes};
    fi_rma_iov remote{peer.base + kMaxPutBytes, num_bytes, peer.key};
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.desc = &descriptor_;
    message.iov_count = 1;
    message.addr = peer.address;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = &contexts_[next_context_++ % contexts_.size()];
    message.data = 1;
    const uint64_t inject = num_bytes <= fabric_.info->tx_attr->inject_size ? FI_INJECT : uint64_t{0};
    int64_t posted = -FI_EAGAIN;
    const auto is_taken = [&] {
      posted = fi_writemsg(fabric_.endpoint.get(), &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | inject);
      return posted != -FI_EAGAIN;
    };
    if (!poll_until(is_taken)) return false;
    if (posted != 0) return fail(fabric_error("fi_writemsg", posted));
    ++num_in_flight_;
    return true;
  }
  bool await(uint64_t num_puts) override {
    return poll_until([&] { return num_told_ >= num_puts; });
  }
  bool flush() override {
    return poll_until([&] { return num_in_flight_ == 0; });
  }
  Status error() const override { return error_; }

 private:
  struct Peer {
    fi_addr_t address;
    uint64_t key, base;
  };

  static constexpr uint64_t kLimitNs = 30 * kSecond;

  bool fail(const Status& why) {
    error_ = why;
    return false;
  }
  // Without a nap: bytes move only while somebody looks.
  template <class Done>
  bool poll_until(Done done) {
    Backoff backoff;
    while (!done()) {
      const uint64_t before = num_told_ + num_in_flight_;
      if (!poll()) return false;
      if (num_told_ + num_in_flight_ != before) backoff.reset();
      else backoff.spin();
      if (backoff.waited_ns() > kLimitNs) return fail(Status::remote(text("nothing came within ", kLimitNs / kSecond, " s")));
    }
    return true;
  }
  bool poll() {
    fi_cq_data_entry entries[32];
    const int64_t count = fi_cq_read(fabric_.completions.get(), entries, std::size(entries));
    if (count == -FI_EAGAIN) return true;
    if (count < 0) {
      fi_cq_err_entry entry{};
      if (count == -FI_EAVAIL) fi_cq_readerr(fabric_.completions.get(), &entry, 0);
      const Status error = fabric_error("fi_cq_read", count);
      return fail(Status(error.code(), text(error.message(), ": ", fabric_words(entry.err))));
    }
    for (int64_t i = 0; i < count; ++i) {
      if (entries[i].flags & FI_REMOTE_CQ_DATA) ++num_told_;
      else --num_in_flight_;
    }
    return true;
  }

  OfiFabric fabric_;
  Runtime& runtime_;
  const std::span<char> memory_;  // first half: mine; second half: the peers'
  FidPtr<fid_mr> registration_;
  void* descriptor_ = nullptr;
  std::vector<Peer> peers_;
  std::array<fi_context2, 2 * kMaxInFlight> contexts_{};
  size_t next_context_ = 0;
  size_t num_in_flight_ = 0;
  uint64_t num_told_ = 0;
  Status error_;
};

}  // namespace
#endif

Result<std::unique_ptr<RawOfi>> RawOfi::create([[maybe_unused]] Communicator& comm, [[maybe_unused]] const std::string& net) {
#if SWITCHYARD_HAVE_OFI
  SWITCHYARD_ASSIGN(const std::vector<Interface> interfaces, choose_interfaces(/*one_machine=*/true));
  SWITCHYARD_ASSIGN(OfiFabric fabric, OfiFabric::open(net, interfaces.front()));
  constexpr size_t kNumBytes = 2 * kMaxPutBytes;
  SWITCHYARD_ASSIGN(void* memory, comm.runtime().allocate(kNumBytes));  // as ours
  std::memset(memory, 0, kNumBytes);
  auto endpoint = std::make_unique<RawOfiEndpoint>(std::move(fabric), comm.runtime(), std::span(static_cast<char*>(memory), kNumBytes));
  SWITCHYARD_TRY(endpoint->connect(comm));
  return std::unique_ptr<RawOfi>(std::move(endpoint));
#else
  return Status::invalid_usage("built without libfabric; install libfabric-dev and configure again");
#endif
}

}  // namespace switchyard::bench
