// Runs oracle cases through the library's C++ layer and compares each byte: whole cases with run_ll_case(), single
// steps with LlRank.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ep/group.hpp"
#include "ep/handle.hpp"
#include "oracle/dense.hpp"
#include "oracle/generators.hpp"

namespace switchyard::testing {

// A case and all that the model says about it. Equal arguments give equal scenarios in every process.
struct LlScenario {
  oracle::Case c;
  oracle::Dispatch dispatch;
  oracle::ExpertOutputs outputs;
  std::vector<std::vector<uint8_t>> combined;
};
// With masks: the group has them on, and each rank sets its own before the first round.
LlScenario make_scenario(uint64_t seed, const oracle::Shape& shape, oracle::Routing routing, oracle::Fill fill,
                         oracle::Masks masks = {});
// Masks that both sides agree on: every unordered pair of ranks, in order, is a bit; 1 means that they masked each other.
oracle::Masks masks_of_pairs(int num_ranks, uint64_t pairs);
// For failure messages: what make_scenario() needs to make the case again, but the seed.
std::string describe(const oracle::Shape& shape, oracle::Routing routing, oracle::Fill fill);

struct LlMode {
  bool windows = false;  // outputs and expert results in windows: rows go straight to their place
  bool staged = false;   // send and receive halves apart
  int num_rounds = 1;    // repeats on the same group and handle, so that banks are used again
  uint64_t timeout_ns = 60 * kSecond;
};

ep::GroupConfig group_config_for(const oracle::Shape& shape);

// A tensor's memory, of the communicator's runtime. A window starts some way into its allocation, and the tensor lies
// at the window's end, so that its offset differs between ranks where its size does; what is around the tensor is its
// margin, which nobody may write.
// Where the host can't address that memory (CUDA), span() is a copy of it, which to_device() and from_device() move;
// on the host platform there is no copy and both do nothing.
class Buffer {
 public:
  // COLLECTIVE with `window`: one size is agreed on.
  Buffer(Communicator& comm, size_t num_bytes, bool window = false);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void fill(uint8_t value);
  template <class T>
  void load(const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), span<T>().begin());
    to_device();
  }
  void to_device() const;
  void from_device() const;
  template <class T = uint8_t>
  std::span<T> span() const {
    return {reinterpret_cast<T*>(host_ + offset_), num_bytes_ / sizeof(T)};
  }
  ep::Tensor tensor(DType dtype, std::initializer_list<size_t> sizes) const;
  // Empty, or that the margin is no longer what fill() made it.
  std::string margin_fault(const char* name) const;

 private:
  Communicator& comm_;
  size_t num_bytes_;
  size_t allocated_;
  size_t window_start_ = 0;  // in the allocation
  size_t offset_ = 0;        // of the tensor in the allocation
  uint8_t* base_;
  std::unique_ptr<uint8_t[]> copy_;  // null where host_ is base_
  uint8_t* host_;
  uint8_t filled_with_ = 0;
  Window* window_ = nullptr;
};

// One rank's side of a scenario: its buffers and the calls it makes with them. Steps only post; outputs may be checked
// when the stream is through with them.
class LlRank {
 public:
  // COLLECTIVE with `windows`. The scenario must outlive this.
  LlRank(Communicator& comm, StreamRef stream, const LlScenario& scenario, bool windows);

  // Makes the handle and gives it the routing. COLLECTIVE where the group's buffer grows.
  Status open(ep::Group& group, void* handle_memory = nullptr, size_t num_memory_bytes = 0);
  ep::Handle& handle() { return *handle_; }
  void close() { handle_.reset(); }
  void use_stream(StreamRef stream) { stream_ = stream; }

  Status post_dispatch(bool staged = false);
  Status post_combine(bool staged = false);
  // The same operations again, over buffers that stay as they are: for timing.
  Status repost_dispatch(bool staged = false);
  Status repost_combine(bool staged = false);
  Status complete() { return handle_->complete(stream_); }
  Status synchronize();
  // Empty, or what differs first.
  std::string check_dispatch() const;
  std::string check_combine() const;

  // A whole operation: posts, completes where staged, waits and checks.
  std::string run_dispatch(bool staged = false);
  std::string run_combine(bool staged = false);

 private:
  void describe_rank_major(ep::DispatchArgs& args);
  DType describe_recipe(ep::DispatchArgs& args);
  Status finish(const Status& posted, bool staged, std::initializer_list<Buffer*> inputs);

  Communicator& comm_;
  StreamRef stream_;
  const LlScenario& s_;
  const oracle::Case& c_;
  const int rank_;
  const size_t num_tokens_, topk_, outer_, inner_, num_rows_;
  const bool rank_major_, nvfp4_;
  Buffer tokens_, scales_, indices_, weights_;
  Buffer out_tokens_, out_scales_, out_idx_, out_weights_, counters_;
  Buffer results_, row_scales_, combined_;
  std::unique_ptr<ep::Handle> handle_;
};

// One rank's steps up to the first that fails, which frees the others from waiting by aborting the communicator.
class Steps {
 public:
  explicit Steps(Communicator& comm) : comm_(comm) {}
  bool operator()(const std::string& fault) {
    if (fault.empty() || !fault_.empty()) return fault_.empty();
    fault_ = text("rank ", comm_.rank(), ": ", fault);
    comm_.abort(fault_);
    return false;
  }
  bool operator()(const Status& status) { return (*this)(status.ok() ? "" : status.to_string()); }
  template <class T>
  bool operator()(const Result<T>& result) {
    return (*this)(result.status());
  }
  bool ok() const { return fault_.empty(); }
  // Ends the rank's part: destroys handles, group and buffers, in this order. COLLECTIVE. Returns the first fault;
  // after one nothing is destroyed, because other ranks of this process may still be in an operation that uses this
  // rank's windows.
  template <class... Ranks>
  std::string leave(Result<std::unique_ptr<ep::Group>> group, std::unique_ptr<Ranks>... ranks) {
    if (ok()) {
      (ranks->close(), ...);
      group.value().reset();
    } else {
      if (group.ok()) (void)group.value().release();
      ((void)ranks.release(), ...);
    }
    return fault_;
  }

 private:
  Communicator& comm_;
  std::string fault_;
};

// One rank's part of a scenario on a group of its own; all ranks call it. Empty, or what differed first.
std::string run_ll_case(Communicator& comm, StreamRef stream, const LlScenario& scenario, LlMode mode);

}  // namespace switchyard::testing
