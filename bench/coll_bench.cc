// Collectives beside what the memory allows: the same copies and sums by the same threads at the same time, but from
// private memory and without waiting for anybody.
//
//   coll_bench [--ranks 2,4,8] [--nodes 1] [--net mem] [--bytes 65536,16777216] [--rounds 15]
//              [--stage 1048576]
//
// bytes: of the whole vector that an all-gather makes, a reduce-scatter or an all-reduce takes, BF16. Ranks are
// threads. Times are medians over the rounds, of the slowest rank; ours and the bound in turns.
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coll/collectives.hpp"
#include "comm/communicator.hpp"
#include "comm/coordinator.hpp"
#include "platform/host/rows.hpp"
#include "platform/host/stream.hpp"

namespace switchyard {
namespace {

struct Options {
  std::vector<size_t> ranks{2, 4, 8};
  std::vector<size_t> bytes{64 << 10, 1 << 20, 16 << 20, 64 << 20};
  int num_nodes = 1;
  int num_rounds = 15;
  uint64_t stage_bytes = 0;  // the default
  std::string net = "mem";
};

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "coll_bench: %s\n", result.status().to_string().c_str());
  std::exit(1);
}
void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "coll_bench: %s\n", status.to_string().c_str());
  std::exit(1);
}

struct Rank {
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<coll::Collectives> collectives;
  std::unique_ptr<Stream> stream;
  std::vector<char> in, out, stage;
};

class Bench {
 public:
  Bench(const Options& options, size_t num_ranks, size_t num_bytes)
      : options_(options),
        ranks_(num_ranks),
        num_bytes_(num_bytes),
        share_(num_bytes / num_ranks / 2 * 2),
        meeting_(long(num_ranks), Begin{&begin_ns_}) {
    const UniqueId id = must(create_unique_id());
    on_all([&](size_t rank) {
      Communicator::Options mine;
      mine.net = options.net;
      mine.node_id = int64_t(rank * size_t(options.num_nodes) / num_ranks);
      Rank& self = ranks_[rank];
      self.comm = must(Communicator::create(id, int(rank), int(num_ranks), mine));
      self.collectives = must(coll::Collectives::create(*self.comm, {.stage_bytes = options.stage_bytes}));
      self.stream = must(Stream::create());
      self.in.assign(num_bytes, char(rank));
      self.out.assign(num_bytes, 0);
      self.stage.assign(num_bytes, 0);
    });
  }
  ~Bench() {
    on_all([&](size_t rank) {
      ranks_[rank].stream.reset();
      ranks_[rank].collectives.reset();
    });
    on_all([&](size_t rank) { ranks_[rank].comm.reset(); });
  }

  void run() {
    const auto bf16 = [&](size_t bytes) { return bytes / 2; };
    const auto gather_bound = [&](Rank& self) {
      rows::copy_streaming(self.stage.data(), self.in.data(), share_);
      for (size_t i = 0; i < ranks_.size(); ++i)
        rows::copy_streaming(self.out.data() + i * share_, ranks_[i].in.data(), share_);
    };
    const auto reduce_bound = [&](Rank& self) {
      rows::copy_streaming(self.stage.data(), self.in.data(), share_ * (ranks_.size() - 1));
      std::vector<const void*> sources;
      for (size_t i = 0; i < ranks_.size(); ++i) sources.push_back(ranks_[i].in.data() + i * share_);
      rows::reduce(DType::kBfloat16, self.out.data(), sources.data(), nullptr, int(sources.size()), bf16(share_));
    };
    report("all-gather", gather_bound, [&](Rank& self) {
      return self.collectives->all_gather(self.in.data(), self.out.data(), bf16(share_), DType::kBfloat16,
                                          {self.stream.get()});
    });
    report("reduce-scatter", reduce_bound, [&](Rank& self) {
      return self.collectives->reduce_scatter(self.in.data(), self.out.data(), bf16(share_), DType::kBfloat16,
                                              coll::ReduceOp::kSum, {self.stream.get()});
    });
    const auto both = [&](Rank& self) {
      reduce_bound(self);
      gather_bound(self);
    };
    report("all-reduce", both, [&](Rank& self) {
      return self.collectives->all_reduce(self.in.data(), self.out.data(), bf16(num_bytes_), DType::kBfloat16,
                                          coll::ReduceOp::kSum, {self.stream.get()});
    });
    const auto turn_bound = [&](Rank& self) {
      rows::copy_streaming(self.stage.data(), self.in.data(), share_ * (ranks_.size() - 1));
      for (size_t i = 0; i < ranks_.size(); ++i)
        rows::copy_streaming(self.out.data() + i * share_, ranks_[i].in.data(), share_);
    };
    report("all-to-all", turn_bound, [&](Rank& self) {
      return self.collectives->all_to_all(self.in.data(), self.out.data(), bf16(share_), DType::kBfloat16,
                                          {self.stream.get()});
    });
    std::vector<coll::Part> parts;
    for (size_t i = 0; i < ranks_.size(); ++i) parts.push_back({i * bf16(share_), bf16(share_)});
    report("all-to-all-v", turn_bound, [&](Rank& self) {
      return self.collectives->all_to_all_v(self.in.data(), parts, self.out.data(), parts, DType::kBfloat16,
                                            {self.stream.get()});
    });
  }

