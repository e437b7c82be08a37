#include "net/net.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/env.hpp"
#include "base/failpoint.hpp"
#include "base/guarded.hpp"
#include "base/log.hpp"
#include "net/checksum.hpp"
#include "net/fault.hpp"
#include "net/mem.hpp"
#include "net/progress.hpp"
#if SWITCHYARD_HAVE_OFI
#include "net/ofi.hpp"
#endif

namespace switchyard {

// Whom this does not reach for want of memory, its time limit tells.
void LossTeller::tell(int peer, const std::string& why) const {
  (void)guarded([&] { bootstrap_->tell_unreachable(comm_id_, members_[size_t(peer)], why); });
}

void LossTeller::tell_all(const std::string& why) const {
  for (int peer = 0; peer < int(members_.size()); ++peer) tell(peer, why);
}

std::span<const NetPlugin> net_plugins() {
  static const NetPlugin kPlugins[] = {
      mem_plugin(),
#if SWITCHYARD_HAVE_OFI
      ofi_plugin(),
#endif
  };
  return kPlugins;
}

Result<const NetPlugin*> find_net_plugin(const std::string& name) {
  std::string known;
  for (const NetPlugin& plugin : net_plugins()) {
    if (name.substr(0, name.find(':')) == plugin.name) return &plugin;
    known += (known.empty() ? "" : ", ") + std::string(plugin.name);
  }
#if !SWITCHYARD_HAVE_OFI
  known += " (ofi: built without libfabric; install libfabric-dev and configure again)";
#endif
  return Status::invalid_argument(text("there is no network plugin '", name, "'; known: ", known));
}

Status check_capabilities(const NetPlugin& plugin, const NetCapabilities& needs) {
  const auto lacks = [&](const char* what) {
    return Status::invalid_usage(text("network plugin '", plugin.name, "' can't be used: it lacks ", what));
  };
  const NetCapabilities& has = plugin.capabilities;
  if (needs.signal_after_data && !has.signal_after_data) return lacks("signals that follow their data");
  if (needs.ordered_puts && !has.ordered_puts) return lacks("ordered puts");
  if (needs.target_progress_free && !has.target_progress_free) return lacks("progress without the target");
  if (needs.device_memory && !has.device_memory) return lacks("access to GPU memory");
  if (has.max_message_bytes < needs.max_message_bytes) return lacks("messages that large");
  return {};
}

namespace {

// What Gin needs of a network.
constexpr NetCapabilities kGinNeeds{true, false, false, false, 1};

// Of the plan, what concerns this communicator: it names ranks of the job.
FaultPlan among(const FaultPlan& plan, std::span<const int> members) {
  FaultPlan mine = plan;
  mine.cut.clear();
  for (FaultPlan::CutPeer cut : plan.cut) {
    const auto member = std::find(members.begin(), members.end(), cut.peer);
    if (member == members.end()) continue;
    cut.peer = int(member - members.begin());
    mine.cut.push_back(cut);
  }
  return mine;
}

// What all ranks must have alike.
struct NetOffer {
  std::array<char, 12> plugin{};
  uint32_t checksum = 0;
};

// Ranks that disagree would wait for each other's exchanges; here they learn why.
Status agree(const NetPlugin& plugin, bool checksum, const NetContext& context, Deadline deadline) {
  const Window::Context& window = context.window;
  NetOffer mine{{}, checksum};
  std::string_view(plugin.name).copy(mine.plugin.data(), mine.plugin.size() - 1);
  SWITCHYARD_ASSIGN(const std::vector<NetOffer> all,
                    window.bootstrap.exchange_values(context.comm_id, window.members, mine, deadline));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].plugin != mine.plugin) {
      const std::string_view theirs(all[rank].plugin.data(), strnlen(all[rank].plugin.data(), mine.plugin.size()));
      return Status::invalid_usage(text("rank ", window.rank, " has network plugin ", plugin.name, " and rank ", rank, " has ",
                                        theirs, "; set SWITCHYARD_NET equally everywhere"));
    }
    if (all[rank].checksum == mine.checksum) continue;
    return Status::invalid_usage(text("rank ", window.rank, " has network checksums ", checksum ? "on" : "off", " and rank ",
                                      rank, " has them ", checksum ? "off" : "on",
                                      "; set SWITCHYARD_NET_CHECKSUM equally everywhere"));
  }
  return {};
}

}  // namespace

Result<std::optional<FaultPlan>> faults_wanted(const NetDecorations& wanted, int num_world_ranks) {
  std::optional<FaultPlan> plan = wanted.faults;
  if (!plan && !env().net_faults.empty()) {
    const auto parsed = FaultPlan::parse(env().net_faults);
    if (!parsed.ok()) return Status::invalid_argument("SWITCHYARD_NET_FAULTS: " + parsed.status().message());
    plan = parsed.value();
  }
  if (!plan) return plan;
  for (const FaultPlan::CutPeer& cut : plan->cut) {
    if (cut.peer < 0 || cut.peer >= num_world_ranks) {
      return Status::invalid_argument(
          text("SWITCHYARD_NET_FAULTS: cut=", cut.peer, ", but ranks are 0..", num_world_ranks - 1));
    }
  }
  return plan;
}

Result<std::unique_ptr<NetEndpoint>> connect_network(const NetPlugin& plugin, const NetContext& context,
                                                     const NetDecorations& wanted, Deadline deadline) {
  const Window::Context& window = context.window;
  const int num_ranks = int(window.members.size());
  SWITCHYARD_TRY(check_capabilities(plugin, kGinNeeds));
  SWITCHYARD_ASSIGN(const std::optional<FaultPlan> faults, faults_wanted(wanted, window.bootstrap.num_ranks()));
  const bool checksum = wanted.checksum.value_or(env().net_checksum);
  SWITCHYARD_TRY(agree(plugin, checksum, context, deadline));
  SWITCHYARD_ASSIGN(std::unique_ptr<NetEndpoint> endpoint, plugin.connect(context, deadline));
  NetEndpoint& plain = *endpoint;
  if (faults) {
    log(wanted.faults ? LogLevel::kInfo : LogLevel::kWarn, "rank ", window.rank,
        ": the network makes mistakes on purpose, seed ", faults->seed);
    endpoint = std::make_unique<FaultEndpoint>(std::move(endpoint), among(*faults, window.members), window.rank, num_ranks,
                                               plugin.capabilities.ordered_puts);
  }
  if (checksum) {
    SWITCHYARD_ASSIGN(std::unique_ptr<ChecksumEndpoint> checked,
                      ChecksumEndpoint::create(std::move(endpoint), window.runtime, window.rank, num_ranks, deadline));
    checked->on_failure([losses = LossTeller(context)](const std::string& why) { losses.tell_all(why); });
    endpoint = std::move(checked);
  }
  if (endpoint.get() == &plain) return endpoint;
  SWITCHYARD_TRY(ProgressThreads::instance().add(*endpoint));
  ProgressThreads::instance().remove(plain);
  return endpoint;
}

}  // namespace switchyard
