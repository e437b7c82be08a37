// What one high-throughput operation gets to know: plain structs, passed by value to the kernel.
#pragma once
#include "comm/window_table.hpp"
#include "ep/ht_layout.hpp"
#include "switchyard/dtype.hpp"

namespace switchyard::ep {

// One end of a stream of rows between nodes (rail_stream.hpp); a rank's own.
struct RailEnd {
  uint64_t num_packed;  // sender
  uint64_t num_sent;
  uint64_t num_there;  // receiver
  uint64_t num_taken;  // by the receiver, as far as known
  int32_t over;     // the end was told
  int32_t closed;   // and heard
  int32_t lacking;  // some rows are not what they should be, because somebody is missing
  int32_t reserved;
};

struct HtState : GroupState {
  RailTraffic rail_traffic;
  uint64_t offered;  // tag of a combine whose results in my outbox may still be read; 0: all are through with it
};

struct HtGroupView : GroupView {
  HtLayout layout;
  char* const* payload;  // [num_ranks] payload window of every rank; null where only the network reaches
  uint32_t payload_id;   // as the network knows it
  WindowTable windows;   // of the communicator
  int32_t max_local;     // experts of the rank that has most
  int32_t node;          // mine
  int32_t num_nodes;
  const int32_t* node_first;    // [num_nodes + 1] first rank of each node
  const int32_t* rail_sources;  // ranks of other nodes whose rows I forward on this node
  int32_t num_rail_sources;
  RailEnd* rail_ends;  // [2][num_ranks] of streams to and from each rank
  int32_t* numbers;    // HtNumbers, of the update that runs
  const char* zeros;   // one row
  int32_t budget;  // rows that a rank receives at most; INT32_MAX: the caller looks first
  int32_t drops;   // what is over the budget is dropped; else it is an error

  SWITCHYARD_HD HtState& ht_state() const { return *static_cast<HtState*>(state); }
  SWITCHYARD_HD int node_size(int n) const { return node_first[n + 1] - node_first[n]; }
  SWITCHYARD_HD int first_local() const { return node_first[node]; }
  SWITCHYARD_HD int end_local() const { return node_first[node + 1]; }
  SWITCHYARD_HD bool is_local(int peer) const { return peer >= first_local() && peer < end_local(); }
  SWITCHYARD_HD int node_of(int peer) const {
    int n = 0;
    while (peer >= node_first[n + 1]) ++n;
    return n;
  }
  // Who forwards the rows of `source` on node n: a rail is a rule, because nodes may have different sizes.
  SWITCHYARD_HD int forwarder(int source, int n) const {
    return node_first[n] + (source - node_first[node_of(source)]) % node_size(n);
  }
  // Who writes the rows of `source` into this rank's memory.
  SWITCHYARD_HD int writer(int source) const { return is_local(source) ? source : forwarder(source, node); }
};

enum class HtKind : int32_t { kRoute = 0, kDispatch = 1, kCombine = 2 };

// One operation.
struct HtOp {
  HtGroupView group;
  HtKind kind;
  int32_t backward;
  int32_t topk;
  int32_t num_tokens;
  int32_t num_local;  // experts of this rank
  int32_t expert_major;
  int32_t indices_are_64;   // route
  int32_t counters_are_64;  // route: what counters and offsets hold
  int32_t total_is_64;
  int32_t alignment;        // route, expert-major: rows of an expert are padded to a multiple
  int32_t global_ids;       // dispatch, flat: report global instead of local expert ids
  int32_t in_place;         // dispatch: peers write my output window; combine: they read my input window
  DType dtype;              // of rows
  uint32_t num_elements;    // combine: of a row
  uint32_t token_bytes;     // of a row
  uint32_t scale_bytes;
  uint32_t token_window_id;  // of my output (dispatch) or input (combine); 0 none
  uint32_t scale_window_id;
  int32_t plan_stamp;  // of the group, layout and top-k that a plan is for; not 0
  int32_t* record;     // handle memory, HtRecord
  const void* topk_idx;
  void* out_expert_counters;  // route
  void* out_expert_offsets;
  void* out_total;
  const char* tokens;
  const char* scales;
  const float* weights;  // dispatch: routing weights; combine backward: weight gradients
  char* out_tokens;
  char* out_scales;
  float* out_weights;
  int64_t* out_idx;
  uint64_t token_window_offset;
  uint64_t scale_window_offset;
};

}  // namespace switchyard::ep
