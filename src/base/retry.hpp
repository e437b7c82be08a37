// System calls that a signal interrupted are made again.
#pragma once
#include <cerrno>

namespace switchyard {

// REQUIRES: a call that returns -1 and sets errno, and that may be repeated after EINTR. That excludes connect() of
// TCP, which goes on by itself, and close().
template <class Call>
auto retry_interrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace switchyard
