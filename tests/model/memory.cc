#include "model/memory.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace switchyard::model {
namespace {
constexpr size_t kNumWords = Arena::kCapacityBytes / Arena::kWordBytes;
constexpr size_t kCellBytes = 4;
}

Memory::Memory(Arena& arena)
    : arena_(arena),
      location_of_cell_(Arena::kCapacityBytes / kCellBytes, -1),
      accesses_(kNumWords),
      is_plain_(kNumWords),
      is_atomic_(kNumWords) {}

void Memory::begin(int num_threads) {
  num_threads_ = num_threads;
  views_.assign(size_t(kMaxViews), View{});
  for (size_t t = 0; t < views_.size(); ++t) views_[t].clock[t] = 1;
  carried_views_.clear();
  for (Location& location : locations_) reset_location(location);
  for (uint32_t word_idx : plain_words_) {
    accesses_[word_idx].clear();
    is_plain_[word_idx] = false;
  }
  plain_words_.clear();
  private_hash_ = 0;
}

void Memory::reset_location(Location& location) {
  uint64_t initial = 0;
  std::memcpy(&initial, location.address, location.num_bytes);
  location.stores.assign(1, Store{initial, 0, false, false, 0});
  location.position.assign(1, 0);
  is_atomic_[location.word_idx] = false;
}

std::optional<int> Memory::location(const void* address, size_t num_bytes) {
  const size_t word_idx = arena_.word_of(address);
  if (is_plain_[word_idx]) return std::nullopt;
  std::byte* const bytes = arena_.word(word_idx) + reinterpret_cast<uintptr_t>(address) % Arena::kWordBytes;
  const size_t first_cell = size_t(bytes - arena_.word(0)) / kCellBytes;
  for (size_t cell = first_cell; cell < first_cell + num_bytes / kCellBytes; ++cell) {
    if (location_of_cell_[cell] >= 0) continue;
    if (cell != first_cell || locations_.size() == size_t(kMaxLocations)) return std::nullopt;
    for (size_t c = 0; c < num_bytes / kCellBytes; ++c) location_of_cell_[first_cell + c] = int16_t(locations_.size());
    locations_.push_back({bytes, uint8_t(num_bytes), word_idx, {}, {}});
    reset_location(locations_.back());
  }
  const Location& found = locations_[size_t(location_of_cell_[first_cell])];
  if (found.address != bytes || found.num_bytes != num_bytes) return std::nullopt;
  is_atomic_[word_idx] = true;
  return location_of_cell_[first_cell];
}

void Memory::choices(int thread, int location, bool is_write, std::vector<uint16_t>& distances) const {
  const std::vector<Store>& stores = locations_[size_t(location)].stores;
  const size_t seen = position(size_t(location), views_[size_t(thread)]);
  distances.clear();
  for (size_t place = stores.size(); place-- > seen;) {  // newest first: the fault-free run comes first
    const bool taken = place + 1 < stores.size() && stores[place + 1].is_rmw;
    if (!(is_write && taken)) distances.push_back(uint16_t(place - seen));
  }
}

bool Memory::has_unseen(int thread, int location) const {
  return position(size_t(location), views_[size_t(thread)]) + 1 < locations_[size_t(location)].stores.size();
}

void Memory::join(View& into, const View& from) const {
  for (size_t l = 0; l < locations_.size(); ++l) {
    if (position(l, from) > position(l, into)) into.seen[l] = from.seen[l];
  }
  for (size_t agent = 0; agent < into.clock.size(); ++agent) {
    into.clock[agent] = std::max(into.clock[agent], from.clock[agent]);
  }
}

uint64_t Memory::load(int thread, int location, uint16_t distance, Order order) {
  View& view = views_[size_t(thread)];
  const Store& store = locations_[size_t(location)].stores[position(size_t(location), view) + distance];
  view.seen[size_t(location)] = store.index;
  if (acquires(order) && store.carries_view) join(view, carried_views_[store.view_idx]);
  return store.value;
}

