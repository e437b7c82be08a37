#include "model/arena.hpp"

#include "base/checked.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {

void* Arena::allocate_bytes(size_t num_bytes, size_t alignment) {
  constexpr size_t kGuardBytes = 2 * kWordBytes;
  const size_t first = round_up(used_bytes_ + kGuardBytes, alignment < kWordBytes ? kWordBytes : alignment);
  if (!range_fits(first, num_bytes + kGuardBytes, kCapacityBytes)) return nullptr;
  objects_.push_back({first, first + num_bytes});
  for (size_t word_idx = first / kWordBytes; word_idx * kWordBytes < first + num_bytes; ++word_idx) {
    object_of_word_[word_idx] = uint16_t(objects_.size());
  }
  used_bytes_ = round_up(first + num_bytes, kWordBytes);
  return base() + first;
}

void Arena::mark(const void* address, size_t num_bytes, WordUse use) {
  const size_t end = offset_of(address) + num_bytes;
  for (size_t word_idx = word_of(address); word_idx * kWordBytes < end; ++word_idx) use_of_word_[word_idx] = use;
}

bool Arena::contains(const void* address, size_t bytes) const {
  const size_t offset = offset_of(address);
  if (offset >= used_bytes_ || object_of_word_[offset / kWordBytes] == 0) return false;
  const Object& object = objects_[object_of_word_[offset / kWordBytes] - 1u];
  return offset >= object.first_byte && range_fits(offset, bytes, object.end_byte);
}

std::string Arena::describe(const void* address) const {
  const size_t offset = offset_of(address);
  if (offset >= kCapacityBytes) return text("an address outside the arena");
  auto next = names_.upper_bound(offset);
  if (next == names_.begin()) return text("arena+", offset);
  --next;
  return next->first == offset ? next->second : text(next->second, "+", offset - next->first);
}

}  // namespace switchyard::model
