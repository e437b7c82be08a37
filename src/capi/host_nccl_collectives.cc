// NCCL's collective names on ours, in stream order.
#include <algorithm>
#include <utility>
#include <vector>

#include "capi/host_nccl.hpp"
#include "capi/stream.hpp"

using namespace switchyard;        // NOLINT: the file's only purpose is to give C names to this namespace
using namespace switchyard::capi;  // NOLINT

namespace {

// The communicator may be destroyed or aborted at any time, and its memory is needed until the stream has passed.
Status keep_until_passed(const CommPtr& comm, StreamRef stream) {
  const Status kept = static_cast<Stream*>(stream.handle)->post([comm]() noexcept {});
  if (!kept.ok()) comm->leaked_self = comm;  // the operation is posted and can't be followed: rather leak than free
  return kept;
}

template <class Call>
ncclResult_t collective(const char* name, ncclComm_t comm, cudaStream_t stream, Call call) {
  return guarded(name, [&]() -> Status {
    SWITCHYARD_ASSIGN(const CommPtr found, live_comms().find(comm));
    SWITCHYARD_ASSIGN(const StreamRef target, read_stream(stream));
    SWITCHYARD_TRY(call(*found->collectives, target));
    return keep_until_passed(found, target);
  });
}

// Sends and receives that a group has collected for one communicator.
struct Collected {
  CommPtr comm;
  std::vector<cudaStream_t> streams;  // each once
  std::vector<coll::PairCall> calls;
};

struct Group {
  int depth = 0;
  Status failure;  // the first of its calls
  std::vector<Collected> collected;
};
thread_local Group t_group;

// One operation, on the first of the streams; the others wait for it, as it does for them.
Status post_collected(const Collected& collected) {
  std::vector<StreamRef> streams;
  for (const cudaStream_t stream : collected.streams) {
    SWITCHYARD_ASSIGN(streams.emplace_back(), read_stream(stream));
  }
  Runtime& runtime = collected.comm->comm->runtime();
  for (const StreamRef stream : streams) SWITCHYARD_TRY(runtime.order_after(streams[0], stream));
  SWITCHYARD_TRY(collected.comm->collectives->send_and_receive(collected.calls, streams[0]));
  SWITCHYARD_TRY(keep_until_passed(collected.comm, streams[0]));
  for (const StreamRef stream : streams) SWITCHYARD_TRY(runtime.order_after(stream, streams[0]));
  return {};
}

Status collect(ncclComm_t comm, cudaStream_t stream, const coll::PairCall& call) {
  SWITCHYARD_ASSIGN(CommPtr found, live_comms().find(comm));
  SWITCHYARD_TRY(found->collectives->check(call));
  if (t_group.depth == 0) return post_collected({std::move(found), {stream}, {call}});
  auto& all = t_group.collected;
  auto mine = std::find_if(all.begin(), all.end(), [&](const Collected& other) { return other.comm == found; });
  if (mine == all.end()) mine = all.insert(all.end(), {std::move(found), {}, {}});
  if (std::find(mine->streams.begin(), mine->streams.end(), stream) == mine->streams.end())
    mine->streams.push_back(stream);
  mine->calls.push_back(call);
  return {};
}

ncclResult_t pair_call(const char* name, ncclComm_t comm, cudaStream_t stream, const coll::PairCall& call) {
  return guarded(name, [&] {
    const Status collected = collect(comm, stream, call);
    if (t_group.depth > 0 && t_group.failure.ok()) t_group.failure = collected;
    return collected;
  });
}

}  // namespace

extern "C" {

ncclResult_t ncclGroupStart(void) {
  ++t_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  return guarded("ncclGroupEnd", []() -> Status {
    if (t_group.depth == 0) return Status::invalid_usage("there is no group: call ncclGroupStart first");
    if (--t_group.depth > 0) return {};
    const Group group = std::exchange(t_group, {});
    SWITCHYARD_TRY(group.failure);
    for (const Collected& collected : group.collected) SWITCHYARD_TRY(post_collected(collected));
    return {};
  });
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return pair_call("ncclSend", comm, stream, {true, peer, const_cast<void*>(sendbuff), count, DType(int(datatype))});
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return pair_call("ncclRecv", comm, stream, {false, peer, recvbuff, count, DType(int(datatype))});
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream) {
  return collective("ncclAlltoAll", comm, stream, [&](coll::Collectives& c, StreamRef target) {
    return c.all_to_all(sendbuff, recvbuff, count, DType(int(datatype)), target);
  });
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllGather", comm, stream, [&](coll::Collectives& c, StreamRef target) {
    return c.all_gather(sendbuff, recvbuff, sendcount, DType(int(datatype)), target);
  });
}

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllReduce", comm, stream, [&](coll::Collectives& c, StreamRef target) {
    return c.all_reduce(sendbuff, recvbuff, count, DType(int(datatype)), coll::ReduceOp(int(op)), target);
  });
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclBroadcast", comm, stream, [&](coll::Collectives& c, StreamRef target) {
    return c.broadcast(sendbuff, recvbuff, count, DType(int(datatype)), root, target);
  });
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduceScatter", comm, stream, [&](coll::Collectives& c, StreamRef target) {
    return c.reduce_scatter(sendbuff, recvbuff, recvcount, DType(int(datatype)), coll::ReduceOp(int(op)), target);
  });
}

}  // extern "C"
