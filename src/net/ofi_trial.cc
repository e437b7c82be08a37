#include "net/ofi_trial.hpp"

#include <utility>

#include "comm/keyed_hash.hpp"
#include "net/ofi_wire.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

constexpr uint64_t kWritten = 0x5377697463687964;
constexpr CompletionData kData{1, 2, kNoWord, 0};  // within the 4 bytes that every provider carries that is fit

class Trial {
 public:
  Trial(OfiFabric& from, OfiFabric& to, Deadline limit) : from_(from), to_(to), limit_(limit) {}
  // What has begun ends before the memory does.
  ~Trial() {
    if (from_.needs(FI_MR_ENDPOINT)) source_.reset(), target_.reset();  // or the endpoints would stay
    from_.endpoint.reset();
    to_.endpoint.reset();
  }

  Status run() {
    SWITCHYARD_ASSIGN(const OfiFabric::Name near, from_.name());
    SWITCHYARD_ASSIGN(const OfiFabric::Name far, to_.name());
    SWITCHYARD_TRY(to_.add_peer(near).status());
    SWITCHYARD_ASSIGN(address_, from_.add_peer(far));
    SWITCHYARD_TRY(register_on(from_, FI_WRITE, source_));
    SWITCHYARD_TRY(register_on(to_, FI_REMOTE_WRITE | FI_RECV, target_));
    const ssize_t receiving = fi_recv(to_.endpoint.get(), &memory_.received, sizeof(SignalMessage), descriptor_of(to_, target_), FI_ADDR_UNSPEC, &receiving_);
    if (receiving != 0) return lack("a receive", receiving);
    SWITCHYARD_TRY(post("a write that carries data and is complete when it is delivered", [&] {
      return write(offsetof(Memory, target), descriptor_of(from_, source_), FI_DELIVERY_COMPLETE, writing_);
    }));
    SWITCHYARD_TRY(post("a message", [&] { return send(); }));
    // What is in no registered memory is injected where it would have to be.
    if (from_.needs(FI_MR_LOCAL)) {
      SWITCHYARD_TRY(post("an injected write that carries data", [&] {
        return write(offsetof(Memory, injected_target), nullptr, FI_INJECT, injecting_);
      }));
    }
    const auto are_all_there = [&] { return num_complete_ == num_posted_ && num_written_ == num_posted_ - 1 && has_message_; };
    SWITCHYARD_TRY(wait(are_all_there, "had not delivered them"));
    const bool is_right = memory_.target == kWritten && memory_.received.value == kWritten &&
                          memory_.injected_target == (from_.needs(FI_MR_LOCAL) ? kWritten : 0);
    return is_right ? Status() : refusal("they arrived damaged");
  }

 private:
  std::string provider() const {
    return text("libfabric provider '", from_.info->fabric_attr->prov_name, "' (", from_.place(), ")");
  }
  Status refusal(const std::string& why) const {
    return Status::invalid_usage(text(provider(), " can't be used: of a write and a message between two endpoints of this rank, to try it, ", why,
                                      "; choose another, e.g. SWITCHYARD_NET=ofi:tcp;ofi_rxm"));
  }
  Status lack(const char* of, int64_t error) const { return fabric_error(text("trying ", provider(), ": ", of), error); }

  Status register_on(const OfiFabric& fabric, uint64_t access, FidPtr<fid_mr>& into) {
    fid_mr* registration = nullptr;
    int error = fi_mr_reg(fabric.domain.get(), &memory_, sizeof(memory_), access, 0, random_bits<uint16_t>(), 0, &registration, nullptr);
    if (error != 0) return lack("registering memory", error);
    into.reset(registration);
    if (!fabric.needs(FI_MR_ENDPOINT)) return {};
    error = fi_mr_bind(registration, &fabric.endpoint->fid, 0);
    if (error == 0) error = fi_mr_enable(registration);
    return error == 0 ? Status() : lack("binding a registration", error);
  }
  static void* descriptor_of(const OfiFabric& fabric, const FidPtr<fid_mr>& registration) {
    return fabric.needs(FI_MR_LOCAL) ? fi_mr_desc(registration.get()) : nullptr;
  }

  ssize_t write(uint64_t to_offset, void* descriptor, uint64_t flags, fi_context2& context) {
    iovec local{&memory_.source, sizeof(uint64_t)};
    const uint64_t base = to_.needs(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(&memory_) : 0;
    fi_rma_iov remote{base + to_offset, sizeof(uint64_t), fi_mr_key(target_.get())};
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = address_;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = &context;
    message.data = kData.pack();
    return fi_writemsg(from_.endpoint.get(), &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | flags);
  }

  ssize_t send() {
    iovec local{&memory_.sent, sizeof(SignalMessage)};
    fi_msg message{};
    message.msg_iov = &local;
    message.iov_count = 1;
    message.addr = address_;
    message.context = &sending_;
    const uint64_t inject = from_.needs(FI_MR_LOCAL) ? FI_INJECT : 0;
    return fi_sendmsg(from_.endpoint.get(), &message, inject | FI_COMPLETION | FI_DELIVERY_COMPLETE);
  }

  template <class Post>
  Status post(const char* what, Post do_post) {
    ssize_t result = -FI_EAGAIN;
    const auto is_taken = [&] { return !is_for_a_moment(result = do_post()); };
    SWITCHYARD_TRY(wait(is_taken, "could not connect"));
    num_posted_ += result == 0;
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
    if (end == WaitResult::kReady) return {};
    return Status(Code::kSystemError, text("trying ", provider(), ": it ", missing, " in time, between two endpoints of this rank; is that interface in order?"));
  }

  Status poll() {
    SWITCHYARD_TRY(poll(from_));
    return poll(to_);
  }
  Status poll(const OfiFabric& fabric) {
    fi_cq_data_entry entry{};
    const ssize_t count = fi_cq_read(fabric.completions.get(), &entry, 1);
    if (count == -FI_EAGAIN || count == 0) return {};
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry failed{};
      fi_cq_readerr(fabric.completions.get(), &failed, 0);
      return refusal(text("one failed: ", fabric_words(failed.err)));
    }
    if (count < 0) return refusal(text("nothing is told: ", fabric_words(int(-count))));
    if (&fabric == &from_) ++num_complete_;
    else if (entry.op_context == &receiving_) has_message_ = true;
    else num_written_ += (entry.flags & FI_REMOTE_CQ_DATA) != 0 && uint32_t(entry.data) == uint32_t(kData.pack());
    return {};
  }

  struct Memory {
    uint64_t source = kWritten, target = 0, injected_target = 0;
    SignalMessage sent{0, 0, 0, 0, 0, kWritten}, received{};
  };

  OfiFabric& from_;
  OfiFabric& to_;
  const Deadline limit_;
  Memory memory_;
  FidPtr<fid_mr> source_, target_;
  fi_addr_t address_ = FI_ADDR_UNSPEC;
  fi_context2 receiving_{}, writing_{}, injecting_{}, sending_{};
  int num_posted_ = 0, num_complete_ = 0, num_written_ = 0;
  bool has_message_ = false;
};

}  // namespace

Status try_out(OfiFabric& from, OfiFabric& to, Deadline limit) { return Trial(from, to, limit).run(); }

}  // namespace switchyard
