#include "net/net.hpp"

#include "net/mem.hpp"
#if SWITCHYARD_HAVE_OFI
#include "net/ofi.hpp"
#endif

namespace switchyard {

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

}  // namespace switchyard
