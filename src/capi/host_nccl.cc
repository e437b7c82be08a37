// NCCL's host names on our communicator: joining, leaving, memory and windows.
#include "capi/host_nccl.hpp"

#include <cstring>
#include <thread>
#include <vector>

#include "comm/coordinator.hpp"
#include "platform/host/device.hpp"

namespace switchyard::capi {
namespace {

thread_local std::string t_last_error;

Status null_argument(const char* name) { return Status::invalid_argument(std::string(name) + " is NULL"); }

Status make_id(ncclUniqueId* out) {
  static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
  SWITCHYARD_ASSIGN(const UniqueId id, create_unique_id());
  std::memcpy(out, &id, sizeof(id));
  return {};
}

// COLLECTIVE.
Result<ncclComm_t> make_comm(std::unique_ptr<Communicator> joined, int device_ordinal) {
  auto made = std::make_shared<ncclComm>();
  made->comm = std::move(joined);
  SWITCHYARD_ASSIGN(made->collectives, coll::Collectives::create(*made->comm));
  made->device_ordinal = device_ordinal;
  return live_comms().add(std::move(made));
}

Status init_rank(ncclComm_t* out, int num_ranks, const ncclUniqueId& bytes, int rank, int device_ordinal) {
  if (out == nullptr) return null_argument("comm");
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), &bytes, sizeof(id));
  SWITCHYARD_TRY(id.validate());
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks) {
    return Status::invalid_argument(text("rank ", rank, " of ", num_ranks, ": needed are 0 <= rank < nranks"));
  }
  SWITCHYARD_ASSIGN(std::unique_ptr<Communicator> joined, Communicator::create(id, rank, num_ranks, {}));
  SWITCHYARD_ASSIGN(*out, make_comm(std::move(joined), device_ordinal));
  return {};
}

Status check_unused(ncclComm& comm) {
  const std::lock_guard lock(comm.mutex);
  if (comm.groups.empty()) return {};
  return Status::invalid_usage(text("group ", comm.groups.front(), " still uses this communicator",
                                    comm.groups.size() > 1 ? text(", and ", comm.groups.size() - 1, " more") : "",
                                    ": call ncclEpGroupDestroy first"));
}

}  // namespace

void set_last_error(std::string message) { t_last_error = std::move(message); }
const char* last_error() { return t_last_error.c_str(); }

Registry<ncclComm>& live_comms() {
  static auto& alive = *new Registry<ncclComm>("comm");  // never destroyed: at exit other threads may still make calls
  return alive;
}

}  // namespace switchyard::capi

