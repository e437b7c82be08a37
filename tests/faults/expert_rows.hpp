// What experts return in tests of failures: it depends on the seed, the token and the expert alone. Where a row lies at
// another rank depends on whom that rank has masked, which this rank need not know.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "oracle/exchange.hpp"
#include "oracle/float_formats.hpp"

namespace switchyard::testing {

// Of a block of rows that stands for a whole rank, `expert` is 0.
inline std::mt19937_64 expert_engine(uint64_t seed, oracle::TokenRef token, int rank, uint64_t expert) {
  return std::mt19937_64(seed << 56 | uint64_t(token.rank) << 48 | uint64_t(token.token_idx) << 32 |
                         uint64_t(rank) << 16 | expert);
}

inline float expert_value(std::mt19937_64& engine) { return float(int64_t(engine() % 4001) - 2000) / 16; }

inline std::vector<uint8_t> expert_row(uint64_t seed, const oracle::ExchangeShape& shape, oracle::TokenRef token,
                                       int rank, uint64_t expert) {
  std::mt19937_64 engine = expert_engine(seed, token, rank, expert);
  std::vector<float> values(size_t(shape.combine_hidden ? shape.combine_hidden : shape.hidden));
  for (float& value : values) value = expert_value(engine);
  return oracle::encode_row(shape.combine_dtype, values);
}

}  // namespace switchyard::testing
