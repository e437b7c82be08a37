// FrameChannel: frames over one connected, non-blocking socket. The same class serves both ends; one side polls many of
// them, the other waits for one.
//
// THREADS    one thread at a time.
// OWNERSHIP  owns the socket.
// ERRORS     every error ends the connection for good and names the peer. "Closed by the peer" is an error as well.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "comm/frame.hpp"

namespace switchyard {

struct Frame {
  FrameType type{};
  std::vector<std::byte> payload;
};

struct SessionKeys {
  SecretKey send{};
  SecretKey receive{};
};

class FrameChannel {
 public:
  FrameChannel(Fd socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}

  int fd() const { return socket_.get(); }
  const std::string& peer() const { return peer_; }
  // It ended because nothing comes back from the other end's machine, not because that closed it.
  bool unreachable() const { return unreachable_; }
  void rename_peer(std::string peer) { peer_ = std::move(peer); }

  // From now on frames are tagged both ways, and received ones may have up to max_receive_bytes of payload.
  void authenticate(const SessionKeys& keys, uint32_t max_receive_bytes);

  // Queues a frame. BLOCKING: never; flush() moves it.
  void send(FrameType type, SharedPayload payload);
  void send(FrameType type, std::vector<std::byte> payload) { send(type, make_payload(std::move(payload))); }
  bool has_unsent() const { return !queue_.empty(); }
  size_t unsent_bytes() const { return unsent_bytes_; }

  // Writes as much as the socket takes. BLOCKING: never.
  Status flush();
  // One frame, or nothing if none has arrived whole. BLOCKING: never.
  Result<std::optional<Frame>> receive();

  // BLOCKING: until the deadline.
  Status flush(Deadline deadline);
  Result<Frame> receive(Deadline deadline);

 private:
  struct Outgoing {
    FrameHeaderBytes header;
    SharedPayload payload;
    size_t written_bytes = 0;  // of header and payload together
    size_t size_bytes() const { return header.size() + payload->bytes.size(); }
  };

  // How many bytes came (0: none there yet).
  Result<size_t> read_some(std::byte* out, size_t capacity_bytes);
  Result<bool> read_header();
  Result<bool> read_payload();
  Status check_received() const;
  Status failed(const std::string& what) const { return Status::remote(text(peer_, " ", what)); }
  Status lost(int error);

  Fd socket_;
  std::string peer_;
  bool unreachable_ = false;
  std::optional<SessionKeys> keys_;
  uint32_t max_receive_bytes_ = kMaxUnauthenticatedBytes;

  std::deque<Outgoing> queue_;
  size_t unsent_bytes_ = 0;
  uint64_t num_sent_ = 0;

  FrameHeaderBytes header_bytes_{};
  size_t num_header_bytes_ = 0;
  std::optional<FrameHeader> header_;  // once all its bytes are there
  std::vector<std::byte> payload_;
  size_t num_payload_bytes_ = 0;
  uint64_t num_received_ = 0;
};

}  // namespace switchyard
