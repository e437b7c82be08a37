// The C API of expert parallelism over the C++ layer: reading structs, calling, reporting. No logic.
#include "nccl_ep.h"

#include "capi/ep_structs.hpp"
#include "capi/stream.hpp"
#include "ep/validate.hpp"
#include "host/cuda_runtime.h"

using namespace switchyard;        // NOLINT: the file's only purpose is to give C names to this namespace
using namespace switchyard::capi;  // NOLINT

namespace {

Status read_group_config(const ncclEpGroupConfig_t* in, ep::GroupConfig& out) {
  ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;
  SWITCHYARD_TRY(read_struct("config", in, NCCL_EP_GROUP_CONFIG_V1_SIZE, true, config));
  if (config.version > NCCL_EP_API_VERSION) {
    log(LogLevel::kInfo, "the program was built for API version ", config.version, ", this library has ", NCCL_EP_API_VERSION);
  }
  SWITCHYARD_TRY(check_enum("algorithm", config.algorithm, NCCL_EP_ALGO_LOW_LATENCY, NCCL_EP_ALGO_HIGH_THROUGHPUT));
  SWITCHYARD_TRY(check_enum("zero_copy", config.zero_copy, NCCL_EP_ZERO_COPY_AUTO, NCCL_EP_ZERO_COPY_ON));
  SWITCHYARD_TRY(check_enum("overflow_policy", config.overflow_policy, NCCL_EP_OVERFLOW_AUTO, NCCL_EP_OVERFLOW_DROP));
  if (config.algorithm == NCCL_EP_ALGO_HIGH_THROUGHPUT && config.max_token_bytes % 16 != 0) {
    return Status::invalid_argument(text("max_token_bytes is ", config.max_token_bytes, ", must be a multiple of 16"));
  }
  if (config.num_topk > config.num_experts) {
    return Status::invalid_argument(text("num_topk is ", config.num_topk, ", allowed 0..", config.num_experts));
  }
  out.algorithm = ep::Algorithm(int(config.algorithm));
  out.num_experts = config.num_experts;
  out.max_tokens_per_rank = config.max_dispatch_tokens_per_rank;
  out.max_recv_tokens_per_rank = config.max_recv_tokens_per_rank;
  out.max_token_bytes = config.max_token_bytes;
  out.buffer_bytes = config.rdma_buffer_size;
  out.num_topk = config.num_topk;
  out.enable_mask = config.enable_mask != 0;
  out.timeout_ns = config.timeout_ns;
  out.zero_copy = ep::ZeroCopy(int(config.zero_copy));
  out.overflow = ep::Overflow(int(config.overflow_policy));
  // cudaError_t and int have one representation; the C++ layer knows no CUDA types.
  out.alloc = {reinterpret_cast<int (*)(void**, size_t, void*)>(config.alloc.alloc_fn),
               reinterpret_cast<int (*)(void*, void*)>(config.alloc.free_fn), config.alloc.context};
  int num_sms = 0;
  if (cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0) != cudaSuccess) {
    return Status::device_error("the device does not tell its number of processors");
  }
  if (config.max_num_sms > unsigned(num_sms)) {
    return Status::invalid_usage(text("max_num_sms is ", config.max_num_sms, ", this device has ", num_sms));
  }
  return {};
}