using namespace switchyard;        // NOLINT: the file's only purpose is to give C names to this namespace
using namespace switchyard::capi;  // NOLINT

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  return guarded("ncclGetVersion", [&]() -> Status {
    if (version == nullptr) return null_argument("version");
    *version = NCCL_VERSION_CODE;
    return {};
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  if (int(result) < 0 || result >= ncclNumResults) return "unknown result code";
  return result == ncclSuccess ? "no error" : code_name(Code(int(result)));
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return last_error(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* out) {
  return guarded("ncclGetUniqueId",
                 [&]() -> Status { return out == nullptr ? null_argument("uniqueId") : make_id(out); });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return guarded("ncclCommInitRank",
                 [&] { return init_rank(comm, nranks, commId, rank, Device::current().ordinal()); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* /*config*/) {
  return ncclCommInitRank(comm, nranks, commId, rank);
}

// Ranks of one process, one per device: they join at the same time, so each needs a thread.
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ndev, const int* devlist) {
  return guarded("ncclCommInitAll", [&]() -> Status {
    if (comms == nullptr) return null_argument("comm");
    if (ndev < 1 || ndev > Device::kNumDevices) {
      return Status::invalid_argument(text("ndev is ", ndev, ", allowed 1..", Device::kNumDevices));
    }
    for (int rank = 0; devlist != nullptr && rank < ndev; ++rank) {
      if (devlist[rank] >= 0 && devlist[rank] < Device::kNumDevices) continue;
      return Status::invalid_argument(
          text("devlist[", rank, "] is ", devlist[rank], ", allowed 0..", Device::kNumDevices - 1));
    }
    ncclUniqueId id;
    SWITCHYARD_TRY(make_id(&id));
    std::vector<Status> results(static_cast<size_t>(ndev));
    std::vector<ncclComm_t> made(static_cast<size_t>(ndev), nullptr);
    std::vector<std::jthread> threads;
    // Where one can't be started, the others miss its rank until their time is up.
    const Status started = switchyard::guarded([&] {
      threads.reserve(size_t(ndev));
      for (int rank = 0; rank < ndev; ++rank) {
        threads.emplace_back([&, rank] {
          const int ordinal = devlist ? devlist[rank] : rank;
          results[size_t(rank)] =
              switchyard::guarded([&] { return init_rank(&made[size_t(rank)], ndev, id, rank, ordinal); });
        });
      }
    });
    threads.clear();  // joins
    if (!started.ok()) results[0] = Status(Code::kSystemError, text("no thread for each rank: ", started.message()));
    for (const Status& result : results) {
      if (result.ok()) continue;
      for (ncclComm_t comm : made) static_cast<void>(live_comms().remove(comm));  // null where it was not made
      return result;
    }
    std::copy(made.begin(), made.end(), comms);
    return {};
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* /*config*/) {
  return guarded("ncclCommSplit", [&]() -> Status {
    SWITCHYARD_ASSIGN(const CommPtr parent, live_comms().find(comm));
    if (newcomm == nullptr) return null_argument("newcomm");
    SWITCHYARD_ASSIGN(std::unique_ptr<Communicator> child, parent->comm->split(color, key));
    if (child == nullptr) {
      *newcomm = nullptr;
      return {};
    }
    SWITCHYARD_ASSIGN(*newcomm, make_comm(std::move(child), parent->device_ordinal));
    return {};
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded("ncclCommFinalize", [&] { return live_comms().find(comm).status(); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded("ncclCommDestroy", [&]() -> Status {
    if (comm == nullptr) return {};
    SWITCHYARD_ASSIGN(const CommPtr found, live_comms().find(comm));
    SWITCHYARD_TRY(check_unused(*found));
    return live_comms().remove(comm).status();
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded("ncclCommAbort", [&]() -> Status {
    // Calls of other threads, groups and posted collectives keep what they use until they have seen the abort.
    SWITCHYARD_ASSIGN(const CommPtr ended, live_comms().remove(comm));
    ended->comm->abort("ncclCommAbort was called");
    return {};
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return guarded("ncclCommGetAsyncError", [&]() -> Status {
    SWITCHYARD_ASSIGN(const CommPtr found, live_comms().find(comm));
    if (asyncError == nullptr) return null_argument("asyncError");
    const Status error = found->comm->async_error();
    if (!error.ok()) set_last_error(error.to_string());
    *asyncError = ncclResult_t(int(error.code()));
    return {};
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return guarded("ncclCommCount", [&]() -> Status {
    SWITCHYARD_ASSIGN(const CommPtr found, live_comms().find(comm));
    if (count == nullptr) return null_argument("count");
    *count = found->comm->num_ranks();
    return {};
  });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return guarded("ncclCommCuDevice", [&]() -> Status {
    SWITCHYARD_ASSIGN(const CommPtr found, live_comms().find(comm));
    if (device == nullptr) return null_argument("device");
    *device = found->device_ordinal;
    return {};
  });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return guarded("ncclCommUserRank", [&]() -> Status {
    SWITCHYARD_ASSIGN(const CommPtr found, live_comms().find(comm));
    if (rank == nullptr) return null_argument("rank");
    *rank = found->comm->rank();
    return {};
  });
}

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  return guarded("ncclMemAlloc", [&]() -> Status {
    if (ptr == nullptr) return null_argument("ptr");
    SWITCHYARD_ASSIGN(*ptr, host_runtime().allocate(size));
    return {};
  });
}

ncclResult_t ncclMemFree(void* ptr) {
  return guarded("ncclMemFree", [&] { return ptr == nullptr ? Status() : host_runtime().free(ptr); });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags) {
  return guarded("ncclCommWindowRegister", [&]() -> Status {
    SWITCHYARD_ASSIGN(const CommPtr found, live_comms().find(comm));
    if (win == nullptr) return null_argument("win");
    if ((winFlags & ~(NCCL_WIN_DEFAULT | NCCL_WIN_COLL_SYMMETRIC)) != 0) {
      return Status::invalid_argument(
          text("winFlags is ", winFlags, ", allowed NCCL_WIN_DEFAULT, NCCL_WIN_COLL_SYMMETRIC"));
    }
    SWITCHYARD_ASSIGN(Window * window, found->comm->register_window(buff, size));
    *win = handle_of(window);
    return {};
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return guarded("ncclCommWindowDeregister", [&]() -> Status {
    SWITCHYARD_ASSIGN(const CommPtr found, live_comms().find(comm));
    return win == nullptr ? Status() : found->comm->deregister_window(window_of(win));
  });
}

}  // extern "C"
