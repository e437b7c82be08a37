// One dispatch and its combine as the oracle sees it: the shape all ranks agree on and every rank's inputs.
//
// Placement: contiguous blocks of experts; where they don't divide, the first num_experts % num_ranks ranks hold one
// expert more.
//
// THREADS    values; const methods are pure.
// OWNERSHIP  a Case owns its buffers.
// ERRORS     describe_fault() says what is wrong with a Case; the methods of Shape expect a sound one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "switchyard/dtype.hpp"

namespace switchyard::oracle {

enum class Layout { kExpertMajor, kRankMajor };
enum class DispatchRecipe {
  kNone,     // tokens travel as they are
  kForward,  // tokens and the caller's scales travel as bytes
  kDsFp8,    // BF16 in, E4M3 and FP32 scales of 128 elements out
};
enum class CombineRecipe { kNone, kNvfp4 };
enum class IdKind { kLocal, kGlobal };  // of the topk_idx a rank-major dispatch delivers

// What all ranks agree on.
struct Shape {
  int num_ranks = 1;
  int num_experts = 1;
  int topk = 1;
  int hidden = 0;      // elements of a dispatched row as stored (kFloat4x2: bytes)
  int max_tokens = 1;  // most tokens a rank may dispatch
  Layout layout = Layout::kExpertMajor;
  DType dtype = DType::kBfloat16;
  DispatchRecipe dispatch_recipe = DispatchRecipe::kNone;
  bool round_scales = false;            // kDsFp8
  DType scale_dtype = DType::kFloat32;  // kForward
  int scale_width = 0;                  // kForward: scale elements a token
  CombineRecipe combine_recipe = CombineRecipe::kNone;
  DType combine_dtype = DType::kBfloat16;  // quantised dispatches return in another type than they left in
  int combine_hidden = 0;                  // 0: hidden
  IdKind id_kind = IdKind::kLocal;
  bool int32_indices = false;  // for the caller of the library; the model counts in int64_t

  int expert_first(int rank) const;
  int num_local(int rank) const;
  int owner(int64_t expert) const;
  int local_id(int64_t expert) const;

  // A rank's dispatch output and combine input are blocks of rows: one block an expert, or one a source rank.
  int num_blocks(int rank) const;
  int rows_per_block() const;

  size_t input_token_bytes() const;  // of one row, here and below
  size_t input_scale_bytes() const;
  size_t output_token_bytes() const;
  size_t output_scale_bytes() const;
  size_t combine_row_bytes() const;
};

// masks[r][p] == 0: rank r has masked rank p. Empty: nobody masked anybody.
using Masks = std::vector<std::vector<int>>;

// One dispatch and its combine: the inputs of every rank.
struct Case : Shape {
  std::vector<int> num_tokens;                   // [rank]
  std::vector<std::vector<int64_t>> topk_idx;    // [rank][token * topk + k]; -1: no expert
  std::vector<std::vector<float>> topk_weights;  // [rank][token * topk + k]
  std::vector<std::vector<uint8_t>> tokens;      // [rank] rows of input_token_bytes()
  std::vector<std::vector<uint8_t>> scales;      // [rank] rows of input_scale_bytes(); kForward only
  Masks mask;                                    // at the dispatch
  Masks combine_mask;                            // at the combine; empty: as at the dispatch
};

// Empty when the case is consistent, else what is wrong. An expert-major case whose duplicates inside tokens give
// an expert more rows than its block has (num_ranks * max_tokens) is not: such an output has no place for them.
std::string describe_fault(const Case& c);

}  // namespace switchyard::oracle
