// Runs an oracle case through the library's C++ layer on every rank and compares each byte.
#pragma once
#include <string>

#include "ep/group.hpp"
#include "ep/handle.hpp"
#include "oracle/dense.hpp"
#include "oracle/generators.hpp"

namespace switchyard::testing {

struct LlMode {
  bool windows = false;  // outputs and expert results in windows: rows go straight to their place
  bool staged = false;   // send and receive halves apart
  int num_rounds = 1;    // repeats on the same group and handle, so that banks are used again
};

// One rank's part of a case; all ranks call it. Empty, or what differed first.
std::string run_ll_case(Communicator& comm, StreamRef stream, const oracle::Case& c, const oracle::Dispatch& dispatch,
                        const oracle::ExpertOutputs& outputs, const std::vector<std::vector<uint8_t>>& combined,
                        LlMode mode);

ep::GroupConfig group_config_for(const oracle::Case& c);

}  // namespace switchyard::testing
