#include "comm/frame.hpp"

#include <algorithm>

#include "comm/wire.hpp"

namespace switchyard {

FrameHeaderBytes encode_frame_header(const FrameHeader& header) {
  WireWriter out;
  out.put(kFrameMagic);
  out.put(kFrameVersion);
  out.put(uint16_t(header.type));
  out.put(uint32_t(0));  // flags: none are defined yet
  out.put(header.length_bytes);
  out.put(header.sequence);
  out.put(header.tag);
  FrameHeaderBytes bytes{};
  std::copy_n(out.bytes().begin(), kFrameHeaderBytes, bytes.begin());
  return bytes;
}

Result<FrameHeader> parse_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes, uint32_t max_length_bytes) {
  WireReader in(bytes);
  const auto magic = in.get<uint32_t>();
  const auto version = in.get<uint16_t>();
  const auto type = in.get<uint16_t>();
  const auto flags = in.get<uint32_t>();
  FrameHeader header;
  header.length_bytes = in.get<uint32_t>();
  header.sequence = in.get<uint64_t>();
  header.tag = in.get<uint64_t>();
  if (magic != kFrameMagic) return Status::remote("sent something that is no Switchyard frame (wrong magic)");
  if (version != kFrameVersion) {
    return Status::remote(text("speaks frame version ", version, ", this library speaks ", kFrameVersion,
                               "; all ranks must use the same release"));
  }
  if (type < 1 || type > kMaxFrameType) return Status::remote(text("sent a frame of unknown type ", type));
  if (flags != 0) return Status::remote(text("sent a frame with unknown flags ", flags));
  if (header.length_bytes > max_length_bytes) {
    return Status::remote(text("announced a frame of ", header.length_bytes, " bytes, allowed are ", max_length_bytes));
  }
  header.type = FrameType(type);
  return header;
}

uint64_t frame_tag(const SecretKey& key, const FrameHeader& header, const Digest& payload_digest) {
  FrameHeader untagged = header;
  untagged.tag = 0;
  const FrameHeaderBytes bytes = encode_frame_header(untagged);
  const Digest digest = keyed_hash(key, "frame", {bytes, payload_digest});
  return WireReader(std::span(digest).first(8)).get<uint64_t>();
}

}  // namespace switchyard
