// The memory of a modelled low-latency group, and what its operations are and must give.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ep/ll_op.hpp"
#include "model/arena.hpp"
#include "model/ll_model.hpp"

namespace switchyard::model {

// One step of the script.
struct LlStep {
  ep::LlKind kind;
  ep::LlPart part;
  int slot;        // of a staged operation
  int handle;      // whose record and outputs it uses
  uint64_t tag;    // of the operation
  int dispatch;    // ordinal of the dispatch, or of the dispatch that a combine answers: it decides the routing
  uint64_t sent;   // tag of that dispatch
};
std::vector<LlStep> parse_script(const std::string& script);

class LlWorld {
 public:
  LlWorld(Arena& arena, const LlCase& c);

  const LlCase& shape() const { return c_; }
  const std::vector<LlStep>& steps() const { return steps_; }
  const ep::LlOp& op(int rank, size_t step_idx) const { return ranks_[size_t(rank)].ops[step_idx]; }

  // Writes what the step reads: tokens of a dispatch, expert results of a combine. Checks what the step wrote.
  void prepare(const ModelPlatform& p, int rank, const LlStep& step) const;
  void check(const ModelPlatform& p, int rank, const LlStep& step) const;

  // Between operations of a rank with several warps: as between kernels of a stream, all warps of one are through
  // before the next begins.
  uint64_t* launched(int rank) const { return &ranks_[size_t(rank)].kernels[0]; }
  uint64_t* joined(int rank) const { return &ranks_[size_t(rank)].kernels[1]; }
  uint64_t* clock() const { return clock_; }
  uint32_t* peer_state(int rank, int peer) const { return &ranks_[size_t(rank)].peer_state[peer]; }

 private:
  struct Handle {
    int32_t* record;
    char *out_tokens, *results;  // dispatch output, combine input
    int32_t *out_counts, *out_idx;
    float* out_weights;
  };
  struct Rank {
    char *control, *payload, *tokens, *combined;
    Handle handles[2];
    ep::LlState* state;
    ep::Report* report;
    int32_t *mask, *plan;
    uint64_t *counters, *kernels;
    uint32_t* peer_state;
    std::vector<ep::LlOp> ops;
  };

  void make_rank(Arena& arena, int rank);
  void make_handle(Arena& arena, int rank, Handle& handle);
  void declare_uses(Arena& arena, int rank);
  void declare_lines(Arena& arena, int rank);
  ep::LlOp make_op(int rank, const LlStep& step) const;

  int expert_of(int dispatch, int rank, int token, int k) const;
  bool sends_to(int dispatch, int rank, int token, int dest) const;
  bool is_missing(const ModelPlatform& p, int rank, int handle, int source) const;
  size_t num_rows() const { return size_t(c_.num_ranks) * size_t(c_.num_tokens); }  // of an output: one expert a rank
  void check_dispatch(const ModelPlatform& p, int rank, const LlStep& step) const;
  void check_combine(const ModelPlatform& p, int rank, const LlStep& step) const;

  LlCase c_;
  std::vector<LlStep> steps_;
  ep::LlLayout layout_;
  ep::ControlLayout control_layout_;
  std::vector<Rank> ranks_;
  std::vector<char*> control_, payload_;
  std::vector<char*> out_windows_[2], result_windows_[2];  // by handle
  int32_t *owner_, *local_;
  uint32_t* abort_;
  uint64_t* clock_;
  float* weights_;
  std::vector<int32_t*> routing_;  // [dispatch][rank] -> [token][k]
};

}  // namespace switchyard::model
