// Barriers and Gin (include/switchyard/device, as they are) as programs for the explorer: a few ranks of one node that
// reach each other by load and store.
#pragma once
#include "model/explorer.hpp"
#include "model/kernels.hpp"

namespace switchyard::model {

// In each round every member writes a cell, passes the barrier and reads all cells. The cells alternate between two
// places, so that what is read in one round may be overwritten two rounds later, and no earlier.
Report explore_barrier(int num_members, uint64_t num_rounds, bool is_world, const Kernels& kernels,
                       const Options& options = {});

// Two ranks send each other a cell a round, by put() or put_value(), into two places by turns.
Report explore_puts(uint64_t num_rounds, bool by_value, const Kernels& kernels, const Options& options = {});

}  // namespace switchyard::model
