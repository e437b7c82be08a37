// `switchyard bench ep --mode auto`: both algorithms over many batch sizes, and where one overtakes the other.
#pragma once
#include <nlohmann/json.hpp>

#include "bench/ep/spec.hpp"
#include "switchyard/status.hpp"

namespace switchyard::tools {

// {"runs": both algorithms at every size, "sweep": the table, "crossover_tokens": from where on high throughput is faster, or null,
// "slower_than_gather_scatter": sizes at which it is slower than that baseline, one round trip behind the other,
// "slower_than_gather_scatter_apart": the same of round trips from a common start}
// Prints lines as they come. `base`: everything but mode, layout and tokens, which goes up to base.tokens.
Result<nlohmann::json> measure_sweep(const bench::EpSpec& base);

}  // namespace switchyard::tools
