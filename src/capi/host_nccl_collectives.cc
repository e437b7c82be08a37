// NCCL's collective names on ours, in stream order.
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

}  // namespace

extern "C" {

// Calls are posted at once and none blocks, so that a group has nothing to collect.
ncclResult_t ncclGroupStart(void) { return ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return ncclSuccess; }

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
