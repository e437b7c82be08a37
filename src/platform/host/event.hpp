// An event: a mark in a stream that others can wait for; what a CUDA event is, on a CPU.
//
// Each record() makes a new mark, and everything asked afterwards is about the latest one; whoever began to wait for an
// earlier mark keeps waiting for that one. An event that was never recorded counts as complete.
//
// THREADS    any.
// OWNERSHIP  the mark is shared with the queued tasks that set or await it, so an Event and the streams it was used
//            with may be destroyed in any order.
// ERRORS     as Status; a record that could not be queued leaves the previous mark in place.
#pragma once
#include <memory>
#include <mutex>

#include "base/clock.hpp"
#include "platform/host/stream.hpp"

namespace switchyard {

class Event {
 public:
  // Completes when everything posted to the stream before it has run.
  Status record(Stream& stream);
  bool query() const;
  // BLOCKING  until the deadline.
  Status synchronize(Deadline deadline) const;

  // Milliseconds from the one mark to the other. ERRORS  if either was never recorded or is not complete yet.
  static Result<float> elapsed_ms(const Event& start, const Event& end);

 private:
  friend class Stream;  // Stream::wait() shares the mark
  struct Mark;
  std::shared_ptr<const Mark> latest() const;

  mutable std::mutex mutex_;
  std::shared_ptr<Mark> latest_;  // shared: with the tasks that set and await it, which may outlive the Event
};

}  // namespace switchyard
