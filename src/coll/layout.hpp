// Where things are in the window of the collectives, and the words that a rank keeps for itself between operations.
//
//   stage    [bank]                        what I have for the ranks of my node: one piece, or a slice per rank
//   partial  [bank][rank]                  my node's sum of a slice of that rank's share, on its way there
//   result   [bank]                        my share of an all-reduce, for all
//   shares   [node][sender][message]       what senders of other nodes sent my node through me
//   partials [node][message]               what other nodes' sums of my share are
//   pairs    [sender][message]             what was sent to me alone (pairs.hpp)
//   departed [receiver][message]           what I sent to one rank of another node
//   greeting [bank][sender]                which operation a rank of my node is in (greetings.hpp)
//   far greeting [turn][sender], and       the same of ranks of other nodes
//   departed greeting [turn][receiver]     mine on its way to them
//
// A bank is written in one step of the pipeline, read in the next and free in the one after: two are enough
// (pipeline.hpp). A receiver has room for kDepth messages of each sender, who waits for word that the oldest was read.
#pragma once
#include <cstdint>

#include "switchyard/device/comm.hpp"

namespace switchyard::coll {

constexpr int kNumBanks = 2;
constexpr int kDepth = 4;

// Two kinds of messages go along the rails, each in a context of its own.
enum class Rail : int32_t { kShares = 0, kPartials = 1 };
constexpr int kNumRails = 2;
constexpr int kPairsContext = kNumRails;  // pairs have one, too
constexpr int kGreetingsContext = kPairsContext + 1;
constexpr int kNumContexts = kGreetingsContext + 1;

struct Layout {
  static constexpr uint64_t kLine = 64;

  int32_t num_ranks;
  int32_t num_nodes;
  int32_t max_senders;   // ranks of one node that have the same receiver on another
  uint64_t stage_bytes;  // of one bank, and of one message of shares
  uint64_t pair_bytes;   // of one message of a pair, behind a line that says how much is to come

  SWITCHYARD_HD uint64_t slice_bytes() const { return stage_bytes / uint64_t(num_ranks) / kLine * kLine; }

  SWITCHYARD_HD uint64_t stage(int bank) const { return uint64_t(bank) * stage_bytes; }
  SWITCHYARD_HD uint64_t stage_slice(int bank, int rank) const { return stage(bank) + uint64_t(rank) * slice_bytes(); }
  SWITCHYARD_HD uint64_t result(int bank) const { return stage(kNumBanks) + uint64_t(bank) * slice_bytes(); }
  SWITCHYARD_HD uint64_t partial(int bank, int rank) const {
    return result(kNumBanks) + uint64_t(bank * num_ranks + rank) * slice_bytes();
  }
  SWITCHYARD_HD uint64_t partials_inbox(int node, uint64_t message) const {
    return partial(kNumBanks, 0) + (uint64_t(node) * kDepth + message % kDepth) * slice_bytes();
  }
  SWITCHYARD_HD uint64_t shares_inbox(int node, int sender, uint64_t message) const {
    return partials_inbox(num_nodes, 0) +
           (uint64_t(node * max_senders + sender) * kDepth + message % kDepth) * stage_bytes;
  }
  SWITCHYARD_HD uint64_t pair_inbox(int sender, uint64_t message) const {
    return (num_nodes == 1 ? partial(0, 0) : shares_inbox(num_nodes, 0, 0)) +
           (uint64_t(sender) * kDepth + message % kDepth) * (kLine + pair_bytes);
  }
  SWITCHYARD_HD uint64_t pair_departure(int receiver, uint64_t message) const {
    return pair_inbox(num_ranks, 0) + (uint64_t(receiver) * kDepth + message % kDepth) * (kLine + pair_bytes);
  }
  SWITCHYARD_HD uint64_t greeting(int bank, int sender) const {
    return (num_nodes == 1 ? pair_inbox(num_ranks, 0) : pair_departure(num_ranks, 0)) + uint64_t(bank * num_ranks + sender) * kLine;
  }
  SWITCHYARD_HD uint64_t far_greeting(int turn, int sender) const {
    return greeting(kNumBanks, 0) + uint64_t(turn * num_ranks + sender) * kLine;
  }
  SWITCHYARD_HD uint64_t departed_greeting(int turn, int receiver) const {
    return far_greeting(kNumBanks, 0) + uint64_t(turn * num_ranks + receiver) * kLine;
  }
  SWITCHYARD_HD uint64_t num_bytes() const { return num_nodes == 1 ? greeting(kNumBanks, 0) : departed_greeting(kNumBanks, 0); }

  // Words of mine. Messages are counted, for ever, by rail and rank.
  enum Count : int32_t {
    kSent = 0,     // to that rank
    kAwaited = 1,  // from that rank to me
    kRead = 2,     // from that rank to my node, by whichever of its ranks
    kNumCounts = 3
  };
  SWITCHYARD_HD uint64_t epoch_word() const { return 0; }  // how often the node has met
  SWITCHYARD_HD uint64_t turn_word() const { return 1; }   // how often all ranks have greeted each other
  SWITCHYARD_HD uint64_t bytes_word() const { return 2; }  // put to other nodes
  // Puts whose source is in this bank.
  SWITCHYARD_HD uint64_t num_puts_word(Rail rail, int bank) const { return 3 + uint64_t(int(rail) * kNumBanks + bank); }
  SWITCHYARD_HD uint64_t count_word(Rail rail, Count count, int rank) const {
    return num_puts_word(Rail(kNumRails), 0) + uint64_t((int(rail) * kNumCounts + count) * num_ranks + rank);
  }
  SWITCHYARD_HD uint64_t pair_word(Count count, int rank) const {
    return count_word(Rail(kNumRails), kSent, 0) + uint64_t(count * num_ranks + rank);
  }
  SWITCHYARD_HD uint64_t num_words() const { return pair_word(kRead, 0); }

  // Signals of a context: messages that came from a rank, and messages of mine that it has read.
  SWITCHYARD_HD int arrival_signal(int sender) const { return sender; }
  SWITCHYARD_HD int room_signal(int receiver) const { return num_ranks + receiver; }
  SWITCHYARD_HD int num_signals() const { return 2 * num_ranks; }
};

// Everything that a kernel needs to know.
struct View {
  DeviceComm comm;
  WindowView window;
  Layout layout;
  uint64_t* words;       // Layout's
  const char** sources;  // [num_ranks] to list what is reduced
  const float* ones;     // [num_ranks] its weights
};

}  // namespace switchyard::coll
