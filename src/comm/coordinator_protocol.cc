// What the coordinator does with the frames of its ranks; coordinator_loop.cc brings them here.
#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "comm/coordinator_loop.hpp"

namespace switchyard {

Status Coordinator::Loop::take_frame(Peer& peer, const Frame& frame) {
  if (peer.refused) return {};
  if (peer.half_open()) {
    SWITCHYARD_TRY(peer.handshake.advance(frame, peer.channel));
    if (peer.handshake.done()) admit(peer);
    return {};
  }
  switch (frame.type) {
    case FrameType::kExchange: return take_exchange(peer, frame);
    case FrameType::kAbort: {
      SWITCHYARD_ASSIGN(const Notice notice, Notice::parse(frame.payload));
      take_abort(peer.rank, notice.reason);
      return {};
    }
    case FrameType::kUnreachable: return take_unreachable(peer, frame);
    case FrameType::kLeftNetwork: return take_left_network(peer, frame);
    case FrameType::kGoodbye: peer.left = true; return {};
    case FrameType::kHeartbeat: return {};
    default: return Status::remote(text("sent a frame of type ", int(frame.type), ", which no rank may send"));
  }
}

void Coordinator::Loop::admit(Peer& peer) {
  const HandshakeHello& hello = peer.handshake.hello();
  peer.channel.rename_peer(text("rank ", hello.rank));
  if (ranks_.empty()) {
    ranks_.resize(hello.num_ranks, RankState::kAbsent);
    peer_of_rank_.resize(hello.num_ranks, nullptr);
    first_rank_ = int(hello.rank);
  }
  if (const Status status = why_refused(hello); !status.ok()) return refuse(peer, status);
  peer.rank = int(hello.rank);
  ranks_[hello.rank] = RankState::kJoined;
  peer_of_rank_[hello.rank] = &peer;
  num_ever_joined_++;
  num_joined_.fetch_add(1, std::memory_order_relaxed);
  peer.channel.send(FrameType::kAccepted, std::vector<std::byte>());
}

Status Coordinator::Loop::why_refused(const HandshakeHello& hello) {
  if (!over_.ok()) return over_;
  if (hello.num_ranks != ranks_.size()) {
    // Nobody can say who is right, so the job can't form.
    over_ =
        Status::invalid_argument(text("rank ", hello.rank, " says that the job has ", hello.num_ranks, " ranks, rank ",
                                      first_rank_, " says ", ranks_.size(), "; all must say the same"));
    send_to_all(FrameType::kAbort, Notice{hello.rank, over_.code(), over_.message()}.encode());
    exchanges_.clear();
    return over_;
  }
  switch (ranks_[hello.rank]) {
    case RankState::kAbsent: break;
    case RankState::kJoined:
      return Status::invalid_usage(text("rank ", hello.rank,
                                        " is already taken by another process or thread; each of the ", ranks_.size(),
                                        " ranks may join once"));
    case RankState::kLeft:
      return Status::remote(text("rank ", hello.rank, " has already left this job; a new job needs a new unique id"));
    case RankState::kDied:
      return Status::remote(text("rank ", hello.rank, " has died in this job; a new job needs a new unique id"));
  }
  for (size_t rank = 0; rank < ranks_.size(); rank++) {
    if (ranks_[rank] == RankState::kLeft || ranks_[rank] == RankState::kDied) {
      return Status::remote(text("rank ", rank, ranks_[rank] == RankState::kDied ? " died" : " left", " before rank ",
                                 hello.rank, " joined; this job can't form any more"));
    }
  }
  return {};
}

void Coordinator::Loop::refuse(Peer& peer, const Status& status) {
  peer.refused = true;
  num_refused_.fetch_add(1, std::memory_order_relaxed);
  log(LogLevel::kWarn, "coordinator: refused ", peer.channel.peer(), ": ", status.message());
  peer.channel.send(FrameType::kRefused, Notice{peer.handshake.hello().rank, status.code(), status.message()}.encode());
}

Status Coordinator::Loop::take_exchange(Peer& peer, const Frame& frame) {
  SWITCHYARD_ASSIGN(ExchangeRequest request, ExchangeRequest::parse(frame.payload, int(ranks_.size())));
  // The sender has been told already, or the notice is in its queue, ahead of anything we could answer.
  if (!over_.ok()) return {};
  for (const int rank : request.members) {
    if (ranks_[size_t(rank)] == RankState::kLeft || ranks_[size_t(rank)] == RankState::kDied) return {};
  }
  SWITCHYARD_ASSIGN(std::optional<Announcement> out, exchanges_.add(peer.rank, std::move(request), now_ns()));
  if (out) announce(std::move(*out));
  return {};
}

void Coordinator::Loop::take_abort(int rank, const std::string& reason) {
  if (!over_.ok()) return;
  over_ = Status::remote(text("rank ", rank, " aborted the job: ", reason));
  exchanges_.clear();
  send_to_all(FrameType::kAbort, Notice{uint32_t(rank), over_.code(), over_.message()}.encode());
}

Coordinator::Loop::Loss* Coordinator::Loop::find_loss(uint32_t teller, uint64_t comm_id, uint32_t rank) {
  Peer* peer = peer_of_rank_[teller];
  if (peer == nullptr) return nullptr;
  const auto found = std::find_if(peer->losses.begin(), peer->losses.end(),
                                  [&](const Loss& loss) { return loss.comm_id == comm_id && loss.rank == rank; });
  return found == peer->losses.end() ? nullptr : &*found;
}

// The one that is not reached is asked first: who has left that network does not answer, and nobody has lost it. Once
// it has confirmed the loss, or told of the same one, both know for certain; and of a network's first all others hear,
// since whoever waits for somebody who waits for one of the two need not do so for ever. A rank has only so many to tell of.
Status Coordinator::Loop::take_unreachable(Peer& peer, const Frame& frame) {
  constexpr size_t kMaxPerRank = 16, kMaxBroken = 4096;
  SWITCHYARD_ASSIGN(const Unreachable told, Unreachable::parse(frame.payload, int(ranks_.size())));
  const uint32_t teller = uint32_t(peer.rank);
  if (told.from != teller && told.to != teller) return Status::remote("told of a loss between two others");
  Loss* confirmed = find_loss(told.from == teller ? told.to : told.from, told.comm_id, teller);
  if (told.from == teller) {
    if (find_loss(teller, told.comm_id, told.to) != nullptr) return {};
    if (peer.losses.size() >= kMaxPerRank * ranks_.size()) peer.losses.pop_front();
    peer.losses.push_back({told.comm_id, told.to, confirmed != nullptr});
    if (confirmed == nullptr) send_to_rank(int(told.to), FrameType::kUnreachable, make_payload(told.encode()));
  }
  if (confirmed == nullptr || std::exchange(confirmed->is_confirmed, true)) return {};
  // Of more networks than it remembers all are told more than once.
  if (broken_networks_.contains(told.comm_id)) {
    for (const uint32_t end : {told.from, told.to}) {
      send_to_rank(int(end), FrameType::kUnreachable, make_payload(told.encode()));
    }
    return {};
  }
  if (broken_networks_.size() < kMaxBroken) broken_networks_.insert(told.comm_id);
  send_to_all(FrameType::kUnreachable, told.encode());
  return {};
}

Status Coordinator::Loop::take_left_network(const Peer& peer, const Frame& frame) {
  SWITCHYARD_ASSIGN(const Departure departure, Departure::parse(frame.payload, int(ranks_.size())));
  if (departure.rank != uint32_t(peer.rank)) return Status::remote("told that another rank leaves a network");
  // Nobody asks any more whether it was lost.
  for (const auto& teller : peers_) {
    std::erase_if(teller->losses, [&](const Loss& loss) {
      return loss.comm_id == departure.comm_id && loss.rank == departure.rank;
    });
  }
  send_to_all(FrameType::kLeftNetwork, departure.encode());
  return {};
}

void Coordinator::Loop::rank_gone(Peer& peer) {
  const int rank = peer.rank;
  const bool clean = peer.left;
  ranks_[size_t(rank)] = clean ? RankState::kLeft : RankState::kDied;
  num_gone_.fetch_add(1, std::memory_order_relaxed);
  peer_of_rank_[size_t(rank)] = nullptr;
  peer.rank = -1;
  peer.refused = true;  // nothing more to count or to log when the connection is taken off the list
  for (Announcement& hint : exchanges_.drop_member(rank)) announce(std::move(hint));
  const std::string reason =
      clean ? text("rank ", rank, " has left the job") : text("rank ", rank, " died: ", peer.end->message());
  log(clean ? LogLevel::kDebug : LogLevel::kInfo, "coordinator: ", reason);
  send_to_all(FrameType::kRankGone, Notice{uint32_t(rank), clean ? Code::kOk : Code::kRemoteError, reason}.encode());
}

void Coordinator::Loop::send_to_rank(int rank, FrameType type, const SharedPayload& payload) {
  if (Peer* peer = peer_of_rank_[size_t(rank)]) peer->channel.send(type, payload);
}

void Coordinator::Loop::send_to_all(FrameType type, std::vector<std::byte> payload) {
  const SharedPayload shared = make_payload(std::move(payload));
  for (size_t rank = 0; rank < ranks_.size(); rank++) send_to_rank(int(rank), type, shared);
}

void Coordinator::Loop::announce(Announcement announcement) {
  const SharedPayload shared = make_payload(std::move(announcement.payload));
  for (const int rank : announcement.recipients) send_to_rank(rank, announcement.type, shared);
}

}  // namespace switchyard
