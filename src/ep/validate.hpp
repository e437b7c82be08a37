// Checks that the calls of every algorithm need, made before anything is posted. Each refusal names the argument, what it is and
// what is allowed.
#pragma once
#include <initializer_list>

#include "ep/group.hpp"

namespace switchyard::ep {

using Sizes = std::initializer_list<size_t>;

// Present, of this shape and type, backed by memory that is large enough.
Status check_tensor(const char* name, const Tensor& tensor, Sizes sizes, DType dtype);
// Not in a window of another communicator: kernels look for it in the group's.
Status check_window(const Group& group, const char* name, const Tensor& tensor);
Status check_absent(const char* name, const Tensor& tensor, const char* why);
Status check_aligned(const char* name, const Tensor& tensor);
// Bytes of a row as it travels.
Status check_row_bytes(const Group& group, size_t token_bytes, size_t scale_bytes);
// Memory is there, and a window tensor lies inside its window.
Status validate_place(const char* name, const Tensor& tensor);
Status validate_topk(const Tensor& topk_idx, const Group& group, int topk);

// Inputs of a dispatch without a recipe, or with tokens and scales that the caller quantised.
Status check_plain_inputs(const DispatchArgs& args);
Status check_forwarded_inputs(const DispatchArgs& args);
Status check_alignment_of_forwarded(const DispatchArgs& args);

bool is_float(DType dtype);

}  // namespace switchyard::ep
