// A stream: an in-order queue of tasks with its own worker thread; what a CUDA stream is, on a CPU.
//
// Every stream owns its worker. There is no shared pool, because a task may wait for a peer's task: in a pool of fewer
// threads than ranks one rank's wait would occupy the thread that another rank's send needs.
//
// THREADS    every method may be called from any thread, except synchronize() from the stream's own tasks.
// OWNERSHIP  a posted callable is moved into the ring and destroyed on the worker after it ran. The stream must outlive
//            its posters; its destructor runs what is queued and joins the worker.
// ERRORS     a task reports failure with fail(); it sticks, and synchronize() returns it until take_error().
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/guarded.hpp"
#include "platform/host/pin.hpp"
#include "switchyard/status.hpp"
#include "switchyard/stream.hpp"

namespace switchyard {

class Event;

enum class IdleResult { kMoved, kNothingToDo, kOver };

struct StreamOptions {
  std::string name = "stream";  // of the worker thread, as debuggers show it (15 characters), and in errors
  CoreShare share = this_threads_share();  // where SWITCHYARD_PIN puts the worker
};

class Stream {
 public:
  static constexpr size_t kCapacity = HostStream::kCapacity;
  static constexpr size_t kMaxTaskBytes = 496;  // with its two pointers a slot is 512 bytes: eight cache lines

  static Result<std::unique_ptr<Stream>> create(StreamOptions options = {});
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Queues a callable, called on the worker as callable(Stream&) or callable(). Allocates nothing.
  // REQUIRES  at most kMaxTaskBytes, nothrow-movable. What it throws becomes the stream's error.
  // BLOCKING  only while the ring is full, up to SWITCHYARD_TIMEOUT_MS; then the Status says so, nothing is queued.
  template <class Callable>
  Status post(Callable callable);

  // Lets the worker call `step` while nothing is queued, again and again until it says that it is over. A step must be
  // short, since what is posted waits for it, and must not wait itself. Forgotten with the stream.
  // REQUIRES  called by a task of this stream.
  void when_idle(std::function<IdleResult()> step) { idle_steps_.push_back(std::move(step)); }

  // What is posted after this runs only when the event's latest record so far has completed (event.hpp).
  Status wait(const Event& event);

  // Waits until everything posted before this call has run; then returns the sticky error, if any.
  Status synchronize(Deadline deadline);

  // Is there such a stream still? One that is gone has run all it was given.
  static bool exists(const void* stream);

  bool idle() const { return completed() == posted(); }
  // How many tasks were ever posted, and how many of these have run. A task is complete only after its last effect.
  uint64_t posted() const { return posted_.load(std::memory_order_acquire); }  // pairs with release in try_enqueue()
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }  // pairs with release in run_next()

  // Called by tasks; the first error wins and is logged here, once.
  void fail(Status error);
  // Returns the sticky error and clears it.
  Status take_error();

  // Is the calling thread this stream's worker, that is, are we in one of its tasks?
  bool on_worker() const { return std::this_thread::get_id() == worker_.get_id(); }
  const std::string& name() const { return options_.name; }

 private:
  class Living;
  // What the ring knows of a callable's type.
  struct TaskType {
    void (*move_to)(void* slot, void* callable) noexcept;
    void (*run_and_destroy)(void* payload, Stream& stream) noexcept;
  };
  struct alignas(64) Slot {
    const TaskType* type;
    alignas(16) unsigned char payload[kMaxTaskBytes];
  };
  static_assert(sizeof(Slot) == 512);

  template <class Callable>
  [[gnu::hot]] static void move_task(void* slot, void* callable) noexcept {
    ::new (slot) Callable(std::move(*static_cast<Callable*>(callable)));
  }
  template <class Callable>
  static void run_task(void* payload, Stream& stream) noexcept;

  explicit Stream(StreamOptions options);
  Status enqueue(const TaskType& type, void* callable);
  bool try_enqueue(const TaskType& type, void* callable);
  bool poll_for_task();
  bool step_while_idle();
  void sleep_until_posted(Deadline deadline);
  void run_next();
  void work();
  void sleep_until_completed(uint64_t sequence, Deadline deadline);

  const StreamOptions options_;
  const std::unique_ptr<Slot[]> ring_;

  // Posters' side. The slot of sequence s is s % kCapacity; it is free once s - kCapacity has completed.
  alignas(64) std::mutex post_mutex_;  // held for the copy of one callable, never while waiting
  std::atomic<uint64_t> posted_{0};
  std::atomic<uint32_t> worker_sleeps_{0};  // futex word of the worker
  std::atomic<bool> stopping_{false};

  // Worker's side.
  std::vector<std::function<IdleResult()>> idle_steps_;
  alignas(64) std::atomic<uint64_t> completed_{0};
  // Of synchronize(): 0, or the earliest sequence somebody sleeps for, as wake_ticket() writes it.
  std::atomic<uint32_t> wake_at_{0};
  // Its futex word: wake-ups so far. Not wake_at_ itself, because a sleeper that joined an earlier ticket than its own
  // could find that ticket served and then set anew by a third thread, take it for the old one and sleep for nobody.
  std::atomic<uint32_t> num_wakes_{0};

  std::mutex error_mutex_;
  Status error_;

  std::thread worker_;  // of create(): starts when everything above is there
};

template <class Callable>
void Stream::run_task(void* payload, Stream& stream) noexcept {
  auto* callable = std::launder(static_cast<Callable*>(payload));
  const Status done = guarded([&] {
    if constexpr (std::is_invocable_v<Callable&, Stream&>) {
      (*callable)(stream);
    } else {
      (*callable)();
    }
  });
  if (!done.ok()) [[unlikely]]
    stream.fail(done);
  callable->~Callable();
}

template <class Callable>
Status Stream::post(Callable callable) {
  static_assert(sizeof(Callable) <= kMaxTaskBytes, "a task's captures must fit its slot: capture a pointer instead");
  static_assert(alignof(Callable) <= 16 && std::is_nothrow_move_constructible_v<Callable>);
  static constexpr TaskType kType{&move_task<Callable>, &run_task<Callable>};
  return enqueue(kType, &callable);
}

}  // namespace switchyard
