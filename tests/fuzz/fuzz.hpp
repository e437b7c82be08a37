// What the fuzzers share: an input that is read piece by piece, a connection that is fed from it, and a check that ends
// the run (libFuzzer keeps the input).
#pragma once
#include <sodium.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "comm/keyed_hash.hpp"

namespace switchyard::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

class Input {
 public:
  Input(const uint8_t* data, size_t num_bytes) : rest_(reinterpret_cast<const std::byte*>(data), num_bytes) {}

  bool empty() const { return rest_.empty(); }
  uint8_t byte() { return rest_.empty() ? 0 : uint8_t(take(1)[0]); }
  std::span<const std::byte> take(size_t num_bytes) {
    const auto piece = rest_.first(std::min(num_bytes, rest_.size()));
    rest_ = rest_.subspan(piece.size());
    return piece;
  }
  std::span<const std::byte> rest() { return take(rest_.size()); }
  std::string words() { return as_words(rest()); }
  // Up to the next line end, which is taken away.
  std::string line() {
    size_t length = 0;
    while (length < rest_.size() && rest_[length] != std::byte('\n')) length++;
    const std::string words = as_words(take(length));
    take(1);
    return words;
  }

 private:
  static std::string as_words(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> rest_;
};

struct SocketPair {
  Fd near, far;
  SocketPair() {
    int fds[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
    near.reset(fds[0]);
    far.reset(fds[1]);
  }
};

inline void feed(const Fd& fd, std::span<const std::byte> bytes) {
  if (!bytes.empty())
    require(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size()), "send");
}

// Random bytes are zeroes: the same input takes the same path, and a fuzzer can know a nonce.
inline void be_deterministic() {
  static randombytes_implementation zeroes = {
      .implementation_name = [] { return "zeroes"; },
      .random = [] { return uint32_t(0); },
      .stir = nullptr,
      .uniform = nullptr,
      .buf = [](void* buffer, size_t num_bytes) { sodium_memzero(buffer, num_bytes); },
      .close = nullptr,
  };
  randombytes_set_implementation(&zeroes);
  require(crypto_ready().ok(), "libsodium");
  set_log_sink([](LogLevel, const char*) {});
}

}  // namespace switchyard::fuzz
