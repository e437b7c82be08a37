// What every protocol of a group shares: epochs and their tags, the line that one peer keeps for another, the state of a group
// and how kernels see it. Shared by host and device code.
//
// Control window of a rank: what its peers tell it. A word has one writer: that peer, or where it says so another.
//
//   lines   [2 banks][num_ranks]                     PeerLine, one cache line pair each
//   boards  [2 banks][num_ranks][board_words]        int32: numbers that go with a line, such as row counts
//   told    [2 banks][num_ranks], lines and boards   copies of what ranks of other nodes keep for me
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/digest.hpp"
#include "switchyard/device/comm.hpp"
#include "switchyard/platform/hd.hpp"

namespace switchyard::ep {

constexpr int kMaxTopk = 64;
constexpr int kNumBanks = 2;

// A tag is (generation << kEpochBits) | epoch: it only grows, and a re-admitted rank's old tags never match again.
constexpr int kEpochBits = 40;
constexpr uint64_t kEpochMask = (uint64_t{1} << kEpochBits) - 1;

// What one peer tells one rank about one bank. Each field group is published by its tag with release.
struct PeerLine {
  uint64_t consent;       // tag: "I reached this dispatch; write my output in place" (fields below are valid)
  uint64_t token_offset;  // where in the window of that id my output tokens start
  uint64_t scale_offset;
  uint32_t token_window;  // 0: my output is not in a window; use my inbox
  uint32_t scale_window;
  uint64_t arrival;   // tag: everything I had for you is in place
  uint32_t num_rows;  // messages in your inbox (dispatch) or rows in my outbox (combine)
  uint32_t flags;     // kRowsInPlace
  uint64_t about;     // of the arrival: a digest of the operation, its shape and, for a combine, which dispatch it answers
  uint64_t done;      // tag: I consumed this bank; it may be written again
  uint64_t expelled;  // tag, line 0 only: I gave up on you in this epoch; nothing more will come from me
  uint64_t admit;     // tag, line 0 only: you were re-admitted; go on after this epoch
  uint64_t held_up;   // tag, line 0 only: I have waited long in this epoch, for somebody
  uint64_t failed;    // line 0 only: why I failed for good, as Report::failure says it; nothing more will come from me
  uint64_t rail_sent;   // rows that I put into your ring for me, in this epoch (rail_stream.hpp)
  uint64_t rail_taken;  // rows that I took from my ring for you
  // Written by whoever forwards for me on your node.
  uint64_t forwarded;  // tag: everything I had for you is in place
  uint32_t forwarded_flags;
  uint32_t reserved;
};
static_assert(sizeof(PeerLine) == 128 && offsetof(PeerLine, arrival) == 32 && offsetof(PeerLine, done) == 56);

constexpr uint32_t kRowsInPlace = 1;  // token rows went straight to your output window; the inbox has headers only

struct ControlLayout {
  static constexpr size_t kLineStride = 128;  // two cache lines: the adjacent-line prefetcher pairs them

  int32_t num_ranks;
  int32_t board_words;
  int32_t spans_nodes;  // some ranks are reached over the network only

  SWITCHYARD_HD size_t line(int bank, int peer) const { return (size_t(bank) * num_ranks + peer) * kLineStride; }
  SWITCHYARD_HD size_t board(int bank, int peer) const {
    return line(kNumBanks, 0) + (size_t(bank) * num_ranks + peer) * board_words * sizeof(int32_t);
  }
  // What I told a rank that only the network reaches: the lines it keeps for me, as they are there.
  SWITCHYARD_HD size_t told(int bank, int peer) const {
    return (board(kNumBanks, 0) + kLineStride - 1) / kLineStride * kLineStride +
           (size_t(bank) * num_ranks + peer) * kLineStride;
  }
  SWITCHYARD_HD size_t told_board(int bank, int peer) const {
    return told(kNumBanks, 0) + (board(bank, peer) - board(0, 0));
  }
  SWITCHYARD_HD size_t num_bytes() const { return spans_nodes ? told_board(kNumBanks, 0) : board(kNumBanks, 0); }
};

enum class Phase : uint32_t {  // for error messages: what a rank was waiting for
  kNone = 0,
  kBankFree = 1,       // the peer has not consumed this bank's previous epoch
  kConsent = 2,        // the peer has not reached this dispatch
  kDispatchRows = 3,   // the peer's rows have not arrived
  kCombineRows = 4,    // the peer's expert results are not there
  kReaders = 5,        // the peer still reads my expert results
  kOvertaken = 6,      // the peer went on without this rank
  kBadRouting = 7,     // topk_idx holds an id that is neither -1 nor an expert
  kBadMessage = 8,     // a peer's header or count is out of range
  kExpertFull = 9,     // duplicates in a token's top-k exceed an expert's rows
  kWindowMismatch = 10,  // the peer's tensor is in another window than mine, or in one that I don't have
  kAborted = 11,       // the peer aborted
  kOtherOperation = 12,  // the peer does something else in this epoch
  kNetwork = 13,         // the network does not reach the peer any more
  kRoute = 14,           // the peer's routing is not there
  kPlaces = 15,          // the peer has not said where my rows go
  kRailRows = 16,        // the peer's rows for ranks of this node, or its sums, have not arrived
  kRailRoom = 17,        // the peer has not taken the rows of this rank
  kOverBudget = 18,      // the peer would receive more rows than the budget
  kNoPlan = 19,          // the handle's last update did not succeed
  kStalePlan = 20,       // the mask has changed since the handle's update
  kRowsLost = 21,        // rows of the peer got lost on their way, because somebody was
};

// What went wrong, in words that only ever grow from 0.
struct Report {
  uint64_t failure;      // first failure: phase << 56 | peer << 40 | epoch (low 40 bits), 0 none
  uint64_t fault;        // first problem of an operation that was carried to its end all the same, same encoding; the stream tells it
  uint64_t async_error;  // 1 after a peer was masked because it was missing
  uint64_t num_rows;     // of a fault that is about too many
};

// Device-resident state of a group. `tag` advances with every operation, so that replayed launches advance it too.
// Kernels poll and add here, so it must be memory that is near them.
struct GroupState {
  uint64_t tag;      // of the last operation sent
  uint64_t base;     // tag at which this generation started: earlier epochs need no consent
  uint64_t adopted;  // the first tag of a generation that others started for this rank, 0 none
  Report noted;      // decides who was first; what it holds is copied to GroupView::report
};

// Tokens and sums that a rank put to other nodes so far.
struct RailTraffic {
  uint64_t num_rows;
  uint64_t num_bytes;
};

// Constant for the life of a group's windows.
struct GroupView {
  ControlLayout control_layout;
  int32_t rank;
  int32_t num_ranks;
  int32_t num_experts;
  int32_t max_tokens;
  int32_t masks_enabled;
  char* const* control;  // [num_ranks] control window of every rank; null where only the network reaches
  const NetPath* net;    // the way there
  uint32_t control_id;   // the control window as the network knows it
  const int32_t* owner;  // [num_experts] rank that holds the expert
  const int32_t* local;  // [num_experts] its index there
  GroupState* state;
  Report* report;              // in memory that the host sees; written only when something went wrong
  int32_t* mask;               // [num_ranks] 1 active, 0 masked
  const uint32_t* peer_state;  // [num_ranks] not 0: that process is gone
  const uint32_t* abort;       // not 0: the communicator was aborted
  uint64_t timeout_ns;
};

}  // namespace switchyard::ep
