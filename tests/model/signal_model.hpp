// Delivery of signals on an unordered network (src/net/signal_order.hpp, as it is) as a program for the explorer.
//
// A source numbers its writes; each wire carries one at a time, puts its data into the target's memory and then,
// whenever it likes, a completion into the target's queue. A progress thread of the target takes completions and adds
// signals to a word as OfiEndpoint::arrived() does, while a reader looks at it: where it sees a signal, the data of its
// write and of all earlier ones are there. Eight numbers, a window of four, two writes in flight.
// A bare signal may go ahead on another way, without a number, as OfiEndpoint::may_go_ahead() has it: when the source knows
// that the writes it follows are delivered.
#pragma once
#include <cstdint>

#include "model/explorer.hpp"
#include "model/kernels.hpp"

namespace switchyard::model {

// What those around the order of signals do wrong: the source counts what is in flight instead of looking how far it
// spans; the network completes before it has placed the data; the reader does not acquire; a signal goes ahead of writes that
// are posted, or of which only the last is known to be delivered.
enum class ArrivalFault {
  kNone,
  kRoomByCount,
  kCompletedBeforeTheData,
  kSignalReadRelaxed,
  kAheadOfWhatIsPosted,
  kAheadWhenTheLastIsThere
};

struct ArrivalCase {
  uint64_t num_writes = 6;
  int num_wires = 2;
  uint64_t unsignalled = 0;  // bits: writes that carry no signal
  // This completion comes a second time, at any later time; UINT64_MAX: none does.
  uint64_t twice = UINT64_MAX;
  // Or else: one more completion, at any time, with this number, which must never be due; UINT32_MAX: there is none.
  uint32_t stray = UINT32_MAX;
  // One more signal, on another way, that follows so many writes; 0: there is none.
  uint64_t ahead = 0;
  ArrivalFault fault = ArrivalFault::kNone;
};
Report explore_arrivals(const ArrivalCase& c, const Kernels& kernels, const Options& options = {});

}  // namespace switchyard::model
