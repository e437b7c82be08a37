// Runs high-throughput cases of the oracle through the library's C++ layer and compares each byte: whole cases with
// run_ht_case(), single steps with HtRank.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ep/buffer.hpp"
#include "ep/group.hpp"
#include "ep/handle.hpp"
#include "ep/steps.hpp"
#include "oracle/ht_check.hpp"
#include "oracle/ht_generators.hpp"
#include "support/verdict.hpp"

namespace switchyard::testing {

// What is sent and returned once over a routing, with the model's word on it.
struct HtContents {
  oracle::HtCase c;
  oracle::HtExpertOutputs outputs;
  oracle::HtCombine combined;
};
// A routing and two sets of contents over it, so that no pass can live on what an earlier one left behind. Equal
// arguments give equal scenarios in every process.
struct HtScenario {
  oracle::HtCase c;
  std::vector<std::vector<int64_t>> named_idx;  // topk_idx as callers give it; `c` may have less, where ranks are masked
  std::vector<oracle::HtOverflowing> overflowing;  // not empty only where the update must fail, without results
  oracle::HtDispatch dispatch;
  std::array<HtContents, 2> contents;
};
HtScenario make_ht_scenario(uint64_t seed, const oracle::HtCase& c);
HtScenario make_ht_scenario(uint64_t seed, const oracle::HtShape& shape, oracle::Routing routing, oracle::Fill fill,
                            oracle::Budget budget);
// For failure messages: what make_ht_scenario() needs to make the case again, but the seed.
std::string describe(const oracle::HtShape& shape, oracle::Routing routing, oracle::Fill fill, oracle::Budget budget);


struct HtMode {
  bool windows = false;       // outputs and expert results in windows: rows may go straight to their place
  unsigned plain_ranks = 0;   // bit r: rank r says nothing of its windows
  bool backward = true;       // a backward pass after the forward one
  bool pipelined = false;     // posts update, dispatch and combine at once instead of waiting between them
  int num_rounds = 1;         // on the same group and handle
  bool updates_once = false;  // later rounds use the first one's plan
  int num_spare_rows = 0;     // of outputs and expert results, beyond those that are required; -1: one too few
  // Of an update; the others are not asked for.
  bool expert_counters = true, expert_offsets = true, recv_total = true;
  bool int64_counters = false;
  std::optional<ep::ZeroCopy> zero_copy = {};  // of the group; not said: windows are used however little is in them
  uint64_t timeout_ns = 60 * kSecond;

  std::string name() const;
};
ep::GroupConfig group_config_for(const oracle::HtShape& shape, const HtMode& mode = {});

// One rank's side of a scenario: its buffers and the calls it makes with them. Steps only post; outputs may be checked
// when the stream is through with them.
class HtRank {
 public:
  using Pass = ep::PassDirection;

  // COLLECTIVE with windows. The scenario must outlive this.
  HtRank(Communicator& comm, StreamRef stream, const HtScenario& scenario, const HtMode& mode);

  // Ok, or why a window could not be made: then nobody may go on to the group.
  Status made() const;
  Status open(ep::Group& group, void* handle_memory = nullptr, size_t num_memory_bytes = 0);
  // Goes on with a handle that another scenario of the same shape used.
  void take_handle(HtRank& from) { handle_ = std::move(from.handle_); }
  ep::Handle& handle() { return *handle_; }
  void close() { handle_.reset(); }
  void use_stream(StreamRef stream) { stream_ = stream; }
  // Which contents the passes use: forward and backward the other way round in the next.
  void start_round(int round) { round_ = round; }

  Status post_update();
  Status post_dispatch(Pass pass);
  Status post_combine(Pass pass);
  Status synchronize();
  // How an operation ended that was posted with that result. Takes the stream's error, so that the next may succeed.
  Status take_ending(const Status& posted);
  // Empty, or what differs first.
  std::string check_update() const;
  std::string check_dispatch(Pass pass) const;
  std::string check_combine(Pass pass) const;
  // Nothing that a dispatch or combine fills was filled.
  std::string check_untouched();

  // A whole operation: posts, waits and checks.
  Verdict run_update();
  Verdict run_dispatch(Pass pass);
  Verdict run_combine(Pass pass);
  // An update that must fail, naming a rank, its rows and the budget; and so must what follows it with this handle. The
  // stream's error is taken each time.
  Verdict run_trapped_update(bool pipelined);

 private:
  ep::Tensor tensor_of(const Buffer& buffer, DType dtype, size_t num_rows, size_t width) const;
  ep::Tensor vector_of(const Buffer& buffer, DType dtype, size_t num_elements) const;
  const HtContents& contents(Pass pass) const { return s_.contents[size_t(round_ + (pass == Pass::kBackward)) % 2]; }
  std::array<Buffer*, 6> outputs();  // of dispatch and combine
  ep::LayoutInfo layout_info() const;
  Status finish(const Status& posted, std::initializer_list<Buffer*> inputs);
  std::string failure_fault(const Status& status) const;

  Communicator& comm_;
  StreamRef stream_;
  const HtScenario& s_;
  const oracle::HtCase& c_;
  const HtMode mode_;
  const int rank_;
  const bool flat_;
  const DType counter_type_, expert_counter_type_;
  const size_t num_tokens_, topk_, num_local_, num_rows_, num_beside_rows_;
  int round_ = 0;
  Buffer tokens_, scales_, indices_, weights_;
  Buffer expert_counters_, expert_offsets_, recv_total_;
  Buffer out_tokens_, out_scales_, out_idx_, out_weights_;
  Buffer results_, gradients_, combined_, out_gradients_;
  std::unique_ptr<ep::Handle> handle_;
};

// One rank's part of a scenario on a group of its own; all ranks call it. What differed or failed first. Where the
// update must fail, that it does, and that the handle works with a routing that fits.
Verdict run_ht_case(Communicator& comm, StreamRef stream, const HtScenario& scenario, const HtMode& mode);

// One round of forward and, where the mode says so, backward passes with a handle that is open.
bool run_ht_round(Steps& steps, HtRank& rank, const HtMode& mode, bool updates);

}  // namespace switchyard::testing
