// The two-bank protocol is explored to the end and found right; each deliberate fault in it is found.
#include "model/bank_protocol.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "model/platform.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

// How roles share threads: as on a CPU (one worker a rank, round-robin) or as on a GPU (each role its own).
enum class Workers { kOnePerRank, kOnePerRole };

template <int kNumSlots>
BankWorld<kNumSlots>* make_world(Arena& arena) {
  auto* world = arena.make<BankWorld<kNumSlots>>();
  for (int rank = 0; rank < kNumRanks; ++rank) {
    auto& own = world->ranks[size_t(rank)];
    for (size_t bank = 0; bank < kNumBanks; ++bank) {
      arena.name(&own.done[bank], text("done[rank ", rank, "][bank ", bank, "]"));
      for (size_t slot = 0; slot < kNumSlots; ++slot) {
        arena.name(&own.source[slot], text("source[rank ", rank, "][slot ", slot, "]"));
        arena.name(&own.inbox[bank][slot].row, text("row[rank ", rank, "][bank ", bank, "][slot ", slot, "]"));
        arena.name(&own.inbox[bank][slot].tag, text("tag[rank ", rank, "][bank ", bank, "][slot ", slot, "]"));
      }
    }
  }
  return world;
}

template <int kNumSlots, Mutant kMutant = Mutant::kNone>
Report explore_banks(uint64_t num_epochs, Workers workers, const Options& options = {}) {
  using Send = SendRole<ModelPlatform, kNumSlots, kMutant>;
  using Receive = ReceiveRole<ModelPlatform, kNumSlots, kMutant>;
  const Report report = explore(
      [=](Arena& arena) {
        auto* world = make_world<kNumSlots>(arena);
        Program program;
        for (int rank = 0; rank < kNumRanks; ++rank) {
          if (workers == Workers::kOnePerRank) {
            program.threads.push_back({text("rank", rank), [=](ModelPlatform& p) {
                                         Send send(p, *world, rank, num_epochs);
                                         Receive receive(p, *world, rank, num_epochs);
                                         run_roles(p, send, receive);
                                       }});
            continue;
          }
          program.threads.push_back({text("rank", rank, ".send"), [=](ModelPlatform& p) {
                                       Send send(p, *world, rank, num_epochs);
                                       run_roles(p, send);
                                     }});
          program.threads.push_back({text("rank", rank, ".receive"), [=](ModelPlatform& p) {
                                       Receive receive(p, *world, rank, num_epochs);
                                       run_roles(p, receive);
                                     }});
        }
        return program;
      },
      options);
  std::cout << report.num_executions << " executions, " << report.num_states << " states, depth " << report.max_depth
            << ", " << report.seconds << " s\n";
  return report;
}

template <int kNumSlots>
void expect_right(uint64_t num_epochs, Workers workers) {
  const Report report = explore_banks<kNumSlots>(num_epochs, workers);
  EXPECT_FALSE(report.violation) << report.to_string();
  EXPECT_TRUE(report.exhaustive) << report.to_string();
}

TEST(BankProtocol, IsRightWithOneWorkerPerRankAndTwoSlotsOverThreeEpochs) { expect_right<2>(3, Workers::kOnePerRank); }
TEST(BankProtocol, IsRightWithOneWorkerPerRankAndTwoSlotsOverFourEpochs) { expect_right<2>(4, Workers::kOnePerRank); }
TEST(BankProtocol, IsRightWithOneWorkerPerRoleAndOneSlotOverFourEpochs) { expect_right<1>(4, Workers::kOnePerRole); }
TEST(BankProtocol, IsRightWithOneWorkerPerRoleAndTwoSlotsOverThreeEpochs) { expect_right<2>(3, Workers::kOnePerRole); }
TEST(BankProtocol, IsRightWithOneWorkerPerRoleAndTwoSlotsOverFourEpochs) { expect_right<2>(4, Workers::kOnePerRole); }

template <Mutant kMutant>
void expect_found(std::initializer_list<Fault> allowed) {
  for (Workers workers : {Workers::kOnePerRank, Workers::kOnePerRole}) {
    const Report report = explore_banks<2, kMutant>(4, workers);
    ASSERT_TRUE(report.violation) << "the fault was not found: " << report.to_string();
    EXPECT_TRUE(std::find(allowed.begin(), allowed.end(), report.violation->fault) != allowed.end())
        << report.to_string();
    EXPECT_FALSE(report.violation->trace.empty());
  }
}

TEST(BankProtocolMutant, RelaxedPublishIsFound) { expect_found<Mutant::kRelaxedPublish>({Fault::kDataRace}); }
TEST(BankProtocolMutant, FlagBeforeDataIsFound) {
  expect_found<Mutant::kFlagBeforeData>({Fault::kDataRace, Fault::kAssertion});
}
TEST(BankProtocolMutant, NoDrainIsFound) { expect_found<Mutant::kNoDrain>({Fault::kDataRace}); }
TEST(BankProtocolMutant, NoWaitForDoneIsFound) {
  expect_found<Mutant::kNoWaitForDone>({Fault::kDataRace, Fault::kDeadlock});
}
TEST(BankProtocolMutant, ReuseTooEarlyIsFound) {
  expect_found<Mutant::kReuseTooEarly>({Fault::kDataRace, Fault::kDeadlock});
}
TEST(BankProtocolMutant, RelaxedWaitIsFound) { expect_found<Mutant::kRelaxedWait>({Fault::kDataRace}); }
TEST(BankProtocolMutant, WrongBankIsFound) { expect_found<Mutant::kWrongBank>({Fault::kDataRace, Fault::kAssertion}); }
TEST(BankProtocolMutant, WrongBankOnSendIsFound) {
  expect_found<Mutant::kWrongBankOnSend>({Fault::kDataRace, Fault::kAssertion, Fault::kDeadlock});
}
TEST(BankProtocolMutant, SkippedTagCheckIsFound) {
  expect_found<Mutant::kSkippedTagCheck>({Fault::kDataRace, Fault::kAssertion});
}
TEST(BankProtocolMutant, RelaxedReceiveIsFound) { expect_found<Mutant::kRelaxedReceive>({Fault::kDataRace}); }
TEST(BankProtocolMutant, DoneBeforeReadIsFound) { expect_found<Mutant::kDoneBeforeRead>({Fault::kDataRace}); }
TEST(BankProtocolMutant, DoneAfterFirstSlotIsFound) { expect_found<Mutant::kDoneAfterFirstSlot>({Fault::kDataRace}); }
TEST(BankProtocolMutant, RelaxedDoneIsFound) { expect_found<Mutant::kRelaxedDone>({Fault::kDataRace}); }
TEST(BankProtocolMutant, LostDoneIsFoundAsADeadlock) { expect_found<Mutant::kLostDone>({Fault::kDeadlock}); }

}  // namespace
}  // namespace switchyard::model
