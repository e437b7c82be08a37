// Each deliberate fault in the protocol sources (mutants.cmake) is found in its scenario.
#include <algorithm>

#include "model/explore_test.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {

#define SWITCHYARD_MUTANT(name, scenario, faults) Kernels mutant_##name();
#include "model_mutants.def"
#undef SWITCHYARD_MUTANT

namespace {

struct Mutant {
  const char* name;
  const char* scenario;
  const char* faults;  // names of the faults that count as finding it, separated by |
  Kernels kernels;
};

void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.name; }

std::vector<Mutant> mutants() {
  return {
#define SWITCHYARD_MUTANT(name, scenario, faults) {#name, scenario, faults, mutant_##name()},
#include "model_mutants.def"
#undef SWITCHYARD_MUTANT
  };
}

class ProtocolMutant : public ::testing::TestWithParam<Mutant> {};

TEST_P(ProtocolMutant, IsFound) {
  const Mutant& mutant = GetParam();
  const Scenario* const scenario = find_scenario(mutant.scenario);
  ASSERT_NE(scenario, nullptr) << mutant.scenario;
  const Report report = scenario->run(mutant.kernels, {});
  ASSERT_TRUE(report.violation) << "not found in " << mutant.scenario << ": " << report.to_string();
  print_size(report);
  std::cout << fault_name(report.violation->fault) << ": " << report.violation->message << "\n";
  const std::string found = text("|", fault_name(report.violation->fault), "|");
  EXPECT_NE(text("|", mutant.faults, "|").find(found), std::string::npos)
      << "expected " << mutant.faults << ", found " << report.to_string();
}

INSTANTIATE_TEST_SUITE_P(All, ProtocolMutant, ::testing::ValuesIn(mutants()),
                         [](const auto& mutant) { return std::string(mutant.param.name); });

}  // namespace
}  // namespace switchyard::model