void Memory::store(int thread, int location, uint16_t distance, uint64_t value, Order order) {
  const size_t place = position(size_t(location), views_[size_t(thread)]) + distance;
  insert_after(thread, location, place, value, false, order);
}

void Memory::insert_after(int thread, int location, size_t place, uint64_t value, bool is_rmw, Order order) {
  Location& target = locations_[size_t(location)];
  const Store before = target.stores[place];
  Store store{value, uint16_t(target.position.size()), is_rmw, releases(order) || (is_rmw && before.carries_view), 0};
  target.position.push_back(uint16_t(place + 1));
  target.stores.insert(target.stores.begin() + ptrdiff_t(place) + 1, store);
  for (size_t p = place + 2; p < target.stores.size(); ++p) target.position[target.stores[p].index] = uint16_t(p);

  View& view = views_[size_t(thread)];
  view.seen[size_t(location)] = store.index;
  if (store.carries_view) {
    // A releasing read-modify-write acquires too, so that the view already holds what it continues.
    const View carried = releases(order) ? view : carried_views_[before.view_idx];
    target.stores[place + 1].view_idx = uint32_t(carried_views_.size());
    carried_views_.push_back(carried);
  }
  // What this thread does from now on is not covered by the release.
  if (releases(order)) ++view.clock[size_t(thread)];

  appended_ = place + 2 == target.stores.size();
  if (appended_) std::memcpy(target.address, &value, target.num_bytes);
}

// The hash is a sum over words, so that only the changed ones need be visited. What is never changed counts nothing.
void Memory::write_private(void* address, const void* source, size_t num_bytes) {
  const size_t first = arena_.word_of(address);
  const size_t last = arena_.word_of(static_cast<const std::byte*>(address) + num_bytes - 1);
  const auto sum = [&] {
    uint64_t total = 0;
    for (size_t word_idx = first; word_idx <= last; ++word_idx) {
      uint64_t content;
      std::memcpy(&content, arena_.word(word_idx), sizeof content);
      total += mix(mix(4, word_idx), content);
    }
    return total;
  };
  private_hash_ -= sum();
  std::memcpy(address, source, num_bytes);
  private_hash_ += sum();
}

void Memory::hand_over(int thread, int courier) {
  View& view = views_[size_t(thread)];
  join(views_[size_t(courier_agent(courier))], view);
  ++view.clock[size_t(thread)];  // what follows is not covered
}

bool Memory::holds_atomics(const void* address, size_t num_bytes) const {
  if (num_bytes == 0) return false;
  const size_t last = arena_.word_of(static_cast<const std::byte*>(address) + num_bytes - 1);
  for (size_t word_idx = arena_.word_of(address); word_idx <= last; ++word_idx) {
    if (is_atomic_[word_idx]) return true;
  }
  return false;
}

std::optional<PlainAccess> Memory::access(int thread, bool by_pipe, bool is_write, const void* address,
                                          size_t num_bytes, uint32_t operation_idx) {
  const View& view = views_[size_t(thread)];
  const int agent = by_pipe ? pipe_of(thread) : thread;
  // A thread's clock says what it has done; its view's clock of the pipe, what the pipe has finished.
  const uint16_t clock = uint16_t(view.clock[size_t(agent)] + (by_pipe ? 1 : 0));
  auto bytes = reinterpret_cast<uintptr_t>(address);
  std::optional<PlainAccess> race;
  while (num_bytes > 0 && !race) {
    const size_t shift = bytes % Arena::kWordBytes;
    const size_t count = std::min(num_bytes, Arena::kWordBytes - shift);
    const auto byte_mask = uint8_t(((1u << count) - 1u) << shift);
    race = access_word(arena_.word_of(reinterpret_cast<const void*>(bytes)),
                       {uint8_t(agent), byte_mask, is_write, clock, operation_idx}, view);
    bytes += count;
    num_bytes -= count;
  }
  return race;
}

