// What launchers of all algorithms share: who hears of operations that went wrong.
#pragma once
#include "switchyard/status.hpp"

namespace switchyard::ep {

// Hears of operations that failed on the stream. Outlives every operation launched with it.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  // Called on the stream's thread after an operation that found or left a failure; returns what the stream shall report.
  virtual Status operation_failed() = 0;
  // The same after an operation that went to its end but found something wrong.
  virtual Status operation_faulty() = 0;
};

}  // namespace switchyard::ep
