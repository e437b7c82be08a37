// Starts the ranks of one benchmark job: as processes through `switchyard run`, which knows how, or as threads of this
// process. Job and result of processes travel in files of a private folder that is gone afterwards.
//
// THREADS    the main one.
// OWNERSHIP  no rank outlives the call.
// ERRORS     what the ranks said, if one of them failed.
// BLOCKING   until the ranks have ended, at most some minutes.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/ep/spec.hpp"
#include "comm/communicator.hpp"
#include "switchyard/status.hpp"

namespace switchyard::tools {

Result<nlohmann::json> run_bench_job(const bench::EpSpec& spec);

struct RankLaunch {
  int ranks;
  int nodes;
  std::string net;      // empty: the library's choice
  std::string command;  // of `switchyard bench`, that a rank runs
};
Result<nlohmann::json> run_rank_processes(const nlohmann::json& job, const RankLaunch& launch);

// What such a process does: takes the job from the folder and, as rank 0, leaves the result there. A job's "gin" says how
// kernels reach the network.
using RankBody = std::function<Result<nlohmann::json>(const nlohmann::json& job, Communicator& comm)>;
Status run_bench_rank(const std::string& folder, const RankBody& body);

// The folder that this program lies in; others of the same build are its neighbours.
Result<std::string> own_folder();

// A folder of our own that goes with the object.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Result<nlohmann::json> read_json(const std::string& path);
Status write_json(const std::string& path, const nlohmann::json& value);

}  // namespace switchyard::tools
