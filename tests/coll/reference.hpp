// What collectives must give, by plain loops over all ranks' inputs, and the inputs: any bits for integers, numbers of
// very different sizes for floats, so that another order of additions shows.
//
// THREADS  pure functions.
#pragma once
#include <cstdint>
#include <vector>

#include "coll/reduce_rows.hpp"
#include "switchyard/dtype.hpp"

namespace switchyard::testing {

using Bytes = std::vector<uint8_t>;

constexpr DType kReducible[] = {DType::kInt8,   DType::kUint8,   DType::kInt32,   DType::kUint32,  DType::kInt64,
                                DType::kUint64, DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kBfloat16};
constexpr coll::ReduceOp kOps[] = {coll::ReduceOp::kSum, coll::ReduceOp::kProd, coll::ReduceOp::kMax,
                                   coll::ReduceOp::kMin, coll::ReduceOp::kAvg};

// The input of a rank.
Bytes make_input(DType dtype, int rank, size_t num_elements, uint64_t seed = 1);

// Element by element: over the ranks of each node in rank order, then over the nodes (of_rank: by rank, as numbers that
// don't decrease); a node's result is rounded to the type where there are several.
Bytes reduce(DType dtype, coll::ReduceOp op, const std::vector<Bytes>& inputs, const std::vector<int>& of_rank);

}  // namespace switchyard::testing
