#include "capi/ep_structs.hpp"

#include "capi/ep_tensor.hpp"

namespace switchyard::capi {

Status read_tensor(const char* name, const ncclEpTensor_t* in, const Communicator& comm, ep::Tensor& out) {
  if (in == nullptr) return {};
  if (!tensor_is_valid(*in)) {
    return Status::invalid_argument(text(name, " is no initialised tensor: use NCCL_EP_TENSOR_INIT or ncclEpTensorAlloc, and "
                                         "leave its sizes pointer alone"));
  }
  if (in->ndim < 1 || in->ndim > ep::Tensor::kMaxDims || in->sizes == nullptr) {
    return Status::invalid_argument(text(name, " has ", in->ndim, " dimensions, allowed 1..", ep::Tensor::kMaxDims,
                                         ", and needs sizes"));
  }
  ep::Tensor tensor;
  tensor.dtype = DType(number_of(in->datatype));
  if (dtype_bytes(tensor.dtype) == 0) {
    return Status::invalid_argument(text(name, " has unknown datatype ", int(tensor.dtype)));
  }
  tensor.num_dims = int(in->ndim);
  std::copy_n(in->sizes, in->ndim, tensor.sizes.begin());
  tensor.data = in->data;
  if (in->win_hdl != nullptr) {
    tensor.window = comm.find_window(in->win_hdl);
    if (tensor.window == nullptr) {
      return Status::invalid_argument(text(name, ": win_hdl is no window of this group's communicator"));
    }
    tensor.window_offset = in->win_offset;
    char* place = tensor.window->local() + in->win_offset;
    if (in->data != nullptr && in->data != place) {
      return Status::invalid_argument(text(name, ": data and win_hdl + win_offset name different places"));
    }
    tensor.data = place;
  }
  if (tensor.data == nullptr && !tensor.empty()) {
    return Status::invalid_argument(text(name, " is ", tensor.shape_text(), " and has neither data nor win_hdl"));
  }
  out = tensor;
  return {};
}

Status read_layout_info(const ncclEpLayoutInfo_t* in, const Communicator& comm, ep::LayoutInfo& out) {
  ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
  SWITCHYARD_TRY(read_struct("layout_info", in, NCCL_EP_LAYOUT_INFO_V1_SIZE, false, info));
  if (in == nullptr) return {};
  SWITCHYARD_TRY(read_tensor("layout_info.expert_counters", info.expert_counters, comm, out.expert_counters));
  SWITCHYARD_TRY(read_tensor("layout_info.src_rank_counters", info.src_rank_counters, comm, out.src_rank_counters));
  SWITCHYARD_TRY(read_tensor("layout_info.expert_offsets", info.expert_offsets, comm, out.expert_offsets));
  SWITCHYARD_TRY(read_tensor("layout_info.recv_total_counter", info.recv_total_counter, comm, out.recv_total_counter));
  SWITCHYARD_TRY(check_enum("layout_info.recv_topk_idx_kind", info.recv_topk_idx_kind, NCCL_EP_EXPERT_ID_AUTO,
                            NCCL_EP_EXPERT_ID_GLOBAL));
  out.id_kind = ep::IdKind(int(info.recv_topk_idx_kind));
  return {};
}

Registry<ncclEpGroup>& live_groups() {
  static auto& alive = *new Registry<ncclEpGroup>("ep_group");  // never destroyed, as live_comms()
  return alive;
}

Registry<ncclEpHandle>& live_handles() {
  static auto& alive = *new Registry<ncclEpHandle>("handle");
  return alive;
}

Status check_group(ncclEpGroup_t group) { return live_groups().find(group).status(); }

[[gnu::hot]] Status check_handle(ncclEpHandle_t handle) {
  thread_local Registry<ncclEpHandle>::Seen seen;
  return live_handles().check(handle, seen);
}

}  // namespace switchyard::capi

ncclEpGroup::ncclEpGroup(switchyard::capi::CommPtr of) : comm(std::move(of)) {
  const std::lock_guard lock(comm->mutex);
  comm->groups.push_back(this);
}

ncclEpGroup::~ncclEpGroup() {
  const std::lock_guard lock(comm->mutex);
  std::erase(comm->groups, this);
}
