#include "ep/ll_group.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace switchyard::ep {
namespace {

constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 46;

}  // namespace

LlGroup::LlGroup(Communicator& comm, const GroupConfig& config)
    : Group(comm, config), launcher_(LlLauncher::create(comm.runtime(), *this, comm.trace())) {}

LlGroup::~LlGroup() { close_or_log(); }

Result<std::unique_ptr<Group>> LlGroup::create(Communicator& comm, const GroupConfig& config) {
  // Expert-major rows are numbered in 32 bits.
  const uint64_t local = div_up(config.num_experts, uint64_t(comm.num_ranks()));
  if (local * uint64_t(comm.num_ranks()) * config.max_tokens_per_rank > (1u << 30)) {
    return Status::invalid_argument(text("experts per rank x ranks x max_dispatch_tokens_per_rank is over ", 1u << 30));
  }
  std::unique_ptr<LlGroup> group(new LlGroup(comm, config));
  SWITCHYARD_TRY(group->make_state());
  if (config.buffer_bytes > 0) {
    // One share per (bank, rank): the widest message first, what remains is outbox.
    const uint64_t share = config.buffer_bytes / (kNumBanks * uint64_t(group->num_ranks())) / 16 * 16;
    const uint64_t inbox = LlMessage{kMaxTopk, true}.stride(config.max_token_bytes) * config.max_tokens_per_rank;
    if (share <= inbox) {
      return Status::invalid_usage(text("rdma_buffer_size is ", config.buffer_bytes, ", needed are more than ",
                                        inbox * kNumBanks * uint64_t(group->num_ranks()), " bytes; 0 sizes it by need"));
    }
    SWITCHYARD_TRY(group->make_payload(inbox, share - inbox));
  }
  return std::unique_ptr<Group>(std::move(group));
}

Status LlGroup::make_state() {
  LlState state{};
  SWITCHYARD_TRY(make_control(view_, num_experts(), state, sizeof(state)));
  const std::vector<uint64_t> zeros(size_t(kNumBanks) * size_t(num_ranks()), 0);
  SWITCHYARD_ASSIGN(char* counters, carve(zeros.size() * sizeof(uint64_t)));
  SWITCHYARD_TRY(comm_.runtime().upload(counters, zeros.data(), zeros.size() * sizeof(uint64_t)));
  const LlPlan plan{max_tokens() * kMaxTopk, num_ranks(), num_experts()};
  SWITCHYARD_ASSIGN(char* plans, carve(kNumBanks * plan.num_words() * sizeof(int32_t)));
  const uint64_t scratch_bytes = round_up(config_.max_token_bytes, 64);
  SWITCHYARD_ASSIGN(char* scratch, carve(scratch_bytes * uint64_t(launcher_->num_warps())));
  view_.layout = {num_ranks(), comm_.topology().num_nodes() > 1, 0, 0};
  view_.counters = reinterpret_cast<uint64_t*>(counters);
  view_.plan = reinterpret_cast<int32_t*>(plans);
  view_.scratch = scratch;
  view_.scratch_bytes = scratch_bytes;
  return {};
}

Status LlGroup::reserve(Layout layout, int topk) {
  const LlMessage message{topk, layout == Layout::kRankMajor};
  const uint64_t inbox = message.stride(config_.max_token_bytes) * config_.max_tokens_per_rank;
  const uint64_t rows = uint64_t(config_.max_tokens_per_rank) * (layout == Layout::kExpertMajor ? uint64_t(topk) : 1);
  const uint64_t outbox = rows * LlMessage::align16(config_.max_token_bytes);
  if (inbox <= view_.layout.inbox_block_bytes && outbox <= view_.layout.outbox_block_bytes) return {};
  if (config_.buffer_bytes > 0) {
    return Status::invalid_usage(
        text("a handle with top-k ", topk, " needs ", (inbox + outbox) * kNumBanks * uint64_t(num_ranks()),
             " bytes, rdma_buffer_size is ", config_.buffer_bytes, "; 0 sizes it by need"));
  }
  if (any_staged()) {
    return Status::invalid_usage("a handle that needs a larger buffer can't be made while a staged operation is open");
  }
  SWITCHYARD_TRY(await_posted());
  return make_payload(std::max(inbox, view_.layout.inbox_block_bytes),
                      std::max(outbox, view_.layout.outbox_block_bytes));
}

