// Vector forms of the conversions of switchyard/numeric.hpp. Compiled once for each target: include only from files
// that go through hwy/foreach_target.h, and after it.
#if defined(SWITCHYARD_ROWS_SIMD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHYARD_ROWS_SIMD_INL
#undef SWITCHYARD_ROWS_SIMD_INL
#else
#define SWITCHYARD_ROWS_SIMD_INL
#endif

#include <hwy/highway.h>

#include "switchyard/numeric.hpp"

// Without vectors of its own a target runs the scalar loops that otherwise only finish a row.
#undef SWITCHYARD_HAVE_SIMD
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define SWITCHYARD_HAVE_SIMD 1
static_assert(HWY_NATIVE_FMA, "reduce() promises one rounding for each multiply-add");
#else
#define SWITCHYARD_HAVE_SIMD 0
#endif

HWY_BEFORE_NAMESPACE();
namespace switchyard::rows::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if SWITCHYARD_HAVE_SIMD

// The BF16 code of each lane in its upper half; the lower half is rubbish.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_to_bf16(D d, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), hn::Set(du, uint32_t(kBf16Nan) << 16), rounded);
}

template <class D>
HWY_INLINE hn::Vec<D> load_bf16(D d, const uint16_t* codes) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D>(), codes))));
}

template <class D>
HWY_INLINE void store_bf16(D d, hn::Vec<D> value, uint16_t* codes) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(round_to_bf16(d, value)))), d16, codes);
}

template <class D>
HWY_INLINE hn::Vec<D> load_fp16(D d, const uint8_t* codes) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(hn::Repartition<uint8_t, decltype(d16)>(), codes)));
}

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> round_to_fp16(D, hn::Vec<D> value) {
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::RebindToSigned<decltype(d16)> di;
  const auto code = hn::BitCast(di, hn::DemoteTo(d16, value));
  const auto is_nan = hn::Gt(hn::And(code, hn::Set(di, 0x7fff)), hn::Set(di, Fp16::kInf));
  return hn::BitCast(hn::Rebind<uint16_t, D>(), hn::IfThenElse(is_nan, hn::Set(di, Fp16::kNan), code));
}

// encode_minifloat() for a Format that saturates; one code in each lane.
template <class Format, class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> encode_lanes(D d, hn::Vec<D> value) {
  static_assert(Format::kOverflow == Format::kMax);
  const hn::RebindToSigned<D> di;
  constexpr int kShift = 23 - Format::kManBits;
  const auto bits = hn::BitCast(di, value);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(di, 1));
  const auto rounded = hn::Add(magnitude, hn::Add(odd, hn::Set(di, (1 << (kShift - 1)) - 1)));
  const auto normal =
      hn::Sub(hn::ShiftRight<kShift>(rounded), hn::Set(di, (127 - Format::kBias) << Format::kManBits));
  // A float whose unit in the last place is the smallest subnormal: adding it makes the adder round to one.
  constexpr int32_t kMagic = (151 - Format::kBias - Format::kManBits) << 23;
  const auto magic = hn::Set(di, kMagic);
  const auto sum = hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, magic));
  const auto subnormal = hn::Sub(hn::BitCast(di, sum), magic);
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(di, (128 - Format::kBias) << 23));
  const auto code = hn::Min(hn::IfThenElse(is_subnormal, subnormal, normal), hn::Set(di, int32_t(Format::kMax)));
  const auto sign = hn::And(hn::ShiftRight<31 - Format::kSignBit>(bits), hn::Set(di, 1 << Format::kSignBit));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, int32_t(kFloatInf)));
  return hn::IfThenElse(is_nan, hn::Set(di, int32_t(Format::kNan)), hn::Or(code, sign));
}

#endif  // SWITCHYARD_HAVE_SIMD

}  // namespace switchyard::rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
