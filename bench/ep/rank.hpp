// One rank of a benchmark run: its tensors, its group, and the calls it makes with them. Experts hand back what they
// were given, so the experts' own work costs nothing and the result of a round trip is known.
//
// THREADS    one thread per rank; create() and the destructor are COLLECTIVE.
// OWNERSHIP  owns tensors, group and handles; communicator, stream and spec must outlive it.
// ERRORS     the library's own.
#pragma once
#include <array>
#include <memory>
#include <optional>

#include "bench/ep/buffer.hpp"
#include "bench/ep/plan.hpp"
#include "bench/ep/spec.hpp"
#include "ep/handle.hpp"

namespace switchyard::bench {

class EpRank {
 public:
  static Result<std::unique_ptr<EpRank>> create(const EpSpec& spec, Communicator& comm);
  ~EpRank();

  const EpSpec& spec() const { return spec_; }
  const EpPlan& plan() const { return plan_; }
  Communicator& comm() const { return comm_; }
  int rank() const { return comm_.rank(); }
  StreamRef stream_ref() const { return stream_; }

  // High throughput: the exchange of routing by itself.
  Status update() {
    SWITCHYARD_TRY(handles_[0]->update(routing_tensor(), *update_info_, stream_ref()));
    return synchronize();
  }
  // Two handles, as a program with two micro-batches has. High throughput: routing is exchanged first, since it is new every time.
  Status post_dispatch(bool send_only = false, int handle_idx = 0);
  Status post_combine();
  Status complete(int handle_idx) { return handles_[size_t(handle_idx)]->complete(stream_ref()); }
  Status synchronize() { return comm_.runtime().synchronize(stream_ref(), comm_.deadline()); }
  // Something on the stream, as what makes the inputs ready is in a program: the worker is then awake.
  Status touch_stream() {
    auto* bytes = static_cast<char*>(touched_->device_memory());
    return comm_.runtime().copy_async(bytes, bytes + kTouchedBytes, kTouchedBytes, stream_);
  }
  // From inputs that are ready to output that can be used.
  Status dispatch() {
    SWITCHYARD_TRY(post_dispatch());
    return synchronize();
  }
  Status combine() {
    SWITCHYARD_TRY(post_combine());
    return synchronize();
  }
  // What experts need of the received rows to hand them back, where that is not the rows themselves: to be called
  // once after the first dispatch, as rows arrive at the same places every time.
  Status prepare_results();
  // Between the tensors and what check.hpp sees of them: after spoiling outputs, and before looking at them.
  Status upload_outputs() const;
  Status download_outputs() const;

  size_t memory_bytes() const { return group_->memory_bytes(); }

  ep::RailTraffic rail_traffic() const { return group_->rail_traffic(); }

  // [tokens] rows in; rows that arrived; what experts made of them; [tokens] rows of the result.
  const Buffer& tokens() const { return *tokens_; }
  const Buffer& arrived() const { return *arrived_; }
  const Buffer& arrived_scales() const { return *arrived_scales_; }
  // Rank-major only: [ranks, tokens, topk] experts here, or -1, and weights.
  std::span<const int32_t> arrived_indices() const { return arrived_indices_->span<int32_t>(); }
  // Flat: [rows, topk] the same in 64 bits.
  std::span<const int64_t> arrived_ids() const { return arrived_indices_->span<int64_t>(); }
  std::span<const float> arrived_weights() const { return arrived_weights_->span<float>(); }
  const Buffer& results() const { return results_ ? *results_ : *arrived_; }
  const Buffer& combined() const { return *combined_; }
  std::span<const int32_t> counters() const { return counters_->span<int32_t>(); }

 private:
  EpRank(const EpSpec& spec, Communicator& comm) : spec_(spec), comm_(comm), plan_(spec) {}
  Status allocate();
  Status fill_inputs();
  Status open();
  void describe_dispatch();
  void describe_combine();
  ep::Tensor routing_tensor() const { return indices_->tensor(DType::kInt64, {size_t(spec_.tokens), size_t(spec_.topk)}); }
  static constexpr size_t kTouchedBytes = 64;

  const EpSpec spec_;
  Communicator& comm_;
  const EpPlan plan_;
  StreamRef stream_;
  std::unique_ptr<Buffer> touched_;
  std::unique_ptr<Buffer> tokens_, indices_, weights_;
  std::unique_ptr<Buffer> arrived_, arrived_scales_, arrived_indices_, arrived_weights_, counters_;
  std::unique_ptr<Buffer> results_;  // null: experts work in place
  std::unique_ptr<Buffer> row_scales_, combined_;
  std::unique_ptr<ep::Group> group_;  // after the buffers: its destructor waits for those who read them
  std::array<std::unique_ptr<ep::Handle>, 2> handles_;
  // The same in every call, as in a program: made once.
  std::optional<ep::LayoutInfo> update_info_;  // high throughput
  ep::DispatchArgs dispatch_args_;
  ep::CombineArgs combine_args_;
};

}  // namespace switchyard::bench