Status LlGroup::make_payload(uint64_t inbox_block_bytes, uint64_t outbox_block_bytes) {
  // Far below what would wrap around in the layout's sums, far above any machine.
  const uint64_t most = kMaxPayloadBytes / (kNumBanks * uint64_t(num_ranks()));
  if (inbox_block_bytes > most || outbox_block_bytes > most - inbox_block_bytes) {
    return Status::invalid_argument(text("the group's buffers would need more than ", kMaxPayloadBytes,
                                         " bytes; lower rdma_buffer_size, max_token_bytes or max_dispatch_tokens_per_rank"));
  }
  LlLayout layout = view_.layout;
  layout.inbox_block_bytes = round_up(inbox_block_bytes, 4096);
  layout.outbox_block_bytes = round_up(outbox_block_bytes, 4096);
  SWITCHYARD_FAILPOINT_TRY("group.before_payload");
  SWITCHYARD_ASSIGN(const Shared payload, share(layout.payload_bytes()));
  const Shared old = std::exchange(payload_, payload);
  view_.layout = layout;
  view_.payload = payload_.window->bases();
  view_.payload_id = payload_.window->id();
  // Every rank is through with the old window: registration ended in a barrier, and each synchronised before it.
  if (old.window != nullptr) {
    if (const Status gone = unshare(old, true); !gone.ok()) log(LogLevel::kWarn, "of a group's buffer that has grown: ", gone.message());
  }
  SWITCHYARD_FAILPOINT_TRY("group.after_payload");
  return {};
}

[[gnu::hot]] LlOp LlGroup::new_operation() const {
  LlOp op{};
  op.group = view_;
  op.part = LlPart::kBoth;
  return op;
}

// What a post runs through is marked hot, so that the linker puts it side by side: from a cold cache that saves a fifth of
// the call (docs/figures.md).
[[gnu::hot]] Status LlGroup::post(const LlOp& op, StreamRef stream) {
  SWITCHYARD_TRY(health());
  const bool takes_bank = op.part != LlPart::kReceive;
  if (takes_bank) SWITCHYARD_TRY(check_next_bank());
  SWITCHYARD_FAILPOINT_TRY("ep.before_post");
  SWITCHYARD_TRY(order(stream));
  SWITCHYARD_TRY(launcher_->launch(op, stream));
  num_issued_ += takes_bank;
  return {};
}

// An open operation keeps its bank until its receive half has run. Whoever needs that bank would wait for a receive half
// that can only be posted behind it: for ever.
[[gnu::hot]] Status LlGroup::check_next_bank() const {
  for (const uint64_t issued : staged_) {
    if (issued == 0 || num_issued_ + 1 < issued + kNumBanks) continue;
    return Status::invalid_usage(text("the last but one operation of this group was staged and is still open; call "
                                      "ncclEpComplete for it before a third operation"));
  }
  return {};
}

bool LlGroup::any_staged() const {
  return std::any_of(staged_.begin(), staged_.end(), [](uint64_t issued) { return issued != 0; });
}

Result<int> LlGroup::open_staged() {
  for (int slot = 0; slot < kMaxStaged; ++slot) {
    if (staged_[size_t(slot)] != 0) continue;
    staged_[size_t(slot)] = num_issued_ + 1;
    return slot;
  }
  return Status::invalid_usage(text("two staged operations of this group are open; call ncclEpComplete first"));
}

void LlGroup::close_staged(int slot) { staged_[size_t(slot)] = 0; }

void LlGroup::forget_staged(int slot) {
  launcher_->forget(slot);
  close_staged(slot);
}

Status LlGroup::post_admission(Admission what, uint64_t admit_tag, StreamRef stream) {
  SWITCHYARD_TRY(health());
  SWITCHYARD_TRY(order(stream));
  return launcher_->launch_admission(view_, what, admit_tag, stream);
}

}  // namespace switchyard::ep
