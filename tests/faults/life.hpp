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
#include "ep/ll_harness.hpp"
#include "platform/host/stream.hpp"

namespace switchyard::testing {

// What the model says under masks. Expert results depend on the seed, the token and the expert's rank and block alone:
// where a row lies at another rank depends on whom that rank has masked, which this rank need not know then.
LlScenario make_masked_scenario(uint64_t seed, oracle::Case c, oracle::Masks at_dispatch, oracle::Masks at_combine);
// Everybody but itself has masked `rank`; nobody else is masked.
oracle::Masks everyone_masks(int num_ranks, int rank);

struct LifeOptions {
  int num_ranks = 3;
  int victim = 2;  // who may be masked; the others never
  bool masks = false;
  bool windows = false;
  oracle::Layout layout = oracle::Layout::kExpertMajor;
  uint64_t timeout_ns = 5 * kSecond;       // of the group
  uint64_t comm_timeout_ns = 5 * kSecond;  // of collective host calls
  int hidden = 72;

  // For the command line of a rank's process.
  std::vector<std::string> to_arguments() const;
  static LifeOptions from_arguments(const std::vector<std::string>& arguments);
  std::string name() const;
};

class Life {
 public:
  Life(const LifeOptions& options, const UniqueId& id, int rank);
  ~Life() { leave(); }

  // COLLECTIVE. connect(): a communicator; settle(): a split of it, a group on that, a handle; join(): both.
  // With windows, settle() is for ranks that all live: the harness has no way to say that a window can't be registered.
  Status connect();
  Status settle();
  Status join();
  // Dispatch and combine; afterwards victim_masked() says how it ended for the victim. Rounds differ in all they send, so
  // that a row of another round is found out.
  Status round_trip(bool staged);
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
  // One case, by what happened to the victim.
  struct Scene {
    LlScenario unmasked, masked_later, masked_throughout;
    LlScenario expected;  // one of the three; what `io` refers to
    std::unique_ptr<LlRank> io;

    void expect(bool masked_at_dispatch, bool masked_at_combine);
  };
  static constexpr int kNumScenes = 3;  // odd, so that each is sent through both banks

  Scene make_scene(uint64_t seed) const;
  Status look_at_mask();
  Status half(LlRank& io, Status posted, bool staged);
  void compare(const std::string& fault);

  const LifeOptions options_;
  const UniqueId id_;
  const int rank_;
  bool is_victim_ = false;
  std::vector<Scene> scenes_;
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
