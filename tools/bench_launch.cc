#include "tools/bench_launch.hpp"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "bench/ep/jobs.hpp"
#include "comm/coordinator.hpp"
#include "comm/rendezvous.hpp"
#include "platform/host/pin.hpp"
#include "tools/capture.hpp"

namespace switchyard::tools {
namespace {

constexpr uint64_t kJobSeconds = 600;
constexpr uint64_t kGraceSeconds = 30;  // the launcher's own, beyond the job's

std::string job_path(const std::string& folder) { return folder + "/job.json"; }
std::string result_path(const std::string& folder) { return folder + "/result.json"; }

Result<Communicator::Options> options_for(const bench::EpSpec& spec) {
  if (spec.platform != "cuda") return Communicator::Options{};
  // Ranks wait for each other inside kernels: each stream needs a hardware queue of its own. Read when CUDA starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  SWITCHYARD_ASSIGN(Runtime* runtime, find_runtime({DeviceKind::kCuda}));
  return Communicator::Options{.runtime = runtime};
}

Result<nlohmann::json> run_as_threads(const bench::EpSpec& spec) {
  SWITCHYARD_ASSIGN(const Communicator::Options options, options_for(spec));
  SWITCHYARD_ASSIGN(const UniqueId id, create_unique_id());
  std::vector<std::optional<Result<nlohmann::json>>> results(size_t(spec.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < spec.ranks; rank++) {
    threads.emplace_back([&, rank] {
      const auto comm = Communicator::create(id, rank, spec.ranks, options);
      results[size_t(rank)] = comm.ok() ? bench::run_job(spec, *comm.value()) : Result<nlohmann::json>(comm.status());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string failures;
  for (size_t rank = 0; rank < results.size(); rank++) {
    if (!results[rank]->ok()) failures += text("\n[", rank, "] ", results[rank]->status().to_string());
  }
  if (!failures.empty()) return Status::remote("ranks failed:" + failures);
  return std::move(*results[0]);
}

}  // namespace

Result<std::string> own_folder() {
  SWITCHYARD_ASSIGN(const std::string path, own_path());
  return std::filesystem::path(path).parent_path().string();
}

Result<nlohmann::json> run_rank_processes(const nlohmann::json& job, const RankLaunch& launch) {
  SWITCHYARD_ASSIGN(const std::string self, own_path());
  SWITCHYARD_ASSIGN(const TemporaryFolder folder, TemporaryFolder::create());
  SWITCHYARD_TRY(write_json(job_path(folder.path()), job));
  std::vector<std::string> arguments{
      self, "run", "--ranks", std::to_string(launch.ranks), "--timeout", std::to_string(kJobSeconds)};
  if (launch.nodes > 1) arguments.insert(arguments.end(), {"--nodes", std::to_string(launch.nodes)});
  if (!launch.net.empty()) arguments.insert(arguments.end(), {"--net", launch.net});
  arguments.insert(arguments.end(), {"--", self, "bench", launch.command, folder.path()});
  SWITCHYARD_ASSIGN(const Captured ended,
                    capture(std::move(arguments), Deadline::after_ns((kJobSeconds + kGraceSeconds) * kSecond)));
  if (ended.report.failed()) {
    return Status::remote(text("the ranks ", ended.report.reason, ":\n", ended.error, ended.output));
  }
  std::fputs(ended.error.c_str(), stderr);  // warnings, and what was asked for with SWITCHYARD_LOG
  return read_json(result_path(folder.path()));
}

Result<nlohmann::json> run_bench_job(const bench::EpSpec& spec) {
  if (spec.threads) return run_as_threads(spec);
  return run_rank_processes(spec, {spec.ranks, spec.nodes, spec.net, "ep-rank"});
}

Status run_bench_rank(const std::string& folder, const RankBody& body) {
  SWITCHYARD_ASSIGN(const nlohmann::json job, read_json(job_path(folder)));
  const auto environment = process_environment();
  SWITCHYARD_ASSIGN(const LaunchEnv launch, read_launch_env(environment));
  SWITCHYARD_ASSIGN(const UniqueId id, rendezvous(launch, environment, Deadline::after_ns(30 * kSecond)));
  if (job.value("bound_to_cores", false)) {  // with all threads that this one starts
    const Status bound = pin_current_thread({launch.rank, launch.num_ranks});
    if (!bound.ok()) log(LogLevel::kWarn, "rank ", launch.rank, " is measured unbound: ", bound.to_string());
  }
  Communicator::Options options;
  options.gin = job.value("gin", "");
  SWITCHYARD_ASSIGN(const std::unique_ptr<Communicator> comm,
                    Communicator::create(id, launch.rank, launch.num_ranks, options));
  SWITCHYARD_ASSIGN(const nlohmann::json result, body(job, *comm));
  if (launch.rank == 0) SWITCHYARD_TRY(write_json(result_path(folder), result));
  return {};
}

Result<TemporaryFolder> TemporaryFolder::create() {
  std::string path = (std::filesystem::temp_directory_path() / "switchyard-bench-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) return Status::system_error(text("making the folder ", path));
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // nobody is left to tell
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<nlohmann::json> read_json(const std::string& path) {
  std::ifstream file(path);
  nlohmann::json value = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return Status(Code::kSystemError, text("'", path, "' is missing or holds no JSON"));
  return value;
}

Status write_json(const std::string& path, const nlohmann::json& value) {
  std::ofstream file(path);
  if (file << value.dump(2) << '\n' && file.flush()) return {};
  return Status::invalid_argument(text("cannot write '", path, "'; name a file in a folder that exists"));
}

}  // namespace switchyard::tools
