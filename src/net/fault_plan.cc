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

// "2" or "2:silent".
bool parse_cut(const std::string& value, FaultPlan& plan) {
  const size_t colon = value.find(':');
  const auto peer = parse_number(value.substr(0, colon), 0, kMaxRank);
  if (!peer || (colon != std::string::npos && value.substr(colon) != ":silent")) return false;
  plan.cut.push_back({int(*peer), colon == std::string::npos ? Cut::kRefuse : Cut::kSilent});
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
               "delay=PROBABILITY[:TIME] with us, ms or s, up to 60s; and cut=RANK[:silent]"));
    }
    begin = end + 1;
  }
  return plan;
}

}  // namespace switchyard
