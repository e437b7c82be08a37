#include "comm/channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/tcp.hpp"

namespace switchyard {
namespace {

// Memory for a payload grows with the bytes that came, never with the number that announced them.
constexpr size_t kPayloadStepBytes = 64 << 10;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void FrameChannel::authenticate(const SessionKeys& keys, uint32_t max_receive_bytes) {
  keys_ = keys;
  max_receive_bytes_ = max_receive_bytes;
}

void FrameChannel::send(FrameType type, SharedPayload payload) {
  FrameHeader header{type, uint32_t(payload->bytes.size()), num_sent_++, 0};
  if (keys_) header.tag = frame_tag(keys_->send, header, payload->digest);
  queue_.push_back({encode_frame_header(header), std::move(payload)});
  unsent_bytes_ += queue_.back().size_bytes();
}

Status FrameChannel::flush() {
  while (!queue_.empty()) {
    Outgoing& front = queue_.front();
    const size_t header_done = std::min(front.written_bytes, front.header.size());
    const size_t payload_done = front.written_bytes - header_done;
    // sendmsg only reads; iovec has no const flavour.
    iovec parts[2] = {{front.header.data() + header_done, front.header.size() - header_done},
                      {const_cast<std::byte*>(front.payload->bytes.data()) + payload_done,
                       front.payload->bytes.size() - payload_done}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t num_written = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (num_written < 0) {
      if (errno == EINTR) continue;
      if (would_block(errno)) return {};
      return lost(errno);
    }
    front.written_bytes += size_t(num_written);
    unsent_bytes_ -= size_t(num_written);
    if (front.written_bytes == front.size_bytes()) queue_.pop_front();
  }
  return {};
}

Status FrameChannel::lost(int error) {
  unreachable_ = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN ||
                 error == EHOSTDOWN;
  return failed(text(unreachable_ ? "does not answer any more (" : "closed the connection (", std::strerror(error), ")"));
}

Result<size_t> FrameChannel::read_some(std::byte* out, size_t capacity_bytes) {
  for (;;) {
    const ssize_t num_read = recv(socket_.get(), out, capacity_bytes, MSG_DONTWAIT);
    if (num_read > 0) return size_t(num_read);
    if (num_read == 0) return failed("closed the connection");
    if (errno == EINTR) continue;
    if (would_block(errno)) return size_t(0);
    return lost(errno);
  }
}

Result<bool> FrameChannel::read_header() {
  while (!header_) {
    SWITCHYARD_ASSIGN(const size_t num_read,
                      read_some(header_bytes_.data() + num_header_bytes_, kFrameHeaderBytes - num_header_bytes_));
    if (num_read == 0) return false;
    num_header_bytes_ += num_read;
    if (num_header_bytes_ < kFrameHeaderBytes) continue;
    auto header = parse_frame_header(header_bytes_, max_receive_bytes_);
    if (!header.ok()) return failed(header.status().message());
    header_ = *header;
  }
  return true;
}

Result<bool> FrameChannel::read_payload() {
  while (num_payload_bytes_ < header_->length_bytes) {
    payload_.resize(std::min<size_t>(header_->length_bytes, num_payload_bytes_ + kPayloadStepBytes));
    SWITCHYARD_ASSIGN(const size_t num_read,
                      read_some(payload_.data() + num_payload_bytes_, payload_.size() - num_payload_bytes_));
    if (num_read == 0) return false;
    num_payload_bytes_ += num_read;
  }
  return true;
}

Status FrameChannel::check_received() const {
  if (header_->sequence != num_received_) return failed("sent a frame out of order");
  const uint64_t tag = keys_ ? frame_tag(keys_->receive, *header_, plain_hash(payload_)) : 0;
  if (header_->tag != tag) return failed("sent a frame that its key did not tag; somebody changed or injected it");
  return {};
}

Result<std::optional<Frame>> FrameChannel::receive() {
  SWITCHYARD_ASSIGN(const bool has_header, read_header());
  if (!has_header) return std::optional<Frame>();
  SWITCHYARD_ASSIGN(const bool has_payload, read_payload());
  if (!has_payload) return std::optional<Frame>();
  SWITCHYARD_TRY(check_received());
  Frame frame{header_->type, std::exchange(payload_, {})};
  header_.reset();
  num_header_bytes_ = num_payload_bytes_ = 0;
  num_received_++;
  return std::optional<Frame>(std::move(frame));
}

Status FrameChannel::flush(Deadline deadline) {
  for (;;) {
    SWITCHYARD_TRY(flush());
    if (!has_unsent()) return {};
    if (!wait_for_events(fd(), POLLOUT, deadline)) return failed("took no data until the deadline");
  }
}

Result<Frame> FrameChannel::receive(Deadline deadline) {
  for (;;) {
    SWITCHYARD_ASSIGN(std::optional<Frame> frame, receive());
    if (frame) return std::move(*frame);
    if (!wait_for_events(fd(), POLLIN, deadline)) return failed("did not answer until the deadline");
  }
}

}  // namespace switchyard
