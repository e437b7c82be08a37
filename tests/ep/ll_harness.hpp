// Runs oracle cases through the library's C++ layer and compares each byte: whole cases with run_ll_case(), single
// steps with LlRank.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ep/buffer.hpp"
#include "ep/group.hpp"
#include "ep/handle.hpp"
#include "ep/steps.hpp"
#include "oracle/dense.hpp"
#include "oracle/generators.hpp"
#include "support/verdict.hpp"

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

// One rank's side of a scenario: its buffers and the calls it makes with them. Steps only post; outputs may be checked
// when the stream is through with them.
class LlRank {
 public:
  // COLLECTIVE with `windows`. The scenario must outlive this.
  LlRank(Communicator& comm, StreamRef stream, const LlScenario& scenario, bool windows);

  // Ok, or why a window could not be made: then nobody may go on to the group.
  Status made() const;
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
  Verdict run_dispatch(bool staged = false);
  Verdict run_combine(bool staged = false);

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

// One rank's part of a scenario on a group of its own; all ranks call it. What differed or failed first.
Verdict run_ll_case(Communicator& comm, StreamRef stream, const LlScenario& scenario, LlMode mode);

}  // namespace switchyard::testing
