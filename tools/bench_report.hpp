// How results of `switchyard bench ep` look to people.
#pragma once
#include <nlohmann/json.hpp>

namespace switchyard::tools {

void print_run(const nlohmann::json& run);
void print_figures(const nlohmann::json& figures);

}  // namespace switchyard::tools
