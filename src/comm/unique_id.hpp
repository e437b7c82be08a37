// UniqueId: what one process creates and every rank of a job must be given, by any means, to find the others. It is a
// plain 128-byte value, so that it fits where programs carry an ncclUniqueId around.
//
// It contains the job key: whoever can read it can join the job. Files that hold it are 0600, and it is never logged.
//
// THREADS    values.
// ERRORS     ids come from the outside (a broadcast, a file, the environment): validate() before use.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "comm/keyed_hash.hpp"
#include "comm/tcp.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

struct UniqueId {
  static constexpr uint32_t kMagic = 0x31445953;  // "SYD1"
  static constexpr uint16_t kVersion = 1;

  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t family = 0;  // an IpFamily
  std::array<std::byte, 16> address{};
  uint16_t port = 0;
  std::array<std::byte, 6> reserved0{};
  JobId job_id{};
  SecretKey job_key{};
  std::array<std::byte, 40> reserved1{};
  std::array<std::byte, 8> checksum{};  // against truncation and typing errors; it proves nothing

  static UniqueId make(const TcpEndpoint& endpoint, const JobSecret& secret);

  Status validate() const;
  TcpEndpoint endpoint() const;
  JobSecret secret() const { return {job_key, job_id}; }

  std::string to_hex() const;
  // Exactly 256 hexadecimal digits of a valid id, nothing before or after.
  static Result<UniqueId> from_hex(std::string_view hex);

  bool operator==(const UniqueId&) const = default;

 private:
  std::array<std::byte, 8> expected_checksum() const;
};

static_assert(sizeof(UniqueId) == 128 && std::is_trivially_copyable_v<UniqueId> && std::is_standard_layout_v<UniqueId>);
static_assert(offsetof(UniqueId, address) == 8 && offsetof(UniqueId, port) == 24 && offsetof(UniqueId, job_id) == 32 &&
              offsetof(UniqueId, job_key) == 48 && offsetof(UniqueId, checksum) == 120);
static_assert(std::endian::native == std::endian::little, "an id travels as it lies in memory");

}  // namespace switchyard
