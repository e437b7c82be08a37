#include "model/fiber.hpp"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace switchyard::model {
namespace {
constexpr size_t kStackBytes = 256 * 1024;
}

Fiber::Fiber() : stack_(new std::byte[kStackBytes]) {}

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

#if defined(__SANITIZE_ADDRESS__)

// The address sanitizer follows swapcontext if it is told of both stacks, but no jumps between them.
void Fiber::loop() {
  __sanitizer_finish_switch_fiber(nullptr, &outside_stack_, &outside_stack_bytes_);
  entry_(argument_);
  for (;;) pause();
}

void Fiber::resume() {
  if (fresh_) enter_first();
  fresh_ = false;
  void* own_frames = nullptr;
  __sanitizer_start_switch_fiber(&own_frames, stack_.get(), kStackBytes);
  swapcontext(&outside_, &inside_);
  __sanitizer_finish_switch_fiber(own_frames, nullptr, nullptr);
}

void Fiber::pause() {
  void* own_frames = nullptr;
  __sanitizer_start_switch_fiber(&own_frames, outside_stack_, outside_stack_bytes_);
  swapcontext(&inside_, &outside_);
  __sanitizer_finish_switch_fiber(own_frames, &outside_stack_, &outside_stack_bytes_);
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
