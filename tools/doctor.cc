// `switchyard doctor`: what this machine offers the library, what is missing, and the command that installs it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/checks.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"

namespace switchyard::tools {
namespace {

bool breaks(const Check& check) { return check.need == Need::kRequired && check.finding == Finding::kMissing; }

void print_table(const std::vector<Check>& checks) {
  for (const Check& check : checks) {
    fmt::print("{:<9}{:<15}{}{}\n", finding_name(check.finding), check.name, check.detail,
               breaks(check) ? " (required)" : "");
    if (!check.fix.empty()) fmt::print("{:<24}-> {}\n", "", check.fix);
  }
  const auto num_missing = std::count_if(checks.begin(), checks.end(), breaks);
  if (num_missing > 0) fmt::print("\n{} required: missing; nothing works without.\n", num_missing);
  else fmt::print("\nEverything required is here.\n");
}

void print_json(const std::vector<Check>& checks) {
  nlohmann::json list = nlohmann::json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"finding", finding_name(check.finding)},
                    {"required", check.need == Need::kRequired},
                    {"detail", check.detail},
                    {"fix", check.fix}});
  }
  const nlohmann::json report{{"ok", std::none_of(checks.begin(), checks.end(), breaks)},
                              {"version", SWITCHYARD_VERSION},
                              {"checks", list}};
  // Details may quote other programs, whose bytes need not be valid UTF-8.
  fmt::print("{}\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void register_doctor(CLI::App& app) {
  const auto as_json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "Say what was found on this machine and what is missing");
  command->add_flag("--json", *as_json, "print a JSON object instead of a table");
  command->callback([as_json] {
    std::vector<Check> checks = check_system();
    for (Check& check : check_software()) checks.push_back(std::move(check));
    *as_json ? print_json(checks) : print_table(checks);
    finish(std::any_of(checks.begin(), checks.end(), breaks) ? kExitFailure : 0);
  });
}

}  // namespace switchyard::tools
