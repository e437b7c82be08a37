#include "comm/keyed_hash.hpp"

#include <sodium.h>

#include <cstdint>

namespace switchyard {
namespace {

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

void add_part(crypto_generichash_state& state, std::span<const std::byte> part) {
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = static_cast<unsigned char>(uint64_t(part.size()) >> (8 * i));
  crypto_generichash_update(&state, length, sizeof length);
  if (!part.empty()) crypto_generichash_update(&state, raw(part), part.size());
}

}  // namespace

Status crypto_ready() {
  if (sodium_init() < 0) return Status::system_error("libsodium found no source of random bytes");
  return {};
}

void fill_random(std::span<std::byte> out) { randombytes_buf(out.data(), out.size()); }

Digest keyed_hash(const SecretKey& key, std::string_view label,
                  std::initializer_list<std::span<const std::byte>> parts) {
  crypto_generichash_state state;
  Digest digest;
  crypto_generichash_init(&state, raw(key), key.size(), digest.size());
  add_part(state, std::as_bytes(std::span(label)));
  for (const auto part : parts) add_part(state, part);
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(digest.data()), digest.size());
  return digest;
}

Digest plain_hash(std::span<const std::byte> bytes) {
  Digest digest;
  crypto_generichash(reinterpret_cast<unsigned char*>(digest.data()), digest.size(), raw(bytes), bytes.size(), nullptr,
                     0);
  return digest;
}

bool secret_equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace switchyard
