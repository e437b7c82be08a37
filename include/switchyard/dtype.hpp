// Element types. Values equal ncclDataType_t (and 12 for the C API's ncclFloat4x2), so that the C face needs no table.
#pragma once
#include <cstddef>

#include "switchyard/platform/hd.hpp"

namespace switchyard {

enum class DType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4M3 = 10,
  kFloat8E5M2 = 11,
  kFloat4x2 = 12,  // two FP4 (E2M1) values a byte, the even element in the low nibble
};

// Bytes of one stored element; 0 for a value that is no DType.
SWITCHYARD_HD constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUint8:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
    case DType::kFloat4x2: return 1;
    case DType::kFloat16:
    case DType::kBfloat16: return 2;
    case DType::kInt32:
    case DType::kUint32:
    case DType::kFloat32: return 4;
    case DType::kInt64:
    case DType::kUint64:
    case DType::kFloat64: return 8;
  }
  return 0;
}

constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return "int8";
    case DType::kUint8: return "uint8";
    case DType::kInt32: return "int32";
    case DType::kUint32: return "uint32";
    case DType::kInt64: return "int64";
    case DType::kUint64: return "uint64";
    case DType::kFloat16: return "float16";
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kBfloat16: return "bfloat16";
    case DType::kFloat8E4M3: return "float8_e4m3";
    case DType::kFloat8E5M2: return "float8_e5m2";
    case DType::kFloat4x2: return "float4x2";
  }
  return "unknown";
}

}  // namespace switchyard