std::optional<PlainAccess> Memory::access_word(size_t word_idx, const PlainAccess& access, const View& view) {
  if (!is_plain_[word_idx]) {
    is_plain_[word_idx] = true;
    plain_words_.push_back(uint32_t(word_idx));
  }
  PlainAccess* same = nullptr;
  for (PlainAccess& earlier : accesses_[word_idx]) {
    const bool conflicts = (earlier.byte_mask & access.byte_mask) != 0 && (earlier.is_write || access.is_write);
    if (conflicts && earlier.clock > view.clock[earlier.agent]) return earlier;
    if (earlier.agent == access.agent && earlier.byte_mask == access.byte_mask && earlier.is_write == access.is_write) {
      same = &earlier;
    }
  }
  if (same != nullptr) {
    *same = access;
  } else {
    accesses_[word_idx].push_back(access);
  }
  return std::nullopt;
}

Memory::Floor Memory::floor_of(const std::bitset<kMaxThreads>& live) const {
  Floor floor;
  floor.seen.fill(std::numeric_limits<uint16_t>::max());
  floor.clock.fill(std::numeric_limits<uint16_t>::max());
  for (size_t t = 0; t < size_t(num_threads_); ++t) {
    if (!live[t]) continue;
    for (size_t l = 0; l < locations_.size(); ++l) {
      floor.seen[l] = std::min(floor.seen[l], uint16_t(position(l, views_[t])));
    }
    for (size_t agent = 0; agent < floor.clock.size(); ++agent) {
      floor.clock[agent] = std::min(floor.clock[agent], views_[t].clock[agent]);
    }
  }
  return floor;
}

uint64_t Memory::hash_view(const View& view, const Floor& floor) const {
  uint64_t hash = 1;
  for (size_t l = 0; l < locations_.size(); ++l) {
    const size_t place = position(l, view);
    if (place > floor.seen[l]) hash = mix(hash, l << 16 | (place - floor.seen[l]));
  }
  for (size_t agent = 0; agent < view.clock.size(); ++agent) {
    if (view.clock[agent] > floor.clock[agent]) hash = mix(hash, 1u << 31 | agent << 16 | view.clock[agent]);
  }
  return hash;
}

uint64_t Memory::hash_plain(const Floor& floor) const {
  uint64_t sum = 0;  // order of first access differs between paths, so words and accesses are combined by addition
  for (uint32_t word_idx : plain_words_) {
    uint64_t content;
    std::memcpy(&content, arena_.word(word_idx), sizeof content);
    sum += mix(mix(2, word_idx), content);
    for (const PlainAccess& access : accesses_[word_idx]) {
      if (access.clock <= floor.clock[access.agent]) continue;
      const uint64_t packed = uint64_t(access.clock) << 24 | uint64_t(access.agent) << 16 |
                              uint64_t(access.is_write) << 8 | access.byte_mask;
      sum += mix(mix(3, word_idx), packed);
    }
  }
  return sum;
}

uint64_t Memory::fingerprint(const std::bitset<kMaxThreads>& live) const {
  const Floor floor = floor_of(live);
  uint64_t hash = mix(hash_plain(floor), private_hash_);
  for (size_t l = 0; l < locations_.size(); ++l) {
    const std::vector<Store>& stores = locations_[l].stores;
    const size_t first = std::min<size_t>(floor.seen[l], stores.size() - 1);
    if (first + 1 == stores.size() && stores.size() == 1) continue;  // untouched, as in every other state
    hash = mix(hash, l << 16 | (stores.size() - first));
    for (size_t place = first; place < stores.size(); ++place) {
      hash = mix(hash, stores[place].value);
      hash = mix(hash, stores[place].is_rmw ? 2u : 1u);
      if (stores[place].carries_view) hash = mix(hash, hash_view(carried_views_[stores[place].view_idx], floor));
    }
  }
  for (size_t t = 0; t < size_t(num_threads_); ++t) {
    if (live[t]) hash = mix(hash, hash_view(views_[t], floor));
  }
  return hash;
}

}  // namespace switchyard::model
