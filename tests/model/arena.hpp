// The shared memory of a modelled program. Objects lie at fixed places with guard words between them, so that
//   - every execution starts from the same bytes at the same addresses: the program is built once, then snapshot() and
//     restore() rewind its memory;
//   - an address outside every object, or a range that leaves its object, is recognised as a fault.
// Words are shared unless set_private(), set_constant() or set_mixed() says otherwise. That is a promise about the
// program which the execution checks, and it makes the search smaller: what only one thread touches, or nobody writes,
// needs no interleaving.
//
// THREADS    one operating-system thread.
// OWNERSHIP  owns its objects, which need no destructor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace switchyard::model {

class Arena {
 public:
  static constexpr size_t kWordBytes = 8;
  static constexpr size_t kCapacityBytes = 128 * 1024;

  Arena()
      : words_(new Block[kCapacityBytes / sizeof(Block)]()),
        object_of_word_(kCapacityBytes / kWordBytes, 0),
        use_of_word_(kCapacityBytes / kWordBytes, WordUse{Use::kShared, 0}) {}

  // A zeroed object, or one made from arguments. nullptr when the arena is full.
  template <class T, class... Arguments>
  T* make(Arguments&&... arguments) {
    void* const place = allocate<T>(1);
    return place == nullptr ? nullptr : new (place) T{std::forward<Arguments>(arguments)...};
  }
  template <class T>
  T* make_array(size_t num_elements) {
    T* const first = static_cast<T*>(allocate<T>(num_elements));
    for (size_t i = 0; first != nullptr && i < num_elements; ++i) new (first + i) T{};
    return first;
  }

  // Traces call this address, and what follows it up to the next named one, by this text.
  void name(const void* address, std::string text) { names_[offset_of(address)] = std::move(text); }
  std::string describe(const void* address) const;

  // How a word may be used.
  enum class Use : uint8_t {
    kShared,    // atomics by anyone, or plain data by anyone in an order that happens-before fixes
    kConstant,  // nobody writes it
    kMixed,     // atomics, and plain accesses that are ordered with every store before them
    kPrivate,   // one thread touches it, as it likes
  };
  // REQUIRES of all three: the range lies in one object. Whole words are marked.
  void set_constant(const void* address, size_t num_bytes) { mark(address, num_bytes, {Use::kConstant, 0}); }
  void set_mixed(const void* address, size_t num_bytes) { mark(address, num_bytes, {Use::kMixed, 0}); }
  void set_private(const void* address, size_t num_bytes, int thread) {
    mark(address, num_bytes, {Use::kPrivate, uint8_t(thread)});
  }
  struct WordUse {
    Use use;
    uint8_t owner;  // kPrivate
  };
  // REQUIRES contains(address, 1).
  WordUse use_of(const void* address) const { return use_of_word_[word_of(address)]; }

  // Does [address, address + bytes) lie inside one object?
  bool contains(const void* address, size_t bytes) const;
  // REQUIRES contains(address, 1).
  size_t word_of(const void* address) const { return offset_of(address) / kWordBytes; }
  const std::byte* word(size_t word_idx) const { return base() + word_idx * kWordBytes; }
  std::byte* word(size_t word_idx) { return base() + word_idx * kWordBytes; }

  void snapshot() { snapshot_.assign(base(), base() + used_bytes_); }
  void restore() { std::memcpy(base(), snapshot_.data(), snapshot_.size()); }

 private:
  struct alignas(128) Block {
    std::byte bytes[128];
  };
  struct Object {
    size_t first_byte, end_byte;
  };

  template <class T>
  void* allocate(size_t num_elements) {
    static_assert(std::is_trivially_destructible_v<T>, "executions are abandoned, not unwound");
    static_assert(alignof(T) <= alignof(Block));
    return allocate_bytes(num_elements * sizeof(T), alignof(T));
  }
  void* allocate_bytes(size_t num_bytes, size_t alignment);
  void mark(const void* address, size_t num_bytes, WordUse use);

  std::byte* base() { return words_[0].bytes; }
  const std::byte* base() const { return words_[0].bytes; }
  size_t offset_of(const void* address) const {
    return size_t(reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(base()));
  }

  std::unique_ptr<Block[]> words_;
  std::vector<uint16_t> object_of_word_;  // 0: no object; else 1 + index into objects_
  std::vector<WordUse> use_of_word_;
  std::vector<Object> objects_;
  std::map<size_t, std::string> names_;
  std::vector<std::byte> snapshot_;
  size_t used_bytes_ = 0;
};

}  // namespace switchyard::model
