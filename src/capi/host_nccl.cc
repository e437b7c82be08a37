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

Status check_comm(ncclComm_t comm) {
  return comm != nullptr && comm->comm != nullptr ? Status() : null_argument("comm");
}

Status init_rank(ncclComm_t* out, int num_ranks, const ncclUniqueId& bytes, int rank, int device_ordinal) {
  if (out == nullptr) return null_argument("comm");
  static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), &bytes, sizeof(id));
  SWITCHYARD_TRY(id.validate());
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks) {
    return Status::invalid_argument(text("rank ", rank, " of ", num_ranks, ": needed are 0 <= rank < nranks"));
  }
  auto result = std::make_unique<ncclComm>();
  SWITCHYARD_ASSIGN(result->comm, Communicator::create(id, rank, num_ranks, {}));
  SWITCHYARD_ASSIGN(result->collectives, coll::Collectives::create(*result->comm));
  result->device_ordinal = device_ordinal;
  *out = result.release();
  return {};
}

}  // namespace

void set_last_error(const std::string& message) { t_last_error = message; }
const char* last_error() { return t_last_error.c_str(); }

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
  return guarded("ncclGetUniqueId", [&]() -> Status {
    if (out == nullptr) return null_argument("uniqueId");
    SWITCHYARD_ASSIGN(const UniqueId id, create_unique_id());
    std::memcpy(out, &id, sizeof(id));
    return {};
  });
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
    if (ncclGetUniqueId(&id) != ncclSuccess) return Status(Code::kSystemError, last_error());
    std::vector<Status> results(static_cast<size_t>(ndev));
    std::vector<ncclComm_t> made(static_cast<size_t>(ndev), nullptr);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ndev; ++rank) {
      threads.emplace_back([&, rank] {
        results[size_t(rank)] = init_rank(&made[size_t(rank)], ndev, id, rank, devlist ? devlist[rank] : rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& result : results) {
      if (result.ok()) continue;
      for (ncclComm_t comm : made) delete comm;
      return result;
    }
    std::copy(made.begin(), made.end(), comms);
    return {};
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* /*config*/) {
  return guarded("ncclCommSplit", [&]() -> Status {
    SWITCHYARD_TRY(check_comm(comm));
    if (newcomm == nullptr) return null_argument("newcomm");
    SWITCHYARD_ASSIGN(std::unique_ptr<Communicator> child, comm->comm->split(color, key));
    if (child == nullptr) {
      *newcomm = nullptr;
      return {};
    }
    auto made = std::make_unique<ncclComm>();
    made->comm = std::move(child);
    made->device_ordinal = comm->device_ordinal;
    SWITCHYARD_ASSIGN(made->collectives, coll::Collectives::create(*made->comm));
    *newcomm = made.release();
    return {};
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded("ncclCommFinalize", [&] { return check_comm(comm); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded("ncclCommDestroy", [&]() -> Status {
    delete comm;
    return {};
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded("ncclCommAbort", [&]() -> Status {
    SWITCHYARD_TRY(check_comm(comm));
    comm->comm->abort("ncclCommAbort was called");
    return {};
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return guarded("ncclCommGetAsyncError", [&]() -> Status {
    SWITCHYARD_TRY(check_comm(comm));
    if (asyncError == nullptr) return null_argument("asyncError");
    const Status error = comm->comm->async_error();
    if (!error.ok()) set_last_error(error.to_string());
    *asyncError = ncclResult_t(int(error.code()));
    return {};
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return guarded("ncclCommCount", [&]() -> Status {
    SWITCHYARD_TRY(check_comm(comm));
    if (count == nullptr) return null_argument("count");
    *count = comm->comm->num_ranks();
    return {};
  });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return guarded("ncclCommCuDevice", [&]() -> Status {
    SWITCHYARD_TRY(check_comm(comm));
    if (device == nullptr) return null_argument("device");
    *device = comm->device_ordinal;
    return {};
  });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return guarded("ncclCommUserRank", [&]() -> Status {
    SWITCHYARD_TRY(check_comm(comm));
    if (rank == nullptr) return null_argument("rank");
    *rank = comm->comm->rank();
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
    SWITCHYARD_TRY(check_comm(comm));
    if (win == nullptr) return null_argument("win");
    if ((winFlags & ~(NCCL_WIN_DEFAULT | NCCL_WIN_COLL_SYMMETRIC)) != 0) {
      return Status::invalid_argument(text("winFlags is ", winFlags, ", allowed NCCL_WIN_DEFAULT, NCCL_WIN_COLL_SYMMETRIC"));
    }
    SWITCHYARD_ASSIGN(Window* window, comm->comm->register_window(buff, size));
    *win = handle_of(window);
    return {};
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return guarded("ncclCommWindowDeregister", [&]() -> Status {
    SWITCHYARD_TRY(check_comm(comm));
    return win == nullptr ? Status() : comm->comm->deregister_window(window_of(win));
  });
}

}  // extern "C"
