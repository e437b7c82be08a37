// Where an exception must not pass: the C API, and the functions that threads start with.
#pragma once
#include <exception>
#include <new>
#include <type_traits>

#include "switchyard/status.hpp"

namespace switchyard {

// Runs the body, which returns a Status or nothing. Nothing of ours throws on purpose; the standard library does, above
// all when memory runs out.
template <class Body>
Status guarded(Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) body();
    else return body();
    return {};
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::exception& error) {
    return Status::internal(text(error.what()));
  } catch (...) {
    return Status::internal("an exception of an unknown type");
  }
}

}  // namespace switchyard
