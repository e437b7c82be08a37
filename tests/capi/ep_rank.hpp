// One rank's side of an oracle case through the C API alone: buffers, calls that a test may spoil before it issues
// them, and the comparison with the model.
#pragma once
#include <array>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "capi/comm_ranks.hpp"
#include "nccl_ep.h"
#include "oracle/dense.hpp"
#include "oracle/generators.hpp"

namespace switchyard::testing {

constexpr uint8_t kUntouched = 0xa5;  // what outputs hold before a call

// A case and all that the model says about it.
struct Scenario {
  Scenario(uint64_t seed, const oracle::Shape& shape, oracle::Routing routing = oracle::Routing::kSomeDropped,
           oracle::Fill fill = oracle::Fill::kPartial);
  // The same for a case that the test has changed.
  Scenario(uint64_t seed, oracle::Case changed);

  oracle::Case c;
  oracle::Dispatch dispatch;
  oracle::ExpertOutputs outputs;
  std::vector<std::vector<uint8_t>> combined;
};

// All ranks have all their tokens, so that every tensor has elements.
inline Scenario full_scenario(uint64_t seed, const oracle::Shape& shape) {
  return Scenario(seed, shape, oracle::Routing::kUniform, oracle::Fill::kFull);
}

oracle::Shape small_shape(int num_ranks, oracle::Layout layout);
ncclEpGroupConfig_t group_config_for(const oracle::Shape& shape);
inline ncclEpLayout_t layout_of(const oracle::Shape& shape) {
  return shape.layout == oracle::Layout::kExpertMajor ? NCCL_EP_LAYOUT_EXPERT_MAJOR : NCCL_EP_LAYOUT_RANK_MAJOR;
}

struct GroupDestroyer {
  void operator()(ncclEpGroup_t group) const { expect_success(ncclEpGroupDestroy(group)); }
};
struct HandleDestroyer {
  void operator()(ncclEpHandle_t handle) const { expect_success(ncclEpHandleDestroy(handle)); }
};
using GroupOwner = std::unique_ptr<ncclEpGroup, GroupDestroyer>;
using HandleOwner = std::unique_ptr<ncclEpHandle, HandleDestroyer>;

// COLLECTIVE. Null where it failed, which is then a failure of the test.
GroupOwner make_group(ncclComm_t comm, const ncclEpGroupConfig_t& config);

// A descriptor with extents of its own; a window buffer gives a descriptor without data pointer.
class TensorArg {
 public:
  TensorArg() = default;
  TensorArg(const DeviceBuffer& buffer, ncclDataType_t datatype, std::initializer_list<size_t> extents) {
    set(buffer, datatype, extents);
  }
  TensorArg(const TensorArg&) = delete;
  TensorArg& operator=(const TensorArg&) = delete;

  void set(const DeviceBuffer& buffer, ncclDataType_t datatype, std::initializer_list<size_t> extents);
  // For an optional field: NULL unless set() was called.
  ncclEpTensor_t* get() { return desc.ndim > 0 ? &desc : nullptr; }

  std::array<size_t, 5> sizes{};
  ncclEpTensor_t desc = NCCL_EP_TENSOR_INIT;
};

// How old the headers are that the caller was compiled with.
enum class Caller { kCurrent, kOldest, kNewer };

// A struct as such a caller passes it: exactly as many bytes as it has, so that reading past them is noticed.
template <class Struct>
class Aged {
 public:
  Aged(const Struct& current, unsigned v1_size, Caller caller) {
    const unsigned size = caller == Caller::kOldest  ? v1_size
                          : caller == Caller::kNewer ? unsigned(sizeof(Struct)) + 40
                                                     : unsigned(sizeof(Struct));
    memory_ = std::make_unique<std::byte[]>(size);
    std::memset(memory_.get(), 0xee, size);
    std::memcpy(memory_.get(), &current, std::min<size_t>(size, sizeof(Struct)));
    std::memcpy(memory_.get(), &size, sizeof(size));  // every struct begins with its size
  }
  const Struct* get() const { return reinterpret_cast<const Struct*>(memory_.get()); }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

class EpRank {
 public:
  // COLLECTIVE with `windows`. The scenario must outlive this.
  EpRank(const Scenario& scenario, ncclComm_t communicator, int rank, bool windows = false);

  // COLLECTIVE where the group's buffer grows.
  HandleOwner open(ncclEpGroup_t group);

  void spoil_dispatch_outputs() const;
  void prepare_combine() const;
  bool outputs_untouched() const;
  // Empty, or what differs first.
  std::string check_dispatch() const;
  std::string check_combine() const;

