#include "tools/hosts_file.hpp"

#include <algorithm>
#include <cctype>
#include <unordered_map>
#include <utility>

#include "base/env.hpp"

namespace switchyard::tools {
namespace {

constexpr std::string_view kSlots = "slots=";
constexpr std::string_view kBlanks = " \t\r\v\f";

// By itself, not as the locale says.
bool letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool made_of(std::string_view word, std::string_view others) {
  return !word.empty() && word.front() != '-' && std::all_of(word.begin(), word.end(), [&](char c) {
    return letter_or_digit(c) || others.find(c) != std::string_view::npos;
  });
}

// A word of the file for a message: no longer than a line, nothing that could move a cursor.
std::string shown(std::string_view word) {
  constexpr size_t kShownBytes = 64;
  std::string result(word.substr(0, kShownBytes));
  for (char& c : result) c = c >= ' ' && c <= '~' ? c : '?';
  return text("'", result, word.size() > kShownBytes ? "...'" : "'");
}

// What is before a comment, as words.
std::vector<std::string_view> words_of(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    if (line.empty()) return words;
    words.push_back(line.substr(0, line.find_first_of(kBlanks)));
    line.remove_prefix(words.back().size());
  }
}

Result<HostEntry> parse_entry(const std::vector<std::string_view>& words, int line) {
  HostEntry entry{std::string(words[0]), 1, line};
  if (!valid_host_name(words[0])) {
    return Status::invalid_argument(text(shown(words[0]),
                                         " is no host name; allowed are letters, digits and . - _ :, with user@ before "
                                         "if need be, no - in front, at most ",
                                         kMaxHostNameBytes, " characters"));
  }
  if (words.size() == 1) return entry;
  if (words.size() > 2 || !words[1].starts_with(kSlots)) {
    return Status::invalid_argument(text(shown(words.back()), " is not understood; a line is: name [slots=N]"));
  }
  const std::string_view slots = words[1].substr(kSlots.size());
  const auto number = parse_number(std::string(slots), 1, kMaxRanks);
  if (!number) return Status::invalid_argument(text("slots is ", shown(slots), ", allowed 1..", kMaxRanks));
  entry.num_slots = int(*number);
  return entry;
}

// What the lines so far add up to.
class HostList {
 public:
  Status add(HostEntry entry) {
    std::string machine(machine_of(entry.name));
    for (char& c : machine) c = char(std::tolower(static_cast<unsigned char>(c)));
    const auto [first, is_new] = lines_.try_emplace(std::move(machine), entry.line);
    if (!is_new) {
      return Status::invalid_argument(text("host ", entry.name, " is on line ", first->second,
                                           " already; write it once, with slots=N for N ranks"));
    }
    num_slots_ += entry.num_slots;
    if (num_slots_ > kMaxRanks) {
      return Status::invalid_argument(
          text("up to here there are ", num_slots_, " slots, allowed 1..", kMaxRanks, " in all"));
    }
    entries_.push_back(std::move(entry));
    return {};
  }
  std::vector<HostEntry> take() { return std::move(entries_); }

 private:
  std::vector<HostEntry> entries_;
  std::unordered_map<std::string, int> lines_;  // of machines, in lower case
  int num_slots_ = 0;
};

}  // namespace

std::string_view machine_of(std::string_view name) {
  const size_t at = name.find('@');
  return at == std::string_view::npos ? name : name.substr(at + 1);
}

bool valid_host_name(std::string_view name) {
  const size_t at = name.find('@');
  if (name.size() > kMaxHostNameBytes || (at != std::string_view::npos && !made_of(name.substr(0, at), ".-_")))
    return false;
  return made_of(machine_of(name), ".-_:");
}

Result<std::vector<HostEntry>> parse_hosts(std::string_view contents, const std::string& file) {
  if (contents.size() > kMaxHostsFileBytes) {
    return Status::invalid_argument(
        text("hosts file ", file, " has more than ", kMaxHostsFileBytes, " bytes; is it one?"));
  }
  HostList hosts;
  for (int line = 1; !contents.empty(); line++) {
    const std::string_view whole = contents.substr(0, contents.find('\n'));
    contents.remove_prefix(std::min(whole.size() + 1, contents.size()));
    const std::vector<std::string_view> words = words_of(whole);
    if (words.empty()) continue;
    auto entry = parse_entry(words, line);
    const Status status = entry.ok() ? hosts.add(*std::move(entry)) : entry.status();
    if (!status.ok())
      return Status::invalid_argument(text("hosts file ", file, ", line ", line, ": ", status.message()));
  }
  std::vector<HostEntry> entries = hosts.take();
  if (entries.empty())
    return Status::invalid_argument(text("hosts file ", file, " names no host; a line is: name [slots=N]"));
  return entries;
}

Result<std::vector<HostRanks>> fill_hosts(const std::vector<HostEntry>& hosts, std::optional<int> num_ranks) {
  int num_slots = 0;
  for (const HostEntry& host : hosts) num_slots += host.num_slots;
  int num_left = num_ranks.value_or(num_slots);
  if (num_left < 1 || num_left > num_slots) {
    return Status::invalid_argument(text("-n is ", num_left, ", allowed 1..", num_slots, ": the slots of all hosts"));
  }
  std::vector<HostRanks> filled;
  int first_rank = 0;
  for (const HostEntry& host : hosts) {
    const int taken = std::min(host.num_slots, num_left);
    if (taken == 0) break;
    filled.push_back({host.name, first_rank, taken});
    first_rank += taken;
    num_left -= taken;
  }
  return filled;
}

}  // namespace switchyard::tools
