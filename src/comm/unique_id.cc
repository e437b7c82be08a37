#include "comm/unique_id.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "comm/hex.hpp"

namespace switchyard {
namespace {

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte(0); });
}

}  // namespace

UniqueId UniqueId::make(const TcpEndpoint& endpoint, const JobSecret& secret) {
  UniqueId id;
  id.magic = kMagic;
  id.version = kVersion;
  id.family = uint16_t(endpoint.family);
  id.address = endpoint.address;
  id.port = endpoint.port;
  id.job_id = secret.job_id;
  id.job_key = secret.key;
  id.checksum = id.expected_checksum();
  return id;
}

std::array<std::byte, 8> UniqueId::expected_checksum() const {
  const auto bytes = std::as_bytes(std::span(this, 1)).first<offsetof(UniqueId, checksum)>();
  const Digest digest = plain_hash(bytes);
  std::array<std::byte, 8> out;
  std::copy_n(digest.begin(), out.size(), out.begin());
  return out;
}

Status UniqueId::validate() const {
  if (magic != kMagic) {
    return Status::invalid_argument(
        "this is not a unique id of Switchyard (wrong magic); was it filled in by the call that creates it?");
  }
  if (version != kVersion) {
    return Status::invalid_argument(text("unique id of version ", version, ", this library speaks version ", kVersion,
                                         "; all ranks must use the same release"));
  }
  if (checksum != expected_checksum()) {
    return Status::invalid_argument("unique id is damaged (checksum); copy all 128 bytes of it");
  }
  const bool v4 = family == uint16_t(IpFamily::kV4);
  if (!v4 && family != uint16_t(IpFamily::kV6)) {
    return Status::invalid_argument(text("unique id has address family ", family, ", allowed 4 and 6"));
  }
  if (port == 0 || endpoint().is_wildcard()) return Status::invalid_argument("unique id has no address to connect to");
  if ((v4 && !all_zero(std::span(address).subspan(4))) || !all_zero(reserved0) || !all_zero(reserved1)) {
    return Status::invalid_argument("unique id has bytes set that must be zero");
  }
  return {};
}

TcpEndpoint UniqueId::endpoint() const { return {IpFamily(family), address, port}; }

std::string UniqueId::to_hex() const { return switchyard::to_hex(std::as_bytes(std::span(this, 1))); }

Result<UniqueId> UniqueId::from_hex(std::string_view hex) {
  if (hex.size() != 2 * sizeof(UniqueId)) {
    return Status::invalid_argument(
        text("unique id in hexadecimal has ", hex.size(), " characters, must have ", 2 * sizeof(UniqueId)));
  }
  std::array<std::byte, sizeof(UniqueId)> bytes;
  for (size_t i = 0; i < bytes.size(); i++) {
    const int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) {
      return Status::invalid_argument(
          text("unique id has a character that is no hexadecimal digit near position ", 2 * i));
    }
    bytes[i] = std::byte(high << 4 | low);
  }
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), bytes.data(), bytes.size());
  SWITCHYARD_TRY(id.validate());
  return id;
}

}  // namespace switchyard
