// Rows of any element type, reduced element by element in the order of the sources, so that every rank that reduces the
// same rows gets the same bits. BF16 and FP16 are added up in FP32 and rounded once; integers wrap.
#pragma once
#include <cstdint>
#include <type_traits>

#include "switchyard/coll/config.hpp"
#include "switchyard/numeric.hpp"

namespace switchyard::coll {

struct Reduction {
  DType dtype;
  ReduceOp op;
  int32_t divisor;  // of kAvg, where this is the last step; else 1

  // Does the platform's own sum of rows do?
  SWITCHYARD_HD bool is_plain_sum() const {
    const bool is_float = dtype == DType::kBfloat16 || dtype == DType::kFloat16 || dtype == DType::kFloat32;
    return is_float && (op == ReduceOp::kSum || op == ReduceOp::kAvg) && divisor == 1;
  }
};

// How elements are stored, and in what they are added up. Integers: in unsigned ones, which may wrap.
template <class T>
struct IntegerElement {
  using Storage = T;
  using Sum = std::make_unsigned_t<T>;
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  static SWITCHYARD_HD Sum decode(T stored) { return Sum(stored); }
  static SWITCHYARD_HD T encode(Sum sum) { return T(sum); }
  static SWITCHYARD_HD bool less(Sum a, Sum b) { return T(a) < T(b); }
  static SWITCHYARD_HD Sum divide(Sum sum, int32_t divisor) { return Sum(Wide(T(sum)) / Wide(divisor)); }
};
template <class S>
struct RealElement {
  using Sum = S;
  static SWITCHYARD_HD bool less(Sum a, Sum b) { return a < b; }
  static SWITCHYARD_HD Sum divide(Sum sum, int32_t divisor) { return sum / Sum(divisor); }
};
struct DoubleElement : RealElement<double> {
  using Storage = double;
  static SWITCHYARD_HD double decode(double stored) { return stored; }
  static SWITCHYARD_HD double encode(double sum) { return sum; }
};
template <DType kType>
struct FloatElement : RealElement<float>, Element<kType> {};

template <class E, class P>
SWITCHYARD_DEVICE void reduce_elements(const P& p, const Reduction& how, char* out, const char* const* sources,
                                       int num_sources, uint64_t num_elements) {
  using T = typename E::Storage;
  using Sum = typename E::Sum;
  // A CPU takes many elements of one source at a time, so that the compiler can use vectors; a lane of a GPU has one.
  constexpr uint64_t kAtOnce = P::kLanes == 1 ? 64 : 1;
  for (uint64_t begin = uint64_t(p.lane()) * kAtOnce; begin < num_elements; begin += P::kLanes * kAtOnce) {
    const uint64_t num = num_elements - begin < kAtOnce ? num_elements - begin : kAtOnce;
    Sum sums[kAtOnce];
    for (int source = 0; source < num_sources; ++source) {
      const T* const row = reinterpret_cast<const T*>(sources[source]) + begin;
      const auto each = [&](auto combine) {
        for (uint64_t i = 0; i < num; ++i) sums[i] = combine(sums[i], E::decode(p.read(row + i)));
      };
      if (source == 0) each([](Sum, Sum value) { return value; });
      else if (how.op == ReduceOp::kProd) each([](Sum sum, Sum value) { return Sum(sum * value); });
      else if (how.op == ReduceOp::kMax) each([](Sum sum, Sum value) { return E::less(sum, value) ? value : sum; });
      else if (how.op == ReduceOp::kMin) each([](Sum sum, Sum value) { return E::less(value, sum) ? value : sum; });
      else each([](Sum sum, Sum value) { return Sum(sum + value); });
    }
    if (how.divisor != 1) {
      for (uint64_t i = 0; i < num; ++i) sums[i] = E::divide(sums[i], how.divisor);
    }
    for (uint64_t i = 0; i < num; ++i) p.write(reinterpret_cast<T*>(out) + begin + i, E::encode(sums[i]));
  }
}

// out may be one of the sources. `ones`: [num_sources] 1.0 each.
template <class P>
SWITCHYARD_DEVICE void reduce_rows(const P& p, const Reduction& how, char* out, const char* const* sources,
                                   const float* ones, int num_sources, uint64_t num_elements) {
  if (how.is_plain_sum()) return p.reduce(how.dtype, out, sources, ones, num_sources, num_elements);
  const auto run = [&]<class E>(E) { reduce_elements<E>(p, how, out, sources, num_sources, num_elements); };
  switch (how.dtype) {
    case DType::kInt8: return run(IntegerElement<int8_t>{});
    case DType::kUint8: return run(IntegerElement<uint8_t>{});
    case DType::kInt32: return run(IntegerElement<int32_t>{});
    case DType::kUint32: return run(IntegerElement<uint32_t>{});
    case DType::kInt64: return run(IntegerElement<int64_t>{});
    case DType::kUint64: return run(IntegerElement<uint64_t>{});
    case DType::kFloat64: return run(DoubleElement{});
    case DType::kFloat32: return run(FloatElement<DType::kFloat32>{});
    case DType::kBfloat16: return run(FloatElement<DType::kBfloat16>{});
    case DType::kFloat16: return run(FloatElement<DType::kFloat16>{});
    default: return;  // refused before (collectives.cc)
  }
}

}  // namespace switchyard::coll
