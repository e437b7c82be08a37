#include "oracle/rows.hpp"

#include <algorithm>
#include <cstring>

namespace switchyard::oracle {

std::string size_fault(int rank, const Rows& rows, size_t num_rows) {
  const size_t num_bytes = num_rows * rows.row_bytes;
  if (rows.num_bytes == num_bytes) return "";
  return join("rank ", rank, ", ", rows.name, ": the buffer has ", rows.num_bytes, " bytes, its shape ", num_bytes);
}

std::string row_fault(const Rows& rows, size_t row_idx, const uint8_t* expected, uint8_t untouched) {
  const uint8_t* actual = rows.row(row_idx);
  for (size_t i = 0; i < rows.row_bytes; ++i) {
    const int wanted = expected != nullptr ? expected[i] : untouched;
    if (actual[i] == wanted) continue;
    return join(expected != nullptr ? "" : " (dead, must stay untouched)", ": byte ", i, " is ", int{actual[i]},
                ", expected ", wanted);
  }
  return "";
}

std::string check_combine(const ExchangeShape& shape, int rank, std::span<const uint8_t> expected,
                          std::span<const uint8_t> actual) {
  const auto [wanted, found] = std::mismatch(expected.begin(), expected.end(), actual.begin(), actual.end());
  if (wanted == expected.end() && found == actual.end()) return "";
  std::ostringstream out;
  out << "rank " << rank << ", combined tokens: ";
  if (expected.size() != actual.size()) {
    out << actual.size() << " bytes, expected " << expected.size();
    return out.str();
  }
  const size_t byte_idx = static_cast<size_t>(wanted - expected.begin());
  const size_t element_bytes = dtype_bytes(shape.combine_dtype);
  const size_t element_first = byte_idx / element_bytes * element_bytes;
  out << "token " << byte_idx / shape.combine_row_bytes() << ", element "
      << byte_idx % shape.combine_row_bytes() / element_bytes << std::hex;
  uint32_t actual_code = 0, expected_code = 0;
  std::memcpy(&actual_code, actual.data() + element_first, element_bytes);
  std::memcpy(&expected_code, expected.data() + element_first, element_bytes);
  out << " is 0x" << actual_code << ", expected 0x" << expected_code;
  return out.str();
}

}  // namespace switchyard::oracle
