// Window: memory that every rank of a communicator registered together, reachable by load and store from the ranks of
// the same node.
//
// Ranks of other processes are mapped from their sealed memfd, side by side in one reserved range of addresses; ranks
// that are threads of this process are reached at the address they use themselves, so that thread sanitizer sees
// every access and no page is mapped twice. Both are behind one table of bases, which kernels index by rank.
//
// THREADS    registration is collective: every rank, same order, equal sizes.
// OWNERSHIP  the window maps peers' memory, or keeps it in place where they are threads of this process; the registered
//            memory stays the caller's and must outlive the window.
// ERRORS     name the rank whose size differs or that did not come.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/local_peers.hpp"
#include "comm/node_link.hpp"
#include "comm/topology.hpp"
#include "comm/window_table.hpp"
#include "platform/runtime.hpp"

namespace switchyard {

class Window {
 public:
  // What a communicator lends for a registration.
  struct Context {
    Runtime& runtime;
    Bootstrap& bootstrap;
    NodeLink* link;   // passes descriptors inside `reach`; null: all its ranks are threads of this process
    RankRange reach;  // ranks that map each other's memory
    std::span<const Whereabouts> whereabouts;
    std::span<const int> members;  // world ranks, by rank of the communicator
    JobId job_id;
    uint64_t comm_id;
    int rank;
    WindowTable table{};  // where kernels look for it; without slots: they don't
  };
  static Result<std::unique_ptr<Window>> create(const Context& context, uint32_t id, void* memory, size_t num_bytes,
                                                Deadline deadline);
  ~Window();

  uint32_t id() const { return id_; }  // equal on all ranks, never 0
  char* local() const { return local_; }
  size_t size() const { return num_bytes_; }
  // Bases by rank, in memory that kernels can read; null for ranks of other nodes.
  char* const* bases() const { return device_bases_; }
  char* base(int rank) const { return bases_[size_t(rank)]; }
  bool contains(const void* address, size_t num_bytes) const;

 private:
  Window(Runtime& runtime, WindowTable table, uint32_t id, char* local, size_t num_bytes)
      : runtime_(runtime), table_(table), id_(id), local_(local), num_bytes_(num_bytes) {}
  Status enter_in_table(char* const* bases) const;
  Status map_peers(const Context& context, size_t alloc_bytes, size_t offset, int fd, Deadline deadline);

  Runtime& runtime_;
  const WindowTable table_;
  uint32_t id_;
  char* local_;
  size_t num_bytes_;
  std::vector<char*> bases_;
  std::vector<std::shared_ptr<const void>> kept_;  // of ranks of this process, who may fail and free before we are through
  char** device_bases_ = nullptr;
  void* reserved_ = nullptr;  // the range that peers' memory is mapped into
  size_t reserved_bytes_ = 0;
};

}  // namespace switchyard
