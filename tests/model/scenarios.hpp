// The configurations in which the library's protocols are explored, by name.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model/explorer.hpp"
#include "model/kernels.hpp"

namespace switchyard::model {

struct Scenario {
  std::string name;
  bool is_long = false;  // minutes, not seconds: explored where SWITCHYARD_MODEL_SOAK is set
  std::function<Report(const Kernels& kernels, const Options& options)> run;
};

const std::vector<Scenario>& low_latency_scenarios();
const std::vector<Scenario>& high_throughput_scenarios();
const std::vector<Scenario>& collective_scenarios();
const std::vector<Scenario>& device_scenarios();
const std::vector<Scenario>& network_scenarios();
// Of any list; nullptr if there is none of that name.
const Scenario* find_scenario(const std::string& name);

}  // namespace switchyard::model
