// What the worlds of protocols share: rows of one cell that say what they are, and memory for them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "model/arena.hpp"
#include "model/kernel_platform.hpp"

namespace switchyard::model {

constexpr uint32_t kTensorWindow = 5;  // id of the windows that tensors are in

// What a dispatch sends, and what an expert makes of it in a combine.
constexpr uint64_t token_code(uint64_t tag, int source, int token) {
  return tag << 24 | uint64_t(source + 1) << 16 | uint64_t(token + 1) << 8;
}
constexpr uint64_t result_code(uint64_t row, uint64_t tag, int expert) {
  return row + (tag << 40) + uint64_t(expert + 1);
}

inline char* make_bytes(Arena& arena, size_t num_bytes) {
  struct alignas(64) Line {
    char bytes[64];
  };
  return reinterpret_cast<char*>(arena.make_array<Line>((num_bytes + sizeof(Line) - 1) / sizeof(Line)));
}

inline const Cell* cell_at(const char* rows, int64_t row) { return reinterpret_cast<const Cell*>(rows) + row; }
inline Cell* cell_at(char* rows, int64_t row) { return reinterpret_cast<Cell*>(rows) + row; }
inline void write_row(const ModelPlatform& p, char* rows, int64_t row, uint64_t code) {
  p.write(cell_at(rows, row), {code, code});
}
inline void check_row(const ModelPlatform& p, const char* rows, int64_t row, uint64_t code, const char* what) {
  const Cell cell = p.read(cell_at(rows, row));
  p.assert_that(cell.code == code && cell.twin == code, what);
}

}  // namespace switchyard::model