// COLLECTIVE where the group's buffer has to grow.
Result<std::shared_ptr<ncclEpHandle>> make_handle(ep::Group& group, ncclEpLayout_t layout,
                                                  const ncclEpHandleConfig_t* config, int num_topk,
                                                  const ncclEpTensor_t* handle_mem) {
  ncclEpHandleConfig_t read = NCCL_EP_HANDLE_CONFIG_INIT;
  SWITCHYARD_TRY(read_struct("config", config, NCCL_EP_HANDLE_CONFIG_V1_SIZE, false, read));
  const size_t alignment = read.dispatch_output_per_expert_alignment;
  if ((alignment & (alignment - 1)) != 0) {
    return Status::invalid_argument(
        text("dispatch_output_per_expert_alignment is ", alignment, ", must be a power of two"));
  }
  ep::Tensor memory;
  SWITCHYARD_TRY(read_tensor("handle_mem", handle_mem, group.comm(), memory));
  if (memory.present()) {
    if (memory.num_dims != 1 || memory.dtype != DType::kUint8 || memory.empty()) {
      return Status::invalid_argument(text("handle_mem is ", memory.shape_text(),
                                           ", must be [bytes] uint8 with the bytes of ncclEpHandleMemSize"));
    }
    SWITCHYARD_TRY(ep::validate_place("handle_mem", memory));
  }
  auto made = std::make_shared<ncclEpHandle>();
  SWITCHYARD_ASSIGN(made->handle, ep::Handle::create(group, ep::Layout(number_of(layout)), num_topk,
                                                     {alignment, memory.data, memory.present() ? memory.sizes[0] : 0}));
  return made;
}

Status update_handle(ep::Handle& handle, const ncclEpTensor_t* topk_idx, const ncclEpLayoutInfo_t* layout_info,
                     cudaStream_t stream) {
  if (topk_idx == nullptr) return Status::invalid_argument("topk_idx is NULL");
  const Communicator& comm = handle.group().comm();
  ep::LayoutInfo info;
  SWITCHYARD_TRY(read_layout_info(layout_info, comm, info));
  if (layout_info != nullptr && handle.group().is_low_latency()) {
    return Status::invalid_argument("layout_info must be NULL for a low-latency handle; pass it to ncclEpDispatch");
  }
  ep::Tensor indices;
  SWITCHYARD_TRY(read_tensor("topk_idx", topk_idx, comm, indices));
  SWITCHYARD_ASSIGN(const StreamRef target, read_stream(stream));
  return handle.update(indices, info, target);
}

}  // namespace