 private:
  void on_all(const std::function<void(size_t)>& body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  static double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
    return values[values.size() / 2];
  }

  void report(const char* name, const std::function<void(Rank&)>& bound,
              const std::function<Status(Rank&)>& operation) {
    std::vector<std::vector<double>> ours(ranks_.size()), theirs(ranks_.size());
    on_all([&](size_t rank) {
      Rank& self = ranks_[rank];
      const auto time = [&](auto work) {
        meeting_.arrive_and_wait();
        work();
        return double(now_ns() - begin_ns_);
      };
      for (int round = -2; round < options_.num_rounds; ++round) {
        const double mine = time([&] {
          must(operation(self));
          must(self.stream->synchronize(Deadline::after_ns(60 * kSecond)));
        });
        const double plain = time([&] {
          bound(self);
          rows::drain();
        });
        if (round < 0) continue;
        ours[rank].push_back(mine);
        theirs[rank].push_back(plain);
      }
    });
    const auto slowest = [&](const std::vector<std::vector<double>>& times) {
      std::vector<double> of_round;
      for (size_t round = 0; round < times[0].size(); ++round) {
        double most = 0;
        for (const auto& rank : times) most = std::max(most, rank[round]);
        of_round.push_back(most);
      }
      return median(of_round);
    };
    const double mine = slowest(ours), plain = slowest(theirs);
    std::printf("%-14s %5zu %5d %10zu %10.1f %8.2f %10.1f %6.2f\n", name, ranks_.size(), options_.num_nodes, num_bytes_,
                mine / 1000, double(num_bytes_) / mine, plain / 1000, mine / plain);
  }

  const Options& options_;
  std::vector<Rank> ranks_;
  const size_t num_bytes_, share_;
  // From when the last rank came, for all: with more ranks than cores the others may be scheduled only later.
  struct Begin {
    uint64_t* begin_ns;
    void operator()() noexcept { *begin_ns = now_ns(); }
  };
  uint64_t begin_ns_ = 0;
  std::barrier<Begin> meeting_;
};

std::vector<size_t> numbers(const char* list) {
  std::vector<size_t> result;
  for (char* rest = const_cast<char*>(list); *rest != '\0';) {
    result.push_back(std::strtoull(rest, &rest, 10));
    while (*rest != '\0' && (*rest < '0' || *rest > '9')) ++rest;
  }
  return result;
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  using namespace switchyard;
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--ranks") options.ranks = numbers(argv[i + 1]);
    else if (name == "--bytes") options.bytes = numbers(argv[i + 1]);
    else if (name == "--nodes") options.num_nodes = std::atoi(argv[i + 1]);
    else if (name == "--rounds") options.num_rounds = std::atoi(argv[i + 1]);
    else if (name == "--stage") options.stage_bytes = std::strtoull(argv[i + 1], nullptr, 10);
    else if (name == "--net") options.net = argv[i + 1];
    else return std::fprintf(stderr, "coll_bench: unknown option %s\n", argv[i]), 2;
  }
  std::printf("%-14s %5s %5s %10s %10s %8s %10s %6s\n", "operation", "ranks", "nodes", "bytes", "us", "GB/s",
              "bound us", "ratio");
  for (const size_t num_ranks : options.ranks) {
    for (const size_t num_bytes : options.bytes) Bench(options, num_ranks, num_bytes).run();
  }
  return 0;
}
