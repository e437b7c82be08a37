#include "oracle/generators.hpp"

#include "oracle/contents.hpp"
#include "oracle/float_formats.hpp"
#include "oracle/quantise.hpp"

namespace switchyard::oracle {

Case make_case(uint64_t seed, const Shape& shape, Routing routing, Fill fill) {
  Random random(seed);
  Case c{shape, make_inputs(random, shape, routing, fill), {}, {}};
  if (routing == Routing::kDuplicates) {
    duplicate_some(random, shape, static_cast<int64_t>(shape.num_ranks) * shape.max_tokens, c);
  }
  return c;
}

ExpertOutputs make_expert_outputs(uint64_t seed, const Case& c, const Dispatch& dispatch) {
  Random random(seed);
  ExpertOutputs outputs;
  outputs.rows.resize(c.num_ranks);
  outputs.global_scales.resize(c.num_ranks);
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    for (const auto& block : dispatch.ranks[rank].blocks) {
      std::vector<uint8_t>& rows = outputs.rows[rank].emplace_back();
      std::vector<float>& global_scales = outputs.global_scales[rank].emplace_back();
      for (size_t row_idx = 0; row_idx < block.size(); ++row_idx) {
        const std::vector<uint8_t> row =
            random_row(random, c.combine_dtype, c.combine_row_bytes() / dtype_bytes(c.combine_dtype));
        rows.insert(rows.end(), row.begin(), row.end());
        if (c.combine_recipe != CombineRecipe::kNvfp4) continue;
        global_scales.push_back(nvfp4_global_scale(decode_row(c.combine_dtype, row)));
      }
    }
  }
  return outputs;
}

}  // namespace switchyard::oracle