extern "C" {

ncclResult_t ncclEpGetVersion(int* version) {
  return guarded("ncclEpGetVersion", [&]() -> Status {
    if (version == nullptr) return Status::invalid_argument("version is NULL");
    *version = NCCL_EP_VERSION_CODE;
    return {};
  });
}

ncclResult_t ncclEpCreateGroup(ncclEpGroup_t* ep_group, ncclComm_t comm, const ncclEpGroupConfig_t* config) {
  return guarded("ncclEpCreateGroup", [&]() -> Status {
    if (ep_group == nullptr) return Status::invalid_argument("ep_group is NULL");
    SWITCHYARD_ASSIGN(CommPtr found, live_comms().find(comm));
    ep::GroupConfig read;
    SWITCHYARD_TRY(read_group_config(config, read));
    auto made = std::make_shared<ncclEpGroup>(std::move(found));
    SWITCHYARD_ASSIGN(made->group, ep::Group::create(*made->comm->comm, read));
    *ep_group = live_groups().add(std::move(made));
    return {};
  });
}

ncclResult_t ncclEpGroupDestroy(ncclEpGroup_t ep_group) {
  return guarded("ncclEpGroupDestroy", [&]() -> Status {
    if (ep_group == nullptr) return {};
    SWITCHYARD_TRY(check_group(ep_group));
    if (const int num_handles = ep_group->group->num_handles(); num_handles > 0) {
      return Status::invalid_usage(text("the group still has ", num_handles, " handles: destroy them first"));
    }
    SWITCHYARD_ASSIGN(const std::shared_ptr<ncclEpGroup> removed, live_groups().remove(ep_group));
    return removed->group->close();
  });
}

ncclResult_t ncclEpHandleMemSize(ncclEpGroup_t ep_group, ncclEpLayout_t layout, const ncclEpHandleConfig_t* config,
                                 size_t* size_out, int num_topk) {
  return guarded("ncclEpHandleMemSize", [&]() -> Status {
    SWITCHYARD_TRY(check_group(ep_group));
    ncclEpHandleConfig_t read = NCCL_EP_HANDLE_CONFIG_INIT;
    SWITCHYARD_TRY(read_struct("config", config, NCCL_EP_HANDLE_CONFIG_V1_SIZE, false, read));
    if (size_out == nullptr) return Status::invalid_argument("size_out is NULL");
    SWITCHYARD_ASSIGN(*size_out, ep::Handle::memory_bytes(*ep_group->group, ep::Layout(number_of(layout)), num_topk));
    return {};
  });
}

ncclResult_t ncclEpInitHandle(ncclEpHandle_t* handle, ncclEpGroup_t ep_group, ncclEpLayout_t layout,
                              const ncclEpHandleConfig_t* config, int num_topk, const ncclEpTensor_t* handle_mem) {
  return guarded("ncclEpInitHandle", [&]() -> Status {
    if (handle == nullptr) return Status::invalid_argument("handle is NULL");
    SWITCHYARD_TRY(check_group(ep_group));
    SWITCHYARD_ASSIGN(std::shared_ptr<ncclEpHandle> made,
                      make_handle(*ep_group->group, layout, config, num_topk, handle_mem));
    *handle = live_handles().add(std::move(made));
    return {};
  });
}

ncclResult_t ncclEpUpdateHandle(ncclEpHandle_t handle, const ncclEpTensor_t* topk_idx,
                                const ncclEpLayoutInfo_t* layout_info, cudaStream_t stream) {
  return guarded("ncclEpUpdateHandle", [&]() -> Status {
    SWITCHYARD_TRY(check_handle(handle));
    return update_handle(*handle->handle, topk_idx, layout_info, stream);
  });
}

ncclResult_t ncclEpCreateHandle(ncclEpHandle_t* handle, ncclEpGroup_t ep_group, ncclEpLayout_t layout,
                                const ncclEpTensor_t* topk_idx, const ncclEpLayoutInfo_t* layout_info,
                                const ncclEpHandleConfig_t* config, cudaStream_t stream) {
  return guarded("ncclEpCreateHandle", [&]() -> Status {
    ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
    SWITCHYARD_TRY(read_struct("layout_info", layout_info, NCCL_EP_LAYOUT_INFO_V1_SIZE, false, info));
    if (handle == nullptr) return Status::invalid_argument("handle is NULL");
    SWITCHYARD_TRY(check_group(ep_group));
    if (topk_idx == nullptr) return Status::invalid_argument("topk_idx is NULL");
    ep::Tensor indices;
    SWITCHYARD_TRY(read_tensor("topk_idx", topk_idx, ep_group->group->comm(), indices));
    if (indices.num_dims != 2) return Status::invalid_argument(text("topk_idx is ", indices.shape_text(), ", must be [tokens, k]"));
    if (indices.sizes[1] > size_t(ep::kMaxTopk)) {
      return Status::invalid_argument(text("top-k is ", indices.sizes[1], ", allowed 1..", ep::kMaxTopk));
    }
    SWITCHYARD_ASSIGN(std::shared_ptr<ncclEpHandle> made,
                      make_handle(*ep_group->group, layout, config, int(indices.sizes[1]), nullptr));
    SWITCHYARD_TRY(update_handle(*made->handle, topk_idx, layout_info, stream));
    *handle = live_handles().add(std::move(made));
    return {};
  });
}

ncclResult_t ncclEpHandleDestroy(ncclEpHandle_t handle) {
  return guarded("ncclEpHandleDestroy", [&]() -> Status {
    return handle == nullptr ? Status() : live_handles().remove(handle).status();
  });
}

ncclResult_t ncclEpDispatch(ncclEpHandle_t handle, const ncclEpDispatchInputs_t* inputs,
                            const ncclEpDispatchOutputs_t* outputs, const ncclEpLayoutInfo_t* layout_info,
                            const ncclEpDispatchConfig_t* config, cudaStream_t stream) {
  return guarded("ncclEpDispatch", [&]() -> Status {
    SWITCHYARD_TRY(check_handle(handle));
    ncclEpDispatchInputs_t in = NCCL_EP_DISPATCH_INPUTS_INIT;
    ncclEpDispatchOutputs_t out = NCCL_EP_DISPATCH_OUTPUTS_INIT;
    ncclEpDispatchConfig_t cfg = NCCL_EP_DISPATCH_CONFIG_INIT;
    SWITCHYARD_TRY(read_struct("inputs", inputs, NCCL_EP_DISPATCH_INPUTS_V1_SIZE, true, in));
    SWITCHYARD_TRY(read_struct("outputs", outputs, NCCL_EP_DISPATCH_OUTPUTS_V1_SIZE, true, out));
    SWITCHYARD_TRY(read_struct("config", config, NCCL_EP_DISPATCH_CONFIG_V1_SIZE, false, cfg));
    const Communicator& comm = handle->handle->group().comm();
    ep::DispatchArgs args;
    SWITCHYARD_TRY(read_layout_info(layout_info, comm, args.layout_info));
    SWITCHYARD_TRY(check_enum("pass_direction", cfg.pass_direction, NCCL_EP_FWD_PASS, NCCL_EP_BWD_PASS));
    SWITCHYARD_TRY(check_enum("quant_recipe", cfg.quant_recipe, NCCL_EP_DISP_QUANT_NONE, NCCL_EP_DISP_QUANT_DS_FP8E3M4));
    SWITCHYARD_TRY(read_tensor("inputs.tokens", in.tokens, comm, args.tokens));
    SWITCHYARD_TRY(read_tensor("inputs.topk_weights", in.topk_weights, comm, args.topk_weights));
    SWITCHYARD_TRY(read_tensor("inputs.scales", in.scales, comm, args.scales));
    SWITCHYARD_TRY(read_tensor("outputs.tokens", out.tokens, comm, args.out_tokens));
    SWITCHYARD_TRY(read_tensor("outputs.topk_weights", out.topk_weights, comm, args.out_topk_weights));
    SWITCHYARD_TRY(read_tensor("outputs.scales", out.scales, comm, args.out_scales));
    SWITCHYARD_TRY(read_tensor("outputs.topk_idx", out.topk_idx, comm, args.out_topk_idx));
    args.has_layout_info = layout_info != nullptr;
    args.send_only = cfg.send_only != 0;
    args.round_scales = cfg.round_scales != 0;
    args.direction = ep::PassDirection(int(cfg.pass_direction));
    args.quant = ep::DispatchQuant(int(cfg.quant_recipe));
    SWITCHYARD_ASSIGN(const StreamRef target, read_stream(stream));
    return handle->handle->dispatch(args, target);
  });
}

ncclResult_t ncclEpCombine(ncclEpHandle_t handle, const ncclEpCombineInputs_t* inputs,
                           const ncclEpCombineOutputs_t* outputs, const ncclEpCombineConfig_t* config,
                           cudaStream_t stream) {
  return guarded("ncclEpCombine", [&]() -> Status {
    SWITCHYARD_TRY(check_handle(handle));
    ncclEpCombineInputs_t in = NCCL_EP_COMBINE_INPUTS_INIT;
    ncclEpCombineOutputs_t out = NCCL_EP_COMBINE_OUTPUTS_INIT;
    ncclEpCombineConfig_t cfg = NCCL_EP_COMBINE_CONFIG_INIT;
    SWITCHYARD_TRY(read_struct("inputs", inputs, NCCL_EP_COMBINE_INPUTS_V1_SIZE, true, in));
    SWITCHYARD_TRY(read_struct("outputs", outputs, NCCL_EP_COMBINE_OUTPUTS_V1_SIZE, true, out));
    SWITCHYARD_TRY(read_struct("config", config, NCCL_EP_COMBINE_CONFIG_V1_SIZE, false, cfg));
    SWITCHYARD_TRY(check_enum("pass_direction", cfg.pass_direction, NCCL_EP_FWD_PASS, NCCL_EP_BWD_PASS));
    SWITCHYARD_TRY(check_enum("quant_recipe", cfg.quant_recipe, NCCL_EP_COMB_QUANT_NONE, NCCL_EP_COMB_QUANT_NVFP4));
    const Communicator& comm = handle->handle->group().comm();
    ep::CombineArgs args;
    SWITCHYARD_TRY(read_tensor("inputs.tokens", in.tokens, comm, args.tokens));
    SWITCHYARD_TRY(read_tensor("inputs.topk_weights", in.topk_weights, comm, args.topk_weights));
    SWITCHYARD_TRY(read_tensor("inputs.scales", in.scales, comm, args.scales));
    SWITCHYARD_TRY(read_tensor("outputs.tokens", out.tokens, comm, args.out_tokens));
    SWITCHYARD_TRY(read_tensor("outputs.topk_weights", out.topk_weights, comm, args.out_topk_weights));
    args.send_only = cfg.send_only != 0;
    args.direction = ep::PassDirection(int(cfg.pass_direction));
    args.quant = ep::CombineQuant(int(cfg.quant_recipe));
    SWITCHYARD_ASSIGN(const StreamRef target, read_stream(stream));
    return handle->handle->combine(args, target);
  });
}

ncclResult_t ncclEpComplete(ncclEpHandle_t handle, const ncclEpCompleteConfig_t* config, cudaStream_t stream) {
  return guarded("ncclEpComplete", [&]() -> Status {
    SWITCHYARD_TRY(check_handle(handle));
    ncclEpCompleteConfig_t cfg = NCCL_EP_COMPLETE_CONFIG_INIT;
    SWITCHYARD_TRY(read_struct("config", config, NCCL_EP_COMPLETE_CONFIG_V1_SIZE, false, cfg));
    SWITCHYARD_ASSIGN(const StreamRef target, read_stream(stream));
    return handle->handle->complete(target);
  });
}

ncclResult_t ncclEpMaskQuery(ncclEpGroup_t ep_group, int* mask_status, cudaStream_t stream) {
  return guarded("ncclEpMaskQuery", [&]() -> Status {
    SWITCHYARD_TRY(check_group(ep_group));
    if (mask_status == nullptr) return Status::invalid_argument("mask_status is NULL");
    SWITCHYARD_ASSIGN(const StreamRef target, read_stream(stream));
    return ep_group->group->mask_query(mask_status, target);
  });
}

ncclResult_t ncclEpMaskUpdate(ncclEpGroup_t ep_group, const int* mask, cudaStream_t stream) {
  return guarded("ncclEpMaskUpdate", [&]() -> Status {
    SWITCHYARD_TRY(check_group(ep_group));
    if (mask == nullptr) return Status::invalid_argument("mask is NULL");
    SWITCHYARD_ASSIGN(const StreamRef target, read_stream(stream));
    return ep_group->group->mask_update(mask, target);
  });
}

ncclResult_t ncclEpMaskClean(ncclEpGroup_t ep_group, cudaStream_t stream) {
  return guarded("ncclEpMaskClean", [&]() -> Status {
    SWITCHYARD_TRY(check_group(ep_group));
    SWITCHYARD_ASSIGN(const StreamRef target, read_stream(stream));
    return ep_group->group->mask_clean(target);
  });
}

ncclResult_t ncclEpGetAsyncError(ncclEpGroup_t ep_group, int* error_out) {
  return guarded("ncclEpGetAsyncError", [&]() -> Status {
    SWITCHYARD_TRY(check_group(ep_group));
    if (error_out == nullptr) return Status::invalid_argument("error_out is NULL");
    SWITCHYARD_ASSIGN(*error_out, ep_group->group->async_error());
    return {};
  });
}

ncclResult_t ncclEpErrorClear(ncclEpGroup_t ep_group) {
  return guarded("ncclEpErrorClear", [&]() -> Status {
    SWITCHYARD_TRY(check_group(ep_group));
    return ep_group->group->error_clear();
  });
}

}  // extern "C"
