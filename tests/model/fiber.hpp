// A fiber: one cooperative thread of execution with its own stack. The explorer runs every thread of a program as a
// fiber on one operating-system thread, so that it alone decides who runs next.
//
// THREADS    one fiber is used by one operating-system thread.
// OWNERSHIP  owns its stack. A fiber that is started again, or destroyed, while paused is abandoned: its frames are not
//            unwound, so the locals of a fiber must not own memory.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <memory>

namespace switchyard::model {

class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() calls entry(argument) from the top; whatever ran in this fiber before is abandoned.
  void start(void (*entry)(void*), void* argument);
  // Runs the fiber until it pauses or its entry returns. REQUIRES start(), and an entry that has not returned.
  void resume();
  // Called from inside the fiber: gives control back to resume().
  void pause();

 private:
  static void trampoline(unsigned high, unsigned low);
  void loop();
  void enter_first();

  std::unique_ptr<std::byte[]> stack_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool fresh_ = false;    // start() was called and resume() was not yet
  bool entered_ = false;  // the stack holds a live loop() frame, so that start_ may be jumped to
  ucontext_t inside_, outside_;
  // swapcontext saves the signal mask with two system calls; these jumps do not and are twenty times faster.
  jmp_buf start_, paused_, resumer_;
#if defined(__SANITIZE_ADDRESS__)
  const void* outside_stack_ = nullptr;
  size_t outside_stack_bytes_ = 0;
#endif
};

}  // namespace switchyard::model
