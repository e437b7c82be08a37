// What a dispatch and its combine have whichever the algorithm: the shape all ranks agree on, where experts are, and
// every rank's inputs.
//
// Placement: contiguous blocks of experts; where they don't divide, the first num_experts % num_ranks ranks hold one
// expert more.
//
// THREADS    values; const methods are pure.
// OWNERSHIP  inputs own their buffers.
// ERRORS     describe_*_fault() say what is wrong; the methods expect a sound shape.
#pragma once
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "switchyard/dtype.hpp"

namespace switchyard::oracle {

enum class DispatchRecipe {
  kNone,     // tokens travel as they are
  kForward,  // tokens and the caller's scales travel as bytes
  kDsFp8,    // BF16 in, E4M3 and FP32 scales of 128 elements out; low latency only
};
enum class IdKind { kLocal, kGlobal };  // of the topk_idx that a dispatch delivers

struct ExchangeShape {
  int num_ranks = 1;
  int num_experts = 1;
  int topk = 1;
  int hidden = 0;      // elements of a dispatched row as stored (kFloat4x2: bytes)
  int max_tokens = 1;  // most tokens a rank may dispatch
  DType dtype = DType::kBfloat16;
  DispatchRecipe dispatch_recipe = DispatchRecipe::kNone;
  DType scale_dtype = DType::kFloat32;     // kForward
  int scale_width = 0;                     // kForward: scale elements a token
  DType combine_dtype = DType::kBfloat16;  // quantised dispatches return in another type than they left in
  int combine_hidden = 0;                  // 0: hidden
  IdKind id_kind = IdKind::kLocal;
  bool int32_indices = false;  // for the caller of the library; the model counts in int64_t

  int expert_first(int rank) const;
  int num_local(int rank) const;
  int owner(int64_t expert) const;
  int local_id(int64_t expert) const;

  size_t input_token_bytes() const;  // of one row, here and below
  size_t input_scale_bytes() const;
  size_t combine_row_bytes() const;
};

struct TokenRef {
  int rank = 0;
  int token_idx = 0;
  bool operator==(const TokenRef&) const = default;
};

struct ExchangeInputs {
  std::vector<int> num_tokens;                   // [rank]
  std::vector<std::vector<int64_t>> topk_idx;    // [rank][token * topk + k]; -1: no expert
  std::vector<std::vector<float>> topk_weights;  // [rank][token * topk + k]
  std::vector<std::vector<uint8_t>> tokens;      // [rank] rows of input_token_bytes()
  std::vector<std::vector<uint8_t>> scales;      // [rank] rows of input_scale_bytes(); kForward only
};

// Empty when sound, else what is wrong.
std::string describe_shape_fault(const ExchangeShape& s);
std::string describe_inputs_fault(const ExchangeShape& s, const ExchangeInputs& inputs);

// The parts, written one after another.
template <class... Parts>
std::string join(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace switchyard::oracle
