// The two texts behind `switchyard run --hosts`: the hosts file, and what each host is told.
#include "tools/hosts_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/clock.hpp"
#include "tools/host_share.hpp"

namespace switchyard::tools {
namespace {

using testing::HasSubstr;

// ---- the file ----

TEST(HostsFile, HasAHostALineWithItsSlots) {
  const auto hosts = parse_hosts("# two racks\n\nnode-1 slots=4\r\n\tme@10.0.0.2  # one\nfd00::2 slots=3#all", "hosts");
  ASSERT_TRUE(hosts.ok()) << hosts.status().to_string();
  ASSERT_EQ(hosts.value().size(), 3u);
  const auto expect_entry = [&](size_t i, const char* name, int num_slots, int line) {
    EXPECT_EQ(hosts.value()[i].name, name);
    EXPECT_EQ(hosts.value()[i].num_slots, num_slots);
    EXPECT_EQ(hosts.value()[i].line, line);
  };
  expect_entry(0, "node-1", 4, 3);
  expect_entry(1, "me@10.0.0.2", 1, 4);
  expect_entry(2, "fd00::2", 3, 5);
}

TEST(HostsFile, FillsHostsInTheirOrder) {
  const std::vector<HostEntry> hosts{{"a", 2, 1}, {"b", 3, 2}, {"c", 1, 3}};
  const auto all = fill_hosts(hosts, std::nullopt);
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all.value().size(), 3u);
  EXPECT_EQ(all.value()[2].first_rank, 5);
  const auto some = fill_hosts(hosts, 4);
  ASSERT_TRUE(some.ok());
  ASSERT_EQ(some.value().size(), 2u);  // c is not used
  EXPECT_EQ(some.value()[1].first_rank, 2);
  EXPECT_EQ(some.value()[1].num_ranks, 2);
  EXPECT_THAT(fill_hosts(hosts, 7).status().message(), HasSubstr("-n is 7, allowed 1..6"));
}

struct BadFile {
  std::string contents;
  const char* message;
};
class HostsFileRefuses : public testing::TestWithParam<BadFile> {};

TEST_P(HostsFileRefuses, NamingTheLineAndWhatIsAllowed) {
  const auto hosts = parse_hosts(GetParam().contents, "my-hosts");
  ASSERT_FALSE(hosts.ok());
  EXPECT_THAT(hosts.status().message(), HasSubstr("hosts file my-hosts"));
  EXPECT_THAT(hosts.status().message(), HasSubstr(GetParam().message));
}

std::string many_hosts(int num_hosts) {
  std::string contents;
  for (int i = 0; i < num_hosts; i++) contents += text("n", i, "\n");
  return contents;
}

INSTANTIATE_TEST_SUITE_P(
    Contents, HostsFileRefuses,
    testing::Values(BadFile{"", "names no host"}, BadFile{"# nobody\n", "names no host"},
                    BadFile{"a\n-v\n", "line 2: '-v' is no host name"}, BadFile{"me@-a", "is no host name"},
                    BadFile{"-me@a", "is no host name"}, BadFile{"@a", "is no host name"},
                    BadFile{"me@", "is no host name"}, BadFile{"a@b@c", "is no host name"},
                    BadFile{"a;reboot", "'a;reboot' is no host name"}, BadFile{"$(a)", "is no host name"},
                    BadFile{"n\xc3\xb6", "is no host name"}, BadFile{std::string("a\0b", 3), "'a?b' is no host name"},
                    BadFile{std::string(256, 'a'), "at most 255 characters"},
                    BadFile{"a slots=0", "line 1: slots is '0', allowed 1..1024"},
                    BadFile{"a slots=1025", "allowed 1..1024"}, BadFile{"a slots=", "slots is ''"},
                    BadFile{"a slots=2x", "slots is '2x'"}, BadFile{"a slots=99999999999999999999", "allowed 1..1024"},
                    BadFile{"a slots = 2", "'2' is not understood; a line is: name [slots=N]"},
                    BadFile{"a max_slots=2", "'max_slots=2' is not understood"},
                    BadFile{"a\n\nb\na slots=2", "line 4: host a is on line 1 already"},
                    BadFile{"node\nNODE", "line 2: host NODE is on line 1 already"},
                    BadFile{"me@a\nyou@a", "line 2: host you@a is on line 1 already"},
                    BadFile{"a slots=1000\nb slots=25",
                            "line 2: up to here there are 1025 slots, allowed 1..1024 in all"},
                    BadFile{many_hosts(1025), "line 1025: up to here"},
                    BadFile{std::string(kMaxHostsFileBytes + 1, '\n'), "more than 1048576 bytes"}));

TEST(HostsFile, TakesAsManyHostsAndAsLongNamesAsItPromises) {
  EXPECT_TRUE(parse_hosts(many_hosts(1024), "hosts").ok());
  EXPECT_TRUE(parse_hosts(std::string(255, 'a') + " slots=1024", "hosts").ok());
  EXPECT_TRUE(parse_hosts("a" + std::string(kMaxHostsFileBytes - 1, '\n'), "hosts").ok());
}

// ---- what a host is told ----

HostShare example_share() {
  TcpEndpoint endpoint;
  endpoint.address[0] = std::byte{10};
  endpoint.port = 4242;
  return {.host = "me@node2",
          .directory = "/home/me/a job",
          .first_rank = 3,
          .num_local_ranks = 2,
          .num_ranks = 5,
          .grace_ns = 3 * kSecond,
          .environment = {"SWITCHYARD_NET=ofi", "PATH=", "SWITCHYARD_LOG=a=b\nc"},
          .id = UniqueId::make(endpoint, {}),
          .command = {"./program", "", "two words", "--"}};
}

TEST(HostShare, ArrivesAsItWasSent) {
  const HostShare sent = example_share();
  const auto encoded = encode(sent);
  ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
  EXPECT_EQ(share_body_bytes(encoded.value().substr(0, kShareHeaderBytes)).value(),
            encoded.value().size() - kShareHeaderBytes);
  const auto received = decode(encoded.value());
  ASSERT_TRUE(received.ok()) << received.status().to_string();
  EXPECT_EQ(received.value(), sent);
}

TEST(HostShare, IsRefusedWhereverItIsCutOff) {
  const std::string encoded = encode(example_share()).value();
  for (size_t num_bytes = 0; num_bytes < encoded.size(); num_bytes++) {
    EXPECT_FALSE(decode(encoded.substr(0, num_bytes)).ok()) << num_bytes;
  }
  EXPECT_FALSE(decode(encoded + "x").ok());
}

TEST(HostShare, OfAnotherVersionIsRefusedWithAWordAboutReleases) {
  std::string encoded = encode(example_share()).value();
  encoded[kShareMagic.size() - 2]++;
  EXPECT_THAT(decode(encoded).status().message(), HasSubstr("the same release on all hosts"));
}

TEST(HostShare, BelievesNoLength) {
  std::string encoded = encode(example_share()).value();
  const auto with_length = [&](size_t at) {
    std::string changed = encoded;
    changed.replace(at, 4, "\xff\xff\xff\x7f");
    return decode(changed);
  };
  EXPECT_THAT(with_length(kShareMagic.size()).status().message(), HasSubstr("allowed are 1048576 bytes"));
  EXPECT_THAT(with_length(kShareHeaderBytes).status().message(), HasSubstr("cut short"));  // the host's name
  const size_t num_variables_at = encoded.find("SWITCHYARD_NET") - 8;
  EXPECT_THAT(with_length(num_variables_at).status().message(), HasSubstr("cut short"));
  EXPECT_THAT(with_length(encoded.find("./program") - 8).status().message(), HasSubstr("cut short"));  // the last list
}

TEST(HostShare, ThatMakesNoSenseIsRefused) {
  const std::vector<std::function<void(HostShare&)>> mistakes{
      [](HostShare& share) { share.host = "-o"; },
      [](HostShare& share) { share.directory = "relative"; },
      [](HostShare& share) { share.first_rank = -1; },
      [](HostShare& share) { share.first_rank = 4; },
      [](HostShare& share) { share.num_local_ranks = 0; },
      [](HostShare& share) { share.num_ranks = 1025; },
      [](HostShare& share) { share.grace_ns = ~uint64_t{0}; },
      [](HostShare& share) { share.environment.push_back("NONAME"); },
      [](HostShare& share) { share.environment.push_back("=value"); },
      [](HostShare& share) { share.environment.push_back(std::string("A=\0", 3)); },
      [](HostShare& share) { share.id = {}; },
      [](HostShare& share) { share.command.clear(); },
      [](HostShare& share) { share.command.front().clear(); },
      [](HostShare& share) { share.command.push_back(std::string("\0", 1)); },
      [](HostShare& share) { share.command.push_back(std::string(kMaxShareBytes, 'x')); }};
  for (size_t i = 0; i < mistakes.size(); i++) {
    HostShare share = example_share();
    mistakes[i](share);
    EXPECT_FALSE(encode(share).ok()) << "mistake " << i;
  }
}

// The numbers of a share follow its two strings; what encode() would not write must not be read either.
TEST(HostShare, WithRanksOutOfRangeIsRefusedByWhoReadsIt) {
  const std::string encoded = encode(example_share()).value();
  const size_t first_rank_at = encoded.find("/home/me/a job") + 14;
  for (const size_t at : {first_rank_at, first_rank_at + 4, first_rank_at + 8}) {
    for (const char* number : {"\xff\xff\xff\xff", "\x01\x04\x00\x00"}) {
      std::string changed = encoded;
      changed.replace(at, 4, number, 4);
      EXPECT_THAT(decode(changed).status().message(), HasSubstr("the description of this host's ranks")) << at;
    }
  }
}

}  // namespace
}  // namespace switchyard::tools
