// The project's table of figures: every promise about speed and memory with its target, measured in one go.
#pragma once
#include <nlohmann/json.hpp>

#include "bench/ep/spec.hpp"

namespace switchyard::tools {

// One run with its baselines where asked for; prints nothing.
Result<nlohmann::json> measure_run(const bench::EpSpec& spec, bool baselines);

// {"runs": [...], "figures": [{"name", "value", "unit", "target", "at_most", "ok"} or {"name", "error", "ok": false}]}.
// Iterations, warm-up, seed and verification are taken from `base`; prints each run as it ends.
nlohmann::json measure_figures(const bench::EpSpec& base);

}  // namespace switchyard::tools
