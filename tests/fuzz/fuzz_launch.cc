// What launchers leave in the environment, on one host or on those of a hosts file, one variable a line in the order of
// kNames: who a rank is and where it meets the others. And the command line of `switchyard run`, one argument a line;
// its hosts file; and what it tells the agent of a host.
#include <map>
#include <set>
#include <vector>

#include "comm/launch_env.hpp"
#include "comm/rendezvous.hpp"
#include "fuzz.hpp"
#include "tools/host_share.hpp"
#include "tools/hosts_file.hpp"
#include "tools/run_options.hpp"

namespace switchyard::fuzz {
namespace {

constexpr const char* kNames[] = {"SWITCHYARD_RANK",
                                  "SWITCHYARD_NUM_RANKS",
                                  "SWITCHYARD_LOCAL_RANK",
                                  "RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SWITCHYARD_STORE",
                                  "XDG_RUNTIME_DIR",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "LOCAL_WORLD_SIZE",
                                  "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_RESTART_COUNT",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "PMIX_NAMESPACE",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "SLURM_RESTART_COUNT",
                                  "SLURM_NNODES",
                                  "SLURM_STEP_NUM_NODES"};

void check_meeting_place(const LaunchEnv& launch, const EnvGetter& get) {
  auto place = choose_meeting_place(launch, get);
  if (!place.ok()) {
    require(!place.status().message().empty(), "errors have words");
    return;
  }
  const StoreSpec& store = place->store;
  require(store.path.empty() != store.host.empty(), "ranks meet at a file or at a port");
  require(store.path.empty() || store.path.front() == '/', "paths are absolute");
  require(store.host.empty() || store.port != 0, "a port is named");
  require(!place->private_folder || (store.path.starts_with(*place->private_folder + "/") && !place->identity.empty()),
          "a file in the private folder is named by its job");
  LaunchEnv other = launch;
  other.rank = launch.num_ranks - 1 - launch.rank;
  auto theirs = choose_meeting_place(other, get);
  require(theirs.ok() && theirs->store.path == store.path && theirs->store.host == store.host &&
              theirs->store.port == store.port && theirs->identity == place->identity,
          "all ranks go to one place");
}

void read_variables(Input input) {
  std::map<std::string, std::string> variables;
  for (const char* name : kNames) {
    std::string value = input.line();
    value = value.substr(0, value.find('\0'));  // no variable holds more
    if (!value.empty()) variables[name] = std::move(value);
  }
  const EnvGetter get = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  auto launch = read_launch_env(get);
  if (!launch.ok()) {
    require(!launch.status().message().empty(), "errors have words");
    return;
  }
  require(launch->num_ranks >= 1 && launch->rank >= 0 && launch->rank < launch->num_ranks, "the rank is in range");
  require(launch->local_rank >= -1 && launch->local_rank < launch->num_ranks, "the local rank is in range");
  check_meeting_place(*launch, get);
}

void parse_command_line(Input input) {
  // CLI11 reads a list of arguments from the back.
  std::vector<std::string> arguments;
  while (!input.empty() && arguments.size() < 32) arguments.insert(arguments.begin(), input.line());
  CLI::App app("fuzzer");
  tools::RunOptions options;
  CLI::App* const run = app.add_subcommand("run", "");
  tools::add_run_options(*run, options);
  options.command = {"program"};
  try {
    app.parse(arguments);
  } catch (const CLI::Error&) {
    return;
  }
  if (!run->parsed() || !tools::validate(options).ok()) return;
  require(options.num_ranks || options.hosts_file, "somebody says how many ranks there are");
  const int num_ranks = options.num_ranks.value_or(1);
  require(num_ranks >= 1 && num_ranks <= 1024, "-n is in range");
  require(!options.num_nodes || (*options.num_nodes >= 1 && *options.num_nodes <= num_ranks), "every node has a rank");
  require(options.timeout_s >= 0 && options.grace_s >= 0, "times are positive numbers");
}

void read_hosts_file(Input input) {
  const int num_asked = input.byte() * 5;
  const auto hosts = tools::parse_hosts(input.words(), "file");
  if (!hosts.ok()) {
    require(!hosts.status().message().empty(), "errors have words");
    return;
  }
  int num_slots = 0;
  std::set<std::string> machines;
  for (const tools::HostEntry& host : hosts.value()) {
    require(tools::valid_host_name(host.name) && host.name.front() != '-', "a name is no option");
    require(host.name.find_first_of(" \t\n$;&|<>()'\"`\\*?#~=%") == std::string::npos,
            "a name means nothing to a shell");
    require(host.num_slots >= 1, "every host has a slot");
    require(machines.insert(std::string(tools::machine_of(host.name))).second, "no host is there twice");
    num_slots += host.num_slots;
  }
  require(num_slots >= 1 && num_slots <= tools::kMaxRanks && machines.size() <= tools::kMaxHosts, "slots are in range");
  const auto filled = tools::fill_hosts(hosts.value(), num_asked);
  require(filled.ok() == (num_asked >= 1 && num_asked <= num_slots), "as many ranks as there are slots");
  int next_rank = 0;
  for (const tools::HostRanks& host : filled.ok() ? filled.value() : std::vector<tools::HostRanks>()) {
    require(host.first_rank == next_rank && host.num_ranks >= 1, "hosts have consecutive ranks");
    next_rank += host.num_ranks;
  }
  require(!filled.ok() || next_rank == num_asked, "every rank has a host");
}

void check_share(const tools::HostShare& share) {
  require(share.num_ranks >= 1 && share.num_ranks <= tools::kMaxRanks, "the number of ranks is in range");
  require(share.first_rank >= 0 && share.num_local_ranks >= 1, "a host has ranks");
  require(share.num_local_ranks <= share.num_ranks - share.first_rank, "a host's ranks are the job's");
  require(tools::valid_host_name(share.host) && share.directory.starts_with('/'), "host and directory have names");
  require(!share.command.empty() && share.id.validate().ok(), "there is a program and where to meet");
  for (const std::string& variable : share.environment) require(variable.find('=') + 1 > 1, "variables have names");
  const auto encoded = tools::encode(share);
  require(encoded.ok() && encoded.value().size() <= tools::kShareHeaderBytes + tools::kMaxShareBytes,
          "it can be sent on");
  const auto again = tools::decode(encoded.value());
  require(again.ok() && again.value() == share, "it arrives as it was sent");
}

// As it comes; or with a header and a unique id, which no fuzzer guesses, in place.
std::string share_bytes(Input input) {
  if (input.byte() % 2 == 0) return input.words();
  TcpEndpoint endpoint;
  endpoint.address[0] = std::byte{127};
  endpoint.port = 1;
  const std::string id = UniqueId::make(endpoint, {}).to_hex();
  std::string body = input.words();
  if (const size_t at = body.find("ID"); at != std::string::npos) {
    body.replace(at, 2, std::string{char(id.size() & 0xff), char(id.size() >> 8), 0, 0} + id);
  }
  const size_t size = body.size();
  return std::string(tools::kShareMagic) + char(size & 0xff) + char(size >> 8 & 0xff) + char(size >> 16) + '\0' + body;
}

void read_share(Input input) {
  const auto share = tools::decode(share_bytes(input));
  if (share.ok()) check_share(share.value());
  else require(!share.status().message().empty(), "errors have words");
}

}  // namespace
}  // namespace switchyard::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace switchyard::fuzz;
  Input input(data, num_bytes);
  const uint8_t kind = input.byte();
  if (kind < 128) kind % 2 == 0 ? read_variables(input) : parse_command_line(input);
  else kind % 2 == 0 ? read_hosts_file(input) : read_share(input);
  return 0;
}
