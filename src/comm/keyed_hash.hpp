// The few cryptographic primitives of the bootstrap, over libsodium: random bytes, one keyed hash (BLAKE2b), and a
// comparison in constant time.
//
// THREADS  any; crypto_ready() may be called again and again.
#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "switchyard/status.hpp"

namespace switchyard {

using SecretKey = std::array<std::byte, 32>;
using JobId = std::array<std::byte, 16>;
using Nonce = std::array<std::byte, 32>;
using Digest = std::array<std::byte, 32>;

// What the ranks of one job share and strangers don't.
struct JobSecret {
  SecretKey key{};
  JobId job_id{};
};

// Must have succeeded once in this process before anything else of this file is used.
Status crypto_ready();

void fill_random(std::span<std::byte> out);
template <class Integer>
Integer random_bits() {
  Integer bits;
  fill_random(std::as_writable_bytes(std::span(&bits, 1)));
  return bits;
}

// Each part enters with its length, so that no two lists of parts hash alike; the label keeps uses apart.
Digest keyed_hash(const SecretKey& key, std::string_view label,
                  std::initializer_list<std::span<const std::byte>> parts);

Digest plain_hash(std::span<const std::byte> bytes);

// Takes as long for equal as for different bytes.
bool secret_equal(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace switchyard
