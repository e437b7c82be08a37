// The command `switchyard`: one subcommand a file.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"

int main(int argc, char** argv) {
  // What follows "--" belongs to another program; CLI11 would look for options, lists and subcommands in it.
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  const std::vector<std::string> program(std::min(dashes + 1, end), end);

  CLI::App app("Switchyard: moves the tokens of mixture-of-experts models between ranks");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("switchyard ") + SWITCHYARD_VERSION);
  switchyard::tools::register_run(app, program);
  switchyard::tools::register_host_agent(app);
  switchyard::tools::register_doctor(app);
  switchyard::tools::register_bench(app);
  try {
    app.parse(int(dashes - argv), argv);
  } catch (const CLI::RuntimeError& result) {
    return result.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : switchyard::tools::kExitUsage;
  }
  return 0;
}
