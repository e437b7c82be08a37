// One rank's life with a peer that may fail: joining, round trips that are compared with the model under whatever mask
// this rank has at that moment, leaving. Every step ends in a Status; nothing here expects success.
//
// THREADS    as a communicator: one thread a rank.
// OWNERSHIP  a Life owns all that its rank has; leave() and the destructor give it back in the right order.
// ERRORS     what a step returns is the library's own error; results that differ from the model are in wrong().
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/coordinator.hpp"
#include "ep/buffer.hpp"
#include "faults/scene.hpp"
#include "platform/host/stream.hpp"

namespace switchyard::testing {

class Life {
 public:
  Life(const LifeOptions& options, const UniqueId& id, int rank);
  ~Life() { leave(); }

  // COLLECTIVE. connect(): a communicator; settle(): a split of it, a group on that, a handle; join(): both.
  // With windows, settle() is for ranks that all live: the harness has no way to say that a window can't be registered.
  Status connect();
  Status settle();
  Status join();
  // Dispatch and combine, with what else belongs to them; afterwards victim_masked() says how it ended for the victim.
  // Rounds differ in all they send, so that a row of another round is found out. With masks a round that has to be
  // repeated is played to its end, so that all ranks stay in step, and is no error.
  Status round_trip(bool varied);
  // Ranks that were apart agree on the round to go on with.
  void restart_rounds() { round_ = 0; }
  Status clean_masks() { return group_->mask_clean(stream()); }
  // All of it once, as a program without faults does.
  Status run();
  // Gives back what settle() made; then the communicator.
  void unsettle();
  void leave();

  Communicator* comm() { return comm_.get(); }
  ep::Group& group() { return *group_; }
  StreamRef stream() { return {stream_.get()}; }
  bool victim_masked() const { return masked_; }
  int num_masked_rounds() const { return num_masked_rounds_; }
  // An error of this rank's group that the last round trip reported beside its results.
  bool async_error() const { return options_.masks && group_->async_error().value() != 0; }
  // Empty, or the first result that is not what the model says.
  const std::string& wrong() const { return wrong_; }
  // After its own expulsion a rank's results are not to be used: nothing is compared while async_error() is set.
  void judge_as_victim() { is_victim_ = true; }

 private:
  static constexpr int kNumScenes = 3;  // odd, so that each is sent through both banks

  Status look_at_mask();
  void compare(const std::string& fault);

  const LifeOptions options_;
  const UniqueId id_;
  const int rank_;
  bool is_victim_ = false;
  std::vector<std::unique_ptr<Scene>> scenes_;
  int round_ = 0;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Communicator> comm_, split_;
  std::unique_ptr<ep::Group> group_;
  std::unique_ptr<Buffer> mask_;
  bool masked_ = false;
  int num_masked_rounds_ = 0;
  std::string wrong_;
};

// A job beside the one that all ranks of `meeting` share: an id can be used but once.
struct FreshJob {
  // COLLECTIVE over the meeting.
  static Result<FreshJob> create(Communicator& meeting);
  std::unique_ptr<Coordinator> coordinator;  // at rank 0
  UniqueId id;
};

// Does the message name that rank?
bool names_rank(const std::string& message, int rank);
// SWITCHYARD_FAULTS_SOAK is set: run everything that takes long.
bool soaking();
// Open descriptors of this process.
int num_open_fds();

}  // namespace switchyard::testing
