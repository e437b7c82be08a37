#include "net/fault_plan.hpp"

#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/env.hpp"

namespace switchyard {
namespace {

constexpr uint64_t kMaxDelayNs = 60 * kSecond;
constexpr uint64_t kMaxRank = 1u << 20;

std::optional<double> parse_probability(const std::string& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  // Written so that NaN is refused, too.
  if (error != std::errc() || end != value.data() + value.size() || !(number >= 0 && number <= 1)) return std::nullopt;
  return number;
}

std::optional<uint64_t> parse_time(const std::string& value) {
  constexpr std::pair<std::string_view, uint64_t> kUnits[] = {{"us", 1'000}, {"ms", kMillisecond}, {"s", kSecond}};
  for (const auto& [unit, ns] : kUnits) {
    if (!value.ends_with(unit)) continue;
    const auto number = parse_number(value.substr(0, value.size() - unit.size()), 0, kMaxDelayNs / ns);
    return number ? std::optional(*number * ns) : std::nullopt;
  }
  return std::nullopt;
}

// "0.05" or "0.05:2ms".
bool parse_delay(const std::string& value, FaultPlan& plan) {
  const size_t colon = value.find(':');
  const auto probability = parse_probability(value.substr(0, colon));
  const auto time = colon == std::string::npos ? std::optional(plan.max_delay_ns) : parse_time(value.substr(colon + 1));
  if (!probability || !time) return false;
  plan.delay = *probability;
  plan.max_delay_ns = *time;
  return true;
}

// "2" or "2:silent", from the start on, or with "@100ms" from then on, or with "@100ms-2s" until then.
bool parse_cut(const std::string& value, FaultPlan& plan) {
  const size_t at = std::min(value.find('@'), value.size());
  const std::string who = value.substr(0, at);
  const size_t colon = std::min(who.find(':'), who.size());
  const auto peer = parse_number(who.substr(0, colon), 0, kMaxRank);
  if (!peer || (colon < who.size() && who.substr(colon) != ":silent")) return false;
  FaultPlan::CutPeer cut{int(*peer), colon == who.size() ? Cut::kRefuse : Cut::kSilent};
  if (at < value.size()) {
    const size_t dash = std::min(value.find('-', at), value.size());
    const auto from = parse_time(value.substr(at + 1, dash - at - 1));
    const auto until = dash == value.size() ? std::optional(cut.until_ns) : parse_time(value.substr(dash + 1));
    if (!from || !until || *until <= *from) return false;
    cut.from_ns = *from;
    cut.until_ns = *until;
  }
  plan.cut.push_back(cut);
  return true;
}

bool parse_item(const std::string& key, const std::string& value, FaultPlan& plan) {
  if (key == "delay") return parse_delay(value, plan);
  if (key == "cut") return parse_cut(value, plan);
  if (key == "seed") {
    const auto seed = parse_number(value, 0, std::numeric_limits<uint64_t>::max());
    if (seed) plan.seed = *seed;
    return seed.has_value();
  }
  constexpr std::pair<std::string_view, double FaultPlan::*> kProbabilities[] = {{"drop", &FaultPlan::drop},
                                                                                 {"duplicate", &FaultPlan::duplicate},
                                                                                 {"reorder", &FaultPlan::reorder},
                                                                                 {"truncate", &FaultPlan::truncate},
                                                                                 {"flip", &FaultPlan::flip}};
  for (const auto& [name, field] : kProbabilities) {
    if (key != name) continue;
    const auto probability = parse_probability(value);
    if (probability) plan.*field = *probability;
    return probability.has_value();
  }
  return false;
}

}  // namespace

Result<FaultPlan> FaultPlan::parse(const std::string& list) {
  FaultPlan plan;
  std::set<std::string> seen;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    const size_t equals = std::min(item.find('='), item.size());
    const std::string key = item.substr(0, equals);
    const bool again = key != "cut" && !seen.insert(key).second;
    if (again || equals == item.size() || !parse_item(key, item.substr(equals + 1), plan)) {
      return Status::invalid_argument(
          text("network fault '", item, again ? "' comes twice" : "' is malformed",
               "; allowed, each once: seed=NUMBER; drop, duplicate, reorder, truncate, flip=PROBABILITY (0 to 1); "
               "delay=PROBABILITY[:TIME] with us, ms or s, up to 60s; and cut=RANK[:silent][@FROM[-UNTIL]], times as above"));
    }
    begin = end + 1;
  }
  return plan;
}

}  // namespace switchyard
