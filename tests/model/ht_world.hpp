// The memory of a modelled high-throughput group, and what its operations are and must give.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ep/ht_op.hpp"
#include "model/arena.hpp"
#include "model/ht_plan.hpp"

namespace switchyard::model {

// One step of the script.
struct HtStep {
  ep::HtKind kind;
  bool backward;
  int plan;      // its ordinal
  uint64_t tag;  // of the operation
  uint64_t sent;  // tag of the dispatch that a combine answers
};

class HtWorld {
 public:
  HtWorld(Arena& arena, const HtCase& c);

  const std::vector<HtStep>& steps() const { return steps_; }
  const ep::HtOp& op(int rank, size_t step_idx) const { return ranks_[size_t(rank)].ops[step_idx]; }
  const std::vector<std::string>& couriers() const { return courier_names_; }

  // Writes what the step reads: tokens of a dispatch, expert results of a combine. Checks what the step wrote.
  void prepare(const ModelPlatform& p, int rank, const HtStep& step) const;
  void check(const ModelPlatform& p, int rank, const HtStep& step) const;

 private:
  static constexpr int kNumHandles = 2;  // plans take turns

  struct Handle {
    int32_t *record, *routing, *total;
    std::vector<int32_t> expected;  // of the record, but for its tag
  };
  struct Rank {
    char *control, *payload, *tokens, *combined;
    char *received, *results;  // dispatch output, combine input
    float *weights, *received_weights, *result_gradients, *gradients;
    int64_t* received_ids;
    Handle handles[kNumHandles];
    ep::HtState* state;
    ep::Report* report;
    int32_t *mask, *numbers;
    std::vector<ep::RailEnd> rail_ends;
    int32_t* rail_sources;
    std::vector<char*> controls, payloads, out_windows, result_windows;  // of every rank, null where memory does not reach
    std::vector<char* const*> out_table, result_table;                   // WindowTable, of dispatches and of combines
    ModelNetwork network;
    NetPath path;
    std::vector<ep::HtOp> ops;
  };

  std::vector<HtStep> parse_script() const;
  void make_layouts();
  void make_tables(Arena& arena);
  void make_rank(Arena& arena, int rank);
  void make_tensors(Arena& arena, int rank);
  void make_handle(Arena& arena, int rank, int handle);
  void declare_uses(Arena& arena, int rank);
  void declare_lines(Arena& arena, int rank);
  void connect(int rank);
  ep::HtOp make_op(int rank, const HtStep& step);
  void fill_group(int rank, ep::HtGroupView& group);

  const HtPlan& plan_of(const HtStep& step) const { return plans_[size_t(step.plan) % plans_.size()]; }
  bool is_alone(int rank) const { return c_.nodes[size_t(nodes_.node_of(rank))] == 1; }
  int owner(int expert) const { return expert / c_.num_local; }
  // Numbers of weights and gradients that come with a row.
  int per_row() const { return c_.expert_major ? 1 : c_.topk; }
  uint64_t result_of(const HtStep& step, int source, int token, const HtPlan::Entry& entry) const;
  float gradient_of(const HtStep& step, int rank, int64_t place) const;
  template <class Visit>
  void for_each_row(const HtStep& step, int rank, Visit visit) const;
  void check_update(const ModelPlatform& p, int rank, const HtStep& step) const;
  void check_dispatch(const ModelPlatform& p, int rank, const HtStep& step) const;
  void check_padding(const ModelPlatform& p, int rank, const HtStep& step) const;
  void check_description(const ModelPlatform& p, int rank, const HtPlan& plan, int source, int token, int k) const;
  void check_combine(const ModelPlatform& p, int rank, const HtStep& step) const;
  void check_gradients(const ModelPlatform& p, int rank, const HtStep& step, int token) const;

  HtCase c_;
  HtNodes nodes_;
  std::vector<HtPlan> plans_;
  std::vector<HtStep> steps_;
  ep::HtLayout layout_;
  ep::ControlLayout control_layout_;
  std::vector<Rank> ranks_;
  std::vector<std::string> courier_names_;
  int32_t *owner_, *local_;
  uint32_t *abort_, *peer_state_;
  char* zeros_;
};

}  // namespace switchyard::model
