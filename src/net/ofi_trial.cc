#include "net/ofi_trial.hpp"

#include <utility>

#include "base/failpoint.hpp"
#include "comm/keyed_hash.hpp"
#include "net/ofi_wire.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

constexpr uint64_t kWritten = 0x5377697463687964;
constexpr CompletionData kData{1, 2, kNoWord, 0};  // within the 4 bytes that every provider carries that is fit

class Trial {
 public:
  Trial(OfiFabric& fabric, Deadline limit) : fabric_(fabric), limit_(limit) {}
  ~Trial() { fabric_.endpoint.reset(); }  // what has begun ends before the memory does

  Status run() {
    SWITCHYARD_ASSIGN(const OfiFabric::Name name, fabric_.name());
    SWITCHYARD_ASSIGN(self_, fabric_.add_peer(name));
    SWITCHYARD_TRY(prepare());
    SWITCHYARD_FAILPOINT_TRY("net.trial_prepared");
    SWITCHYARD_TRY(post("a write that carries data and is complete when it is delivered", [&] { return write(); }));
    SWITCHYARD_TRY(post("a message", [&] { return send(); }));
    SWITCHYARD_TRY(wait([&] { return num_complete_ == 2 && has_written_ && has_message_; }, "had not delivered them"));
    return memory_.target == kWritten && memory_.received.value == kWritten ? Status() : refusal("they arrived damaged");
  }

 private:
  Status refusal(const std::string& why) const {
    return Status::invalid_usage(text("libfabric provider '", fabric_.info->fabric_attr->prov_name, "' (", fabric_.place(),
                                      ") can't be used: of a write and a message to oneself, to try it, ", why,
                                      "; choose another, e.g. SWITCHYARD_NET=ofi:tcp;ofi_rxm"));
  }

  Status prepare() {
    fid_mr* registration = nullptr;
    const uint64_t access = FI_WRITE | FI_REMOTE_WRITE | FI_SEND | FI_RECV;
    int error = fi_mr_reg(fabric_.domain.get(), &memory_, sizeof(memory_), access, 0, random_bits<uint16_t>(), 0, &registration, nullptr);
    if (error != 0) return refusal(text("memory was not registered: ", fabric_words(-error)));
    registration_.reset(registration);
    if (fabric_.needs(FI_MR_ENDPOINT)) {
      error = fi_mr_bind(registration, &fabric_.endpoint->fid, 0);
      if (error == 0) error = fi_mr_enable(registration);
      if (error != 0) return refusal(text("memory was not registered: ", fabric_words(-error)));
    }
    descriptor_ = fabric_.needs(FI_MR_LOCAL) ? fi_mr_desc(registration) : nullptr;
    error = int(fi_recv(fabric_.endpoint.get(), &memory_.received, sizeof(SignalMessage), descriptor_, FI_ADDR_UNSPEC, &receiving_));
    return error == 0 ? Status() : refusal(text("no receive was taken: ", fabric_words(-error)));
  }

  ssize_t write() {
    iovec local{&memory_.source, sizeof(uint64_t)};
    const uint64_t base = fabric_.needs(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(&memory_) : 0;
    fi_rma_iov remote{base + offsetof(Memory, target), sizeof(uint64_t), fi_mr_key(registration_.get())};
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.desc = &descriptor_;
    message.iov_count = 1;
    message.addr = self_;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = &writing_;
    message.data = kData.pack();
    return fi_writemsg(fabric_.endpoint.get(), &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE);
  }

  ssize_t send() {
    iovec local{&memory_.sent, sizeof(SignalMessage)};
    fi_msg message{};
    message.msg_iov = &local;
    message.iov_count = 1;
    message.addr = self_;
    message.context = &sending_;
    const uint64_t inject = fabric_.needs(FI_MR_LOCAL) ? FI_INJECT : 0;
    return fi_sendmsg(fabric_.endpoint.get(), &message, inject | FI_COMPLETION | FI_DELIVERY_COMPLETE);
  }

  template <class Post>
  Status post(const char* what, Post do_post) {
    ssize_t result = -FI_EAGAIN;
    const auto is_taken = [&] { return (result = do_post()) != -FI_EAGAIN; };
    SWITCHYARD_TRY(wait(is_taken, "could not connect"));
    return result == 0 ? Status() : refusal(text("it refused ", what, ": ", fabric_words(int(-result))));
  }

  template <class Done>
  Status wait(Done done, const char* missing) {
    Status failure;
    const auto is_over = [&] {
      failure = poll();
      return !failure.ok() || done();
    };
    const WaitResult end = wait_until(is_over, limit_);
    SWITCHYARD_TRY(std::move(failure));
    return end == WaitResult::kReady ? Status() : refusal(text("it ", missing, " in time"));
  }

  Status poll() {
    fi_cq_data_entry entry{};
    const ssize_t count = fi_cq_read(fabric_.completions.get(), &entry, 1);
    if (count == -FI_EAGAIN || count == 0) return {};
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry failed{};
      fi_cq_readerr(fabric_.completions.get(), &failed, 0);
      return refusal(text("one failed: ", fabric_words(failed.err)));
    }
    if (count < 0) return refusal(text("nothing is told: ", fabric_words(int(-count))));
    if (entry.op_context == &writing_ || entry.op_context == &sending_) ++num_complete_;
    else if (entry.op_context == &receiving_) has_message_ = true;
    else if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) has_written_ = uint32_t(entry.data) == uint32_t(kData.pack());
    return {};
  }

  struct Memory {
    uint64_t source = kWritten, target = 0;
    SignalMessage sent{0, 0, 0, 0, 0, kWritten}, received{};
  };

  OfiFabric& fabric_;
  const Deadline limit_;
  Memory memory_;
  FidPtr<fid_mr> registration_;
  void* descriptor_ = nullptr;
  fi_addr_t self_ = FI_ADDR_UNSPEC;
  fi_context2 receiving_{}, writing_{}, sending_{};
  int num_complete_ = 0;
  bool has_written_ = false, has_message_ = false;
};

}  // namespace

Status try_out(OfiFabric& fabric, Deadline limit) { return Trial(fabric, limit).run(); }

}  // namespace switchyard
