#include "coll/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>

#include "oracle/float_formats.hpp"

namespace switchyard::testing {
namespace {

using coll::ReduceOp;

uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// 2^-6 .. 2^6, both signs.
double some_number(uint64_t bits) {
  const double fraction = 1.0 + double(bits & 0xfffff) / 0x100000;
  return std::ldexp(bits >> 63 ? -fraction : fraction, int(bits >> 32 & 0xf) % 12 - 6);
}

template <class T>
void store(Bytes& bytes, size_t idx, T value) {
  std::memcpy(bytes.data() + idx * sizeof(T), &value, sizeof(T));
}
template <class T>
T load(const Bytes& bytes, size_t idx) {
  T value;
  std::memcpy(&value, bytes.data() + idx * sizeof(T), sizeof(T));
  return value;
}

// Numbers of one kind: how they are read, combined and written.
struct Kind {
  std::function<void(Bytes&, size_t idx, uint64_t bits)> make;
  // `row`: values of the ranks of a node, or of the nodes; last: and then the mean over `num_ranks`, if that is asked
  // for.
  std::function<void(const std::vector<const Bytes*>& rows, size_t idx, ReduceOp op, int divisor, Bytes& out)> reduce;
};

template <class Sum>
Sum combine(ReduceOp op, Sum a, Sum b) {
  switch (op) {
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMax: return std::max(a, b);
    case ReduceOp::kMin: return std::min(a, b);
    default: return a + b;
  }
}

template <class T>
Kind integers() {
  return {[](Bytes& bytes, size_t idx, uint64_t bits) { store(bytes, idx, T(bits)); },
          [](const std::vector<const Bytes*>& rows, size_t idx, ReduceOp op, int divisor, Bytes& out) {
            T sum = load<T>(*rows[0], idx);
            for (size_t i = 1; i < rows.size(); ++i) {
              const T value = load<T>(*rows[i], idx);
              const bool compares = op == ReduceOp::kMax || op == ReduceOp::kMin;
              // Unsigned numbers of 64 bits wrap as all narrower ones do, in their lower bits.
              sum = compares ? combine(op, sum, value) : T(combine<uint64_t>(op, uint64_t(sum), uint64_t(value)));
            }
            if constexpr (std::is_signed_v<T>) store(out, idx, T(int64_t(sum) / divisor));
            else store(out, idx, T(uint64_t(sum) / uint64_t(divisor)));
          }};
}

template <class Sum, class Storage>
Kind reals(std::function<Sum(Storage)> decode, std::function<Storage(Sum)> encode) {
  return {[=](Bytes& bytes, size_t idx, uint64_t bits) { store(bytes, idx, encode(Sum(some_number(bits)))); },
          [=](const std::vector<const Bytes*>& rows, size_t idx, ReduceOp op, int divisor, Bytes& out) {
            Sum sum = decode(load<Storage>(*rows[0], idx));
            for (size_t i = 1; i < rows.size(); ++i) sum = combine(op, sum, decode(load<Storage>(*rows[i], idx)));
            store(out, idx, encode(sum / Sum(divisor)));
          }};
}

Kind narrow(DType dtype) {
  return reals<float, uint16_t>([=](uint16_t code) { return oracle::decode(dtype, code); },
                                [=](float value) { return uint16_t(oracle::encode(dtype, value)); });
}

Kind kind_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return integers<int8_t>();
    case DType::kInt32: return integers<int32_t>();
    case DType::kUint32: return integers<uint32_t>();
    case DType::kInt64: return integers<int64_t>();
    case DType::kUint64: return integers<uint64_t>();
    case DType::kFloat64:
      return reals<double, double>([](double value) { return value; }, [](double value) { return value; });
    case DType::kFloat32:
      return reals<float, float>([](float value) { return value; }, [](float value) { return value; });
    case DType::kFloat16:
    case DType::kBfloat16: return narrow(dtype);
    default: return integers<uint8_t>();  // bytes, which nobody reduces
  }
}

}  // namespace

Bytes make_input(DType dtype, int rank, size_t num_elements, uint64_t seed) {
  const Kind kind = kind_of(dtype);
  Bytes bytes(num_elements * dtype_bytes(dtype));
  for (size_t idx = 0; idx < num_elements; ++idx) kind.make(bytes, idx, mix(mix(seed << 32 | uint64_t(rank)) + idx));
  return bytes;
}

Bytes reduce(DType dtype, ReduceOp op, const std::vector<Bytes>& inputs, const std::vector<int>& of_rank) {
  const Kind kind = kind_of(dtype);
  const size_t num_elements = inputs[0].size() / dtype_bytes(dtype);
  const auto over = [&](const std::vector<const Bytes*>& rows, int divisor) {
    Bytes out(inputs[0].size());
    for (size_t idx = 0; idx < num_elements; ++idx) kind.reduce(rows, idx, op, divisor, out);
    return out;
  };
  std::vector<std::vector<const Bytes*>> nodes;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    if (rank == 0 || of_rank[rank] != of_rank[rank - 1]) nodes.emplace_back();
    nodes.back().push_back(&inputs[rank]);
  }
  const int divisor = op == ReduceOp::kAvg ? int(inputs.size()) : 1;
  if (nodes.size() == 1) return over(nodes[0], divisor);
  std::vector<Bytes> partials;
  for (const auto& rows : nodes) partials.push_back(over(rows, 1));
  std::vector<const Bytes*> rows;
  for (const Bytes& partial : partials) rows.push_back(&partial);
  return over(rows, divisor);
}

}  // namespace switchyard::testing
