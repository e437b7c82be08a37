#include "model/fiber.hpp"

#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace switchyard::model {
namespace {
constexpr size_t kStackBytes = 256 * 1024;
}

Fiber::Fiber() : stack_(new std::byte[kStackBytes]) {}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  if (sanitizer_fiber_ != nullptr) __tsan_destroy_fiber(sanitizer_fiber_);
#endif
}

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  fresh_ = true;
}

// makecontext passes ints only, so that the pointer travels in two halves.
void Fiber::trampoline(unsigned high, unsigned low) {
  reinterpret_cast<Fiber*>(uintptr_t(high) << 32 | uintptr_t(low))->loop();
}

void Fiber::enter_first() {
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::trampoline), 2, unsigned(self >> 32), unsigned(self));
}

#if SWITCHYARD_MODEL_SANITIZED

void Fiber::loop() {
  entry_(argument_);
  for (;;) pause();
}

void Fiber::resume() {
  if (fresh_) {
    fresh_ = false;
    enter_first();
#if defined(__SANITIZE_THREAD__)
    if (sanitizer_fiber_ != nullptr) __tsan_destroy_fiber(sanitizer_fiber_);
    sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
  }
#if defined(__SANITIZE_THREAD__)
  sanitizer_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_fiber_, 0);
#endif
  swapcontext(&outside_, &inside_);
}

void Fiber::pause() {
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(sanitizer_outside_, 0);
#endif
  swapcontext(&inside_, &outside_);
}

#else

// Every start jumps back to start_, whose frame stays alive below all frames of the entry.
void Fiber::loop() {
  _setjmp(start_);
  entry_(argument_);
  for (;;) pause();
}

void Fiber::resume() {
  if (_setjmp(resumer_) != 0) return;
  if (!fresh_) _longjmp(paused_, 1);
  fresh_ = false;
  if (entered_) _longjmp(start_, 1);
  entered_ = true;
  enter_first();
  setcontext(&inside_);
}

void Fiber::pause() {
  if (_setjmp(paused_) == 0) _longjmp(resumer_, 1);
}

#endif

}  // namespace switchyard::model
