// What the files of the C++ face share: Status becomes an exception in them and nowhere below.
#pragma once
#include <utility>

#include "switchyard/comm.hpp"
#include "switchyard/status.hpp"

namespace switchyard::face {

inline void check(const Status& status) {
  if (!status.ok()) throw Error(status);
}

template <class T>
T take(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace switchyard::face
