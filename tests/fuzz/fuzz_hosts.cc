// The hosts file of `switchyard run`, and what it tells the agent of a host.
#include <set>
#include <vector>

#include "fuzz.hpp"
#include "tools/host_share.hpp"
#include "tools/hosts_file.hpp"

namespace switchyard::fuzz {
namespace {

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
  if (input.byte() % 2 == 0) read_hosts_file(input);
  else read_share(input);
  return 0;
}
