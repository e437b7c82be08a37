// Did a round trip give what it must? Everything is compared byte by byte with what plain code makes of the routing.
//
// THREADS    as the rank. REQUIRES that its stream is idle and that no peer writes its tensors.
// ERRORS     counted: rows, tokens and counters that differ.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/ep/spec.hpp"

namespace switchyard::bench {

class EpRank;

// A token's row as it is sent in.
std::vector<std::byte> token_row(const EpSpec& spec, const Routing& routing, int source, int token);
// What an expert makes of a row that arrived in FP8: BF16 again.
void dequantise_fp8_row(const uint8_t* codes, const float* scales, uint16_t* bf16, size_t num_elements);
// The NVFP4 row scale that the benchmark's experts give.
float nvfp4_row_scale_of(const uint16_t* bf16, size_t num_elements);

// Spoils the outputs, so that what is found there afterwards was written afterwards.
void poison_arrived(const EpRank& rank);
void poison_combined(const EpRank& rank);
uint64_t count_dispatch_errors(const EpRank& rank);
uint64_t count_combine_errors(const EpRank& rank);

}  // namespace switchyard::bench
