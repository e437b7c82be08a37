// One round trip of one rank, again and again: its buffers, its operations and what the model says about them. Life
// plays scenes and looks at the mask in between; an algorithm is a kind of scene.
//
// THREADS    as a communicator: one thread a rank.
// OWNERSHIP  owns buffers and handle; equip() and open() make them, close() and unequip() give them back.
// ERRORS     run() returns the library's own error; check() says what differs from the model.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "ep/group.hpp"
#include "faults/life_options.hpp"

namespace switchyard::testing {

class Scene {
 public:
  virtual ~Scene() = default;

  // None: it needs no group.
  virtual std::optional<ep::GroupConfig> group_config() const = 0;
  // COLLECTIVE with windows.
  virtual void equip(Communicator& comm, StreamRef stream) = 0;
  // `group`: null where it needs none.
  virtual Status open(ep::Group* group) = 0;
  virtual void close() = 0;
  virtual void unequip() = 0;

  // A round begins; returns how many operations it has. `round`: all ranks give the same. `varied`: as some programs do
  // it.
  virtual int begin(int round, bool varied) = 0;
  // One operation: posts it and waits for its end. An error that it may be repeated after does not stay with the stream.
  virtual Status run(int idx) = 0;
  // Of a group with masks: does the error mean that the round is to be repeated, and nothing else?
  virtual bool asks_to_repeat(const Status& status) const = 0;
  // After run(idx), with the mask as it is then: has this rank masked the victim? Empty, or what differs first. Asked
  // until an operation of the round fails.
  virtual std::string check(int idx, bool masked) = 0;
};

// Scenes of different seeds differ in all they send.
std::unique_ptr<Scene> make_scene(uint64_t seed, const LifeOptions& options);  // of the options' algorithm
std::unique_ptr<Scene> make_ll_scene(uint64_t seed, const LifeOptions& options);
std::unique_ptr<Scene> make_ht_scene(uint64_t seed, const LifeOptions& options);
std::unique_ptr<Scene> make_coll_scene(uint64_t seed, const LifeOptions& options);

}  // namespace switchyard::testing
