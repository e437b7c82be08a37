#include "bench/ep/check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/ep/rank.hpp"
#include "switchyard/numeric.hpp"
#include "switchyard/quantise.hpp"

namespace switchyard::bench {
namespace {

constexpr int kPoison = 0xff;
constexpr float kNvfp4Max = 6.0f * kFp8Max;  // greatest code times greatest block scale

template <class Body>
auto with_element(DType dtype, Body body) {
  switch (dtype) {
    case DType::kFloat32: return body.template operator()<DType::kFloat32>();
    case DType::kFloat16: return body.template operator()<DType::kFloat16>();
    default: return body.template operator()<DType::kBfloat16>();
  }
}

// Calls body(route) for the rows that arrive at this rank.
template <class Body>
void for_arrivals(const EpRank& rank, Body body) {
  for (const RowRoute& route : rank.plan().rows()) {
    if (route.owner == rank.rank()) body(route);
  }
}

// A row as it must arrive: codes and scales.
struct Arrival {
  std::vector<std::byte> row, scales;
};
Arrival expected_arrival(const EpRank& rank, int source, int token) {
  const EpSpec& spec = rank.spec();
  Arrival arrival{token_row(spec, rank.plan().routing(), source, token), std::vector<std::byte>(spec.scale_bytes())};
  if (spec.fp8()) {
    const std::vector<std::byte> input = std::move(arrival.row);
    arrival.row.resize(spec.arriving_bytes());
    quantise_fp8_row(reinterpret_cast<const uint16_t*>(input.data()), reinterpret_cast<uint8_t*>(arrival.row.data()),
                     reinterpret_cast<float*>(arrival.scales.data()), size_t(spec.hidden), false);
  }
  return arrival;
}

// What every expert of a token hands back.
std::vector<std::byte> expected_result(const EpRank& rank, int token) {
  const EpSpec& spec = rank.spec();
  Arrival arrival = expected_arrival(rank, rank.rank(), token);
  if (!spec.fp8()) return std::move(arrival.row);
  std::vector<std::byte> result(spec.result_bytes());
  dequantise_fp8_row(reinterpret_cast<const uint8_t*>(arrival.row.data()),
                     reinterpret_cast<const float*>(arrival.scales.data()), reinterpret_cast<uint16_t*>(result.data()),
                     size_t(spec.hidden));
  return result;
}

// The sum of one row under several weights: FP32, fused, in order, rounded once, and where rows of another node were added
// up there, once more.
template <DType kType>
std::vector<std::byte> weighted_sum(const std::vector<std::byte>& row, const std::vector<Contribution>& contributions) {
  std::vector<std::byte> sums(row.size());
  const size_t num_elements = row.size() / dtype_bytes(kType);
  for (size_t i = 0; i < num_elements; i++) {
    const float element = load_as<kType>(row.data(), i);
    float sum = 0;
    for (const Contribution& contribution : contributions) {
      float value = element;
      if (contribution.rounded) {
        store_as<kType>(sums.data(), i, element * float(contribution.num_rows));  // exact: few rows, few bits
        value = load_as<kType>(sums.data(), i);
      }
      sum = std::fmaf(value, contribution.weight, sum);
    }
    store_as<kType>(sums.data(), i, sum);
  }
  return sums;
}

std::vector<std::byte> weighted_sum_nvfp4(const std::vector<std::byte>& row, const std::vector<Contribution>& contributions) {
  const auto* bf16 = reinterpret_cast<const uint16_t*>(row.data());
  const Nvfp4Layout layout{row.size() / sizeof(uint16_t)};
  std::vector<uint8_t> packet(layout.packet_bytes());
  encode_nvfp4_row(bf16, nvfp4_row_scale_of(bf16, layout.num_elements), packet.data(), layout.num_elements);
  std::vector<std::byte> sums(row.size());
  for (size_t i = 0; i < layout.num_elements; i++) {
    float sum = 0;
    for (const Contribution& contribution : contributions) {
      sum = add_nvfp4_element(layout, packet.data(), i, contribution.weight, sum);
    }
    store_as<DType::kBfloat16>(sums.data(), i, sum);
  }
  return sums;
}

bool differs(const std::byte* row, const std::vector<std::byte>& expected) {
  return std::memcmp(row, expected.data(), expected.size()) != 0;
}

// With each row come the experts that it is for here, and their weights.
bool labels_differ_flat(const EpRank& rank, const RowRoute& route) {
  const EpPlan& plan = rank.plan();
  const Placement placement = rank.spec().placement();
  const auto topk = size_t(rank.spec().topk), from = size_t(route.token) * topk, to = route.row * topk;
  std::vector<std::pair<int64_t, float>> expected;
  for (size_t k = 0; k < topk; k++) {
    const int expert = int(plan.experts(route.source)[from + k]);
    if (placement.owner(expert) != rank.rank()) continue;
    expected.emplace_back(expert - placement.first(rank.rank()), plan.weights(route.source)[from + k]);
  }
  std::sort(expected.begin(), expected.end());
  expected.resize(topk, {-1, 0.0f});
  for (size_t k = 0; k < topk; k++) {
    if (rank.arrived_ids()[to + k] != expected[k].first || rank.arrived_weights()[to + k] != expected[k].second) return true;
  }
  return false;
}

bool weight_differs(const EpRank& rank, const RowRoute& route, size_t k) {
  return rank.arrived_weights()[route.row] != rank.plan().weights(route.source)[size_t(route.token) * size_t(rank.spec().topk) + k];
}

// Rank-major: with each row come its experts, by their number here, and their weights.
bool labels_differ_rank_major(const EpRank& rank, const RowRoute& route) {
  const EpPlan& plan = rank.plan();
  const Placement placement = rank.spec().placement();
  const auto topk = size_t(rank.spec().topk), from = size_t(route.token) * topk, to = route.row * topk;
  for (size_t k = 0; k < topk; k++) {
    const int expert = int(plan.experts(route.source)[from + k]);
    const int local = placement.owner(expert) == rank.rank() ? expert - placement.first(rank.rank()) : -1;
    if (rank.arrived_indices()[to + k] != local) return true;
    if (rank.arrived_weights()[to + k] != plan.weights(route.source)[from + k]) return true;
  }
  return false;
}

bool labels_differ(const EpRank& rank, const RowRoute& route) {
  const EpSpec& spec = rank.spec();
  if (!spec.expert_major()) return spec.high_throughput() ? labels_differ_flat(rank, route) : labels_differ_rank_major(rank, route);
  if (!spec.high_throughput()) return false;  // expert-major rows of low latency come without
  // Which of the token's experts has this row? Its weight must be one of theirs.
  for (size_t k = 0; k < size_t(spec.topk); k++) {
    if (!weight_differs(rank, route, k)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::byte> token_row(const EpSpec& spec, const Routing& routing, int source, int token) {
  std::vector<uint16_t> bf16(size_t(spec.hidden));
  routing.row(source, token, bf16);
  std::vector<std::byte> row(spec.input_bytes());
  with_element(spec.element(), [&]<DType kType> {  // exact: the generator's mantissas have 7 bits
    for (size_t i = 0; i < bf16.size(); i++) store_as<kType>(row.data(), i, bf16_to_float(bf16[i]));
  });
  return row;
}

void dequantise_fp8_row(const uint8_t* codes, const float* scales, uint16_t* bf16, size_t num_elements) {
  for (size_t i = 0; i < num_elements; i++) bf16[i] = float_to_bf16(e4m3_to_float(codes[i]) * scales[i / kFp8Group]);
}

float nvfp4_row_scale_of(const uint16_t* bf16, size_t num_elements) {
  const float amax = greatest_magnitude(bf16, num_elements, 0.0f);
  return amax > 0 ? kNvfp4Max / amax : 0.0f;
}

void poison_arrived(const EpRank& rank) {
  const EpSpec& spec = rank.spec();
  for_arrivals(rank, [&](const RowRoute& route) {
    std::memset(rank.arrived().row(route.row, spec.arriving_bytes()), kPoison, spec.arriving_bytes());
    std::memset(rank.arrived_scales().row(route.row, spec.scale_bytes()), kPoison, spec.scale_bytes());
  });
}

void poison_combined(const EpRank& rank) {
  std::memset(rank.combined().span().data(), kPoison, rank.combined().span().size());
}

uint64_t count_dispatch_errors(const EpRank& rank) {
  const EpSpec& spec = rank.spec();
  uint64_t num_errors = 0;
  Arrival expected;
  int source = -1, token = -1;
  for_arrivals(rank, [&](const RowRoute& route) {
    // A token's rows follow each other in the plan.
    if (route.source != source || route.token != token) expected = expected_arrival(rank, route.source, route.token);
    source = route.source, token = route.token;
    num_errors += differs(rank.arrived().row(route.row, spec.arriving_bytes()), expected.row) ||
                  differs(rank.arrived_scales().row(route.row, spec.scale_bytes()), expected.scales) ||
                  labels_differ(rank, route);
  });
  const auto counters = rank.plan().counters(rank.rank());
  for (size_t i = 0; i < counters.size(); i++) num_errors += counters[i] != rank.counters()[i];
  return num_errors;
}

uint64_t count_combine_errors(const EpRank& rank) {
  const EpSpec& spec = rank.spec();
  uint64_t num_errors = 0;
  for (int token = 0; token < spec.tokens; token++) {
    const std::vector<std::byte> row = expected_result(rank, token);
    const std::vector<Contribution> parts = rank.plan().contributions(rank.rank(), token);
    const std::vector<std::byte> expected =
        spec.nvfp4() ? weighted_sum_nvfp4(row, parts)
                     : with_element(spec.element(), [&]<DType kType> { return weighted_sum<kType>(row, parts); });
    num_errors += differs(rank.combined().row(size_t(token), spec.result_bytes()), expected);
  }
  return num_errors;
}

}  // namespace switchyard::bench
