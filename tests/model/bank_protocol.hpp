// The smallest protocol of the library's shape, as a first client of the explorer: two ranks, two banks by parity of
// the epoch. A rank pushes one row per slot into the peer's bank and publishes each slot's tag = epoch; the peer reads
// the rows and publishes done[bank] = epoch; the sender of epoch e first waits for done[bank] >= e - 2, which is when
// that bank was last used.
//
// Deliberate faults are template parameters: the explorer is worth something only if it finds each of them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace switchyard::model {

enum class Mutant {
  kNone,
  kRelaxedPublish,      // tag stored relaxed
  kFlagBeforeData,      // tag stored before the row is pushed
  kNoDrain,             // tag stored while the row may still be on its way
  kNoWaitForDone,       // bank reused without looking
  kReuseTooEarly,       // waits for the use before the last one
  kRelaxedWait,         // done loaded relaxed
  kWrongBank,           // receiver reads the other bank's row
  kWrongBankOnSend,     // sender waits for one bank and writes the other
  kSkippedTagCheck,     // receiver takes any tag that is not zero
  kRelaxedReceive,      // tag loaded relaxed
  kDoneBeforeRead,      // done stored before the rows are read
  kDoneAfterFirstSlot,  // done stored when one of the slots is read
  kRelaxedDone,         // done stored relaxed
  kLostDone,            // done of one epoch never stored: the sender sleeps for ever
};

constexpr int kNumRanks = 2;
constexpr int kNumBanks = 2;

struct Row {
  uint64_t epoch, slot;
};

template <int kNumSlots>
struct BankWorld {
  struct Slot {
    Row row;
    uint64_t tag;
  };
  struct Rank {
    std::array<Row, kNumSlots> source;
    std::array<std::array<Slot, kNumSlots>, kNumBanks> inbox;
    std::array<uint64_t, kNumBanks> done;  // written by the peer
  };
  std::array<Rank, kNumRanks> ranks;
};

template <class P, int kNumSlots, Mutant kMutant>
class SendRole {
 public:
  SendRole(P& platform, BankWorld<kNumSlots>& world, int rank, uint64_t num_epochs)
      : platform_(&platform),
        own_(&world.ranks[size_t(rank)]),
        peer_(&world.ranks[size_t(1 - rank)]),
        num_epochs_(num_epochs) {}

  bool done() const { return epoch_ > num_epochs_; }

  bool step() {
    if (!bank_is_free()) return false;
    const size_t bank = (epoch_ + (kMutant == Mutant::kWrongBankOnSend ? 1 : 0)) % kNumBanks;
    for (size_t slot = 0; slot < kNumSlots; ++slot) send(peer_->inbox[bank][slot], slot);
    ++epoch_;
    return true;
  }

 private:
  using World = BankWorld<kNumSlots>;

  bool bank_is_free() {
    if constexpr (kMutant == Mutant::kNoWaitForDone) return true;
    const uint64_t* done = &own_->done[epoch_ % kNumBanks];
    // Acquire; pairs with the release of done in ReceiveRole::publish_done(): its reads of the bank are over.
    const uint64_t seen =
        kMutant == Mutant::kRelaxedWait ? platform_->load_relaxed(done) : platform_->load_acquire(done);
    return seen + (kMutant == Mutant::kReuseTooEarly ? 4 : 2) >= epoch_;
  }

  void send(typename World::Slot& slot, size_t slot_idx) {
    if constexpr (kMutant == Mutant::kFlagBeforeData) platform_->store_release(&slot.tag, epoch_);
    Row* source = &own_->source[slot_idx];
    platform_->write(source, Row{epoch_, slot_idx});
    platform_->push(source, &slot.row, sizeof(Row));
    if constexpr (kMutant != Mutant::kNoDrain) platform_->drain();
    if constexpr (kMutant == Mutant::kFlagBeforeData) return;
    if constexpr (kMutant == Mutant::kRelaxedPublish) return platform_->store_relaxed(&slot.tag, epoch_);
    platform_->store_release(&slot.tag, epoch_);  // release; pairs with the acquire in ReceiveRole::step()
    if constexpr (kMutant == Mutant::kNoDrain) platform_->drain();
  }

  P* platform_;
  typename World::Rank* own_;
  typename World::Rank* peer_;
  uint64_t num_epochs_;
  uint64_t epoch_ = 1;
};

template <class P, int kNumSlots, Mutant kMutant>
class ReceiveRole {
 public:
  ReceiveRole(P& platform, BankWorld<kNumSlots>& world, int rank, uint64_t num_epochs)
      : platform_(&platform),
        own_(&world.ranks[size_t(rank)]),
        peer_(&world.ranks[size_t(1 - rank)]),
        num_epochs_(num_epochs) {}

  bool done() const { return epoch_ > num_epochs_; }

  bool step() {
    auto& slot = own_->inbox[epoch_ % kNumBanks][slot_idx_];
    // Acquire; pairs with the release of the tag in SendRole::send().
    const uint64_t tag =
        kMutant == Mutant::kRelaxedReceive ? platform_->load_relaxed(&slot.tag) : platform_->load_acquire(&slot.tag);
    if (kMutant == Mutant::kSkippedTagCheck ? tag == 0 : tag != epoch_) return false;
    const bool is_last = slot_idx_ + 1 == kNumSlots;
    if (kMutant == Mutant::kDoneBeforeRead && is_last) publish_done();
    constexpr uint64_t kBankShift = kMutant == Mutant::kWrongBank ? 1 : 0;
    const Row row = platform_->read(&own_->inbox[(epoch_ + kBankShift) % kNumBanks][slot_idx_].row);
    platform_->assert_that(row.epoch == epoch_ && row.slot == slot_idx_, "the row is of this epoch and slot");
    if (kMutant == Mutant::kDoneAfterFirstSlot && slot_idx_ == 0) publish_done();
    if (kMutant != Mutant::kDoneBeforeRead && kMutant != Mutant::kDoneAfterFirstSlot && is_last) publish_done();
    slot_idx_ = is_last ? 0 : slot_idx_ + 1;
    if (is_last) ++epoch_;
    return true;
  }

 private:
  void publish_done() {
    if (kMutant == Mutant::kLostDone && epoch_ == 1) return;
    uint64_t* done = &peer_->done[epoch_ % kNumBanks];
    if constexpr (kMutant == Mutant::kRelaxedDone) return platform_->store_relaxed(done, epoch_);
    platform_->store_release(done, epoch_);  // release; pairs with the acquire in SendRole::bank_is_free()
  }

  P* platform_;
  typename BankWorld<kNumSlots>::Rank* own_;
  typename BankWorld<kNumSlots>::Rank* peer_;
  uint64_t num_epochs_;
  uint64_t epoch_ = 1;
  size_t slot_idx_ = 0;
};

}  // namespace switchyard::model