  const Scenario& s;
  const oracle::Case& c;
  const ncclComm_t comm;
  const int rank;
  const size_t num_tokens, topk, outer, inner;  // output rows are [outer, inner]
  const bool rank_major, nvfp4;
  DeviceBuffer tokens, scales, indices, weights;
  DeviceBuffer out_tokens, out_scales, out_idx, out_weights, counters;
  DeviceBuffer results, row_scales, combined;
  TensorArg topk_idx;
};

// Puts a number into a C enum that has no such value, as a C program can.
template <class Enum>
void set_enum(Enum& place, int value) {
  static_assert(sizeof(Enum) == sizeof(int));
  std::memcpy(&place, &value, sizeof(value));
}

// A dispatch that is right until a test spoils it.
struct DispatchCall {
  DispatchCall(const EpRank& rank, ncclEpHandle_t handle, cudaStream_t stream);

  ncclResult_t issue(Caller caller = Caller::kCurrent);
  bool untouched() const;

  const EpRank& ep;
  ncclEpHandle_t handle;
  cudaStream_t stream;
  TensorArg tokens, topk_weights, scales, out_tokens, out_topk_weights, out_scales, out_topk_idx, counters;
  TensorArg spare;  // sound, for places where nothing belongs
  ncclEpDispatchInputs_t inputs = NCCL_EP_DISPATCH_INPUTS_INIT;
  ncclEpDispatchOutputs_t outputs = NCCL_EP_DISPATCH_OUTPUTS_INIT;
  ncclEpLayoutInfo_t layout_info = NCCL_EP_LAYOUT_INFO_INIT;
  ncclEpDispatchConfig_t config = NCCL_EP_DISPATCH_CONFIG_INIT;
  const ncclEpDispatchInputs_t* inputs_arg = &inputs;
  const ncclEpDispatchOutputs_t* outputs_arg = &outputs;
  const ncclEpLayoutInfo_t* layout_info_arg = &layout_info;
  const ncclEpDispatchConfig_t* config_arg = &config;
};

struct CombineCall {
  CombineCall(const EpRank& rank, ncclEpHandle_t handle, cudaStream_t stream);

  ncclResult_t issue(Caller caller = Caller::kCurrent);
  bool untouched() const;

  const EpRank& ep;
  ncclEpHandle_t handle;
  cudaStream_t stream;
  TensorArg tokens, scales, out_tokens, out_topk_weights;
  TensorArg spare;
  ncclEpCombineInputs_t inputs = NCCL_EP_COMBINE_INPUTS_INIT;
  ncclEpCombineOutputs_t outputs = NCCL_EP_COMBINE_OUTPUTS_INIT;
  ncclEpCombineConfig_t config = NCCL_EP_COMBINE_CONFIG_INIT;
  const ncclEpCombineInputs_t* inputs_arg = &inputs;
  const ncclEpCombineOutputs_t* outputs_arg = &outputs;
  const ncclEpCombineConfig_t* config_arg = &config;
};

struct RoundTrip {
  Caller caller = Caller::kCurrent;
  bool staged = false;
  cudaStream_t complete_on = nullptr;  // staged: where the receiving halves run
};

// Dispatch, the model's expert results, combine; all compared. COLLECTIVE. Empty, or what went wrong first.
std::string run_round_trip(const EpRank& ep, ncclEpHandle_t handle, cudaStream_t stream, const RoundTrip& how = {});

// One thing done wrong: what the call must return, and words that the message must contain.
template <class Call>
struct Misuse {
  const char* name;
  void (*spoil)(Call&);
  ncclResult_t code;
  std::vector<const char*> words;
};

// Each call of `make` is spoilt in one way, and must be refused with its code and words and without a trace.
template <class Call, class Make>
void expect_refusals(const std::vector<Misuse<Call>>& table, Make make) {
  for (const Misuse<Call>& misuse : table) {
    SCOPED_TRACE(misuse.name);
    Call call = make();
    misuse.spoil(call);
    const ncclResult_t result = call.issue();
    EXPECT_EQ(result, misuse.code);
    const std::string message = result == ncclSuccess ? "" : ncclGetLastError(nullptr);
    for (const char* word : misuse.words) {
      EXPECT_NE(message.find(word), std::string::npos) << "no \"" << word << "\" in: " << message;
    }
    EXPECT_TRUE(call.untouched());
  }
}

}  // namespace switchyard::testing
