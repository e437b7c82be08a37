// Row operations against what the memory can do: pushes beside memcpy, reductions beside a loop that only reads.
// Rows lie scattered over far more memory than the caches hold, in small pages of shared memory, as windows do.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "platform/host/rows.hpp"
#include "switchyard/quantise.hpp"

namespace switchyard {
namespace {

constexpr size_t kHidden = 7168;
constexpr size_t kRowBytes = kHidden * 2;
constexpr size_t kNumRows = 48 * 1024;  // 700 MB
constexpr uint32_t kSeed = 1;
constexpr int kMaxRows = 8;

struct Unmap {
  size_t bytes;
  void operator()(uint8_t* memory) const { munmap(memory, bytes); }
};

// Rows of a large region in random order, each once before any comes again.
class ScatteredRows {
 public:
  explicit ScatteredRows(uint32_t seed) : memory_(map(), Unmap{kNumRows * kRowBytes}), order_(kNumRows) {
    // BF16 1.0 everywhere: written, so that every row has memory of its own.
    auto* elements = reinterpret_cast<uint16_t*>(memory_.get());
    std::fill(elements, elements + kNumRows * kHidden, uint16_t(0x3f80));
    std::iota(order_.begin(), order_.end(), 0u);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(seed));
  }
  uint8_t* next() { return memory_.get() + size_t(order_[next_++ % kNumRows]) * kRowBytes; }

 private:
  static uint8_t* map() {
    void* memory =
        mmap(nullptr, kNumRows * kRowBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("rows_bench needs 1.4 GB of shared memory: mmap");
      std::exit(1);
    }
    return static_cast<uint8_t*>(memory);
  }
  std::unique_ptr<uint8_t, Unmap> memory_;
  std::vector<uint32_t> order_;
  size_t next_ = 0;
};

ScatteredRows& sources() {
  static ScatteredRows rows(kSeed);
  return rows;
}
ScatteredRows& destinations() {
  static ScatteredRows rows(kSeed + 1);
  return rows;
}

using Push = void (*)(const void* src, void* const* dsts, int num_dsts, size_t bytes);

void push_by_memcpy(const void* src, void* const* dsts, int num_dsts, size_t bytes) {
  for (int i = 0; i < num_dsts; ++i) std::memcpy(dsts[i], src, bytes);
}

// Bytes per second are bytes written.
void bench_push(benchmark::State& state, Push push) {
  const int num_dsts = int(state.range(0));
  void* dsts[kMaxRows];
  for (auto _ : state) {
    for (int i = 0; i < num_dsts; ++i) dsts[i] = destinations().next();
    push(sources().next(), dsts, num_dsts, kRowBytes);
  }
  rows::drain();
  state.SetBytesProcessed(int64_t(state.iterations()) * num_dsts * int64_t(kRowBytes));
}

using Reduce = void (*)(void* dst, const void* const* srcs, const float* weights, int num_srcs);

void reduce_bf16(void* dst, const void* const* srcs, const float* weights, int num_srcs) {
  rows::reduce(DType::kBfloat16, dst, srcs, weights, num_srcs, kHidden);
}

// The bound: the same rows read in the best order known, a line of each in turn, and nothing else done.
void read_only(void*, const void* const* srcs, const float*, int num_srcs) {
  using Quarter = uint64_t __attribute__((vector_size(16)));
  Quarter a{}, b{}, c{}, d{};
  for (size_t offset = 0; offset < kRowBytes; offset += 4 * sizeof(Quarter)) {
    for (int i = 0; i < num_srcs; ++i) {
      const auto* line = reinterpret_cast<const Quarter*>(static_cast<const uint8_t*>(srcs[i]) + offset);
      a ^= line[0], b ^= line[1], c ^= line[2], d ^= line[3];
    }
  }
  a ^= b ^ c ^ d;
  benchmark::DoNotOptimize(a);
}

// Bytes per second are bytes read.
void bench_reduce(benchmark::State& state, Reduce reduce) {
  const int num_srcs = int(state.range(0));
  const float weights[kMaxRows] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f};
  const void* srcs[kMaxRows];
  for (auto _ : state) {
    for (int i = 0; i < num_srcs; ++i) srcs[i] = sources().next();
    reduce(destinations().next(), srcs, weights, num_srcs);
  }
  rows::drain();
  state.SetBytesProcessed(int64_t(state.iterations()) * num_srcs * int64_t(kRowBytes));
}

using QuantiseFp8 = void (*)(const uint16_t* bf16, uint8_t* out, float* scales, size_t num_elements, bool round);

// Bytes per second are bytes of BF16 read.
void bench_fp8(benchmark::State& state, QuantiseFp8 quantise) {
  std::vector<uint8_t> out(kHidden);
  std::vector<float> scales(num_fp8_scales(kHidden));
  for (auto _ : state) {
    quantise(reinterpret_cast<const uint16_t*>(sources().next()), out.data(), scales.data(), kHidden, false);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(kRowBytes));
}

void bench_encode_nvfp4(benchmark::State& state) {
  std::vector<uint8_t> packet(Nvfp4Layout{kHidden}.packet_bytes());
  for (auto _ : state) {
    rows::encode_nvfp4(reinterpret_cast<const uint16_t*>(sources().next()), 2688.0f, packet.data(), kHidden);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(kRowBytes));
}

// Bytes per second are bytes of packets read, from the cache.
void bench_reduce_nvfp4(benchmark::State& state) {
  const Nvfp4Layout layout{kHidden};
  std::vector<uint8_t> packet(layout.packet_bytes());
  rows::encode_nvfp4(reinterpret_cast<const uint16_t*>(sources().next()), 2688.0f, packet.data(), kHidden);
  const std::vector<const void*> packets(kMaxRows, packet.data());
  std::vector<uint16_t> row(kHidden);
  for (auto _ : state) {
    rows::reduce_nvfp4(row.data(), packets.data(), nullptr, kMaxRows, kHidden);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(int64_t(state.iterations()) * kMaxRows * int64_t(packet.size()));
}

BENCHMARK_CAPTURE(bench_push, memcpy, push_by_memcpy)->Arg(1)->Arg(2)->Arg(5)->Arg(8);
BENCHMARK_CAPTURE(bench_push, rows, rows::push)->Arg(1)->Arg(2)->Arg(5)->Arg(8);
BENCHMARK_CAPTURE(bench_reduce, read_only, read_only)->Arg(1)->Arg(2)->Arg(5)->Arg(8);
BENCHMARK_CAPTURE(bench_reduce, rows, reduce_bf16)->Arg(1)->Arg(2)->Arg(5)->Arg(8);
BENCHMARK_CAPTURE(bench_fp8, scalar, quantise_fp8_row);
BENCHMARK_CAPTURE(bench_fp8, rows, rows::quantise_fp8);
BENCHMARK(bench_encode_nvfp4);
BENCHMARK(bench_reduce_nvfp4);

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  // Filled before the first measurement.
  switchyard::sources();
  switchyard::destinations();
  benchmark::AddCustomContext("row_target", switchyard::rows::target_name());
  benchmark::AddCustomContext("row_bytes", std::to_string(switchyard::kRowBytes));
  benchmark::AddCustomContext("seed", std::to_string(switchyard::kSeed));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
