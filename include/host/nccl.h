/* NCCL's host API for machines without GPUs: the subset that an expert-parallel program uses.
 *
 * Communicators, windows and a few collectives over the project's own runtime. Types, enumerators and values equal NCCL
 * 2.28's; names are mapped to syhost_*, so that nothing clashes with NVIDIA's library in the same process.
 *
 * THREADS    as in NCCL: one thread at a time per communicator; ncclCommAbort() from any. Ranks may be threads of one
 *            process; each calls cudaSetDevice(local_rank) first.
 * OWNERSHIP  ncclCommDestroy() or ncclCommAbort() ends a communicator, once; windows are deregistered before that.
 *            Groups go before ncclCommDestroy(), which refuses otherwise; after ncclCommAbort() they can be destroyed
 *            still. A call that waits while another thread aborts returns an error; any later one does so at once.
 * ERRORS     a code, and ncclGetLastError() says who, what and what to do.
 * BLOCKING   creation, registration and destruction are collective, and end by SWITCHYARD_TIMEOUT_MS.
 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>

#include "cuda_runtime.h"

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22809
#define NCCL_VERSION(major, minor, patch)                                      \
  (((major) <= 2 && (minor) <= 8) ? (major) * 1000 + (minor) * 100 + (patch) \
                                  : (major) * 10000 + (minor) * 100 + (patch))

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
} ncclResult_t;

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

/* size, magic and version are set by NCCL_CONFIG_INITIALIZER; the rest is for the caller. What steers GPU resources has
 * no meaning on CPUs and is accepted without effect. */
typedef struct ncclConfig_v22800 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
} ncclConfig_t;

/* clang-format off */
#define NCCL_CONFIG_INITIALIZER                                                                    \
  { sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),            \
    /* blocking, cgaClusterSize, minCTAs, maxCTAs */                                               \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
    /* netName, splitShare, trafficClass, commName */                                              \
    NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR,    \
    /* collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched */ \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT }
/* clang-format on */

#define ncclGetVersion syhost_ncclGetVersion
#define ncclGetErrorString syhost_ncclGetErrorString
#define ncclGetLastError syhost_ncclGetLastError
#define ncclGetUniqueId syhost_ncclGetUniqueId
#define ncclCommInitRank syhost_ncclCommInitRank
#define ncclCommInitRankConfig syhost_ncclCommInitRankConfig
#define ncclCommInitAll syhost_ncclCommInitAll
#define ncclCommSplit syhost_ncclCommSplit
#define ncclCommFinalize syhost_ncclCommFinalize
#define ncclCommDestroy syhost_ncclCommDestroy
#define ncclCommAbort syhost_ncclCommAbort
#define ncclCommGetAsyncError syhost_ncclCommGetAsyncError
#define ncclCommCount syhost_ncclCommCount
#define ncclCommCuDevice syhost_ncclCommCuDevice
#define ncclCommUserRank syhost_ncclCommUserRank
#define ncclMemAlloc syhost_ncclMemAlloc
#define ncclMemFree syhost_ncclMemFree
#define ncclCommWindowRegister syhost_ncclCommWindowRegister
#define ncclCommWindowDeregister syhost_ncclCommWindowDeregister
#define ncclGroupStart syhost_ncclGroupStart
#define ncclGroupEnd syhost_ncclGroupEnd
#define ncclAllGather syhost_ncclAllGather
#define ncclAllReduce syhost_ncclAllReduce
#define ncclAlltoAll syhost_ncclAlltoAll
#define ncclBroadcast syhost_ncclBroadcast
#define ncclReduceScatter syhost_ncclReduceScatter
#define ncclSend syhost_ncclSend
#define ncclRecv syhost_ncclRecv

#ifdef __cplusplus
extern "C" {
#endif

SYHOST_API ncclResult_t ncclGetVersion(int* version);
SYHOST_API const char* ncclGetErrorString(ncclResult_t result);
/* The last error of the calling thread; the communicator may be NULL. */
SYHOST_API const char* ncclGetLastError(ncclComm_t comm);

/* One rank makes the id and hands it to the others; it says where they meet and holds the key of the job. */
SYHOST_API ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
SYHOST_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
SYHOST_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                               ncclConfig_t* config);
SYHOST_API ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);
SYHOST_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);
SYHOST_API ncclResult_t ncclCommFinalize(ncclComm_t comm);
SYHOST_API ncclResult_t ncclCommDestroy(ncclComm_t comm);
SYHOST_API ncclResult_t ncclCommAbort(ncclComm_t comm);
SYHOST_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
SYHOST_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
SYHOST_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
SYHOST_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);

/* Memory that windows can be made of, and windows: symmetric memory that every rank of the machine maps. */
SYHOST_API ncclResult_t ncclMemAlloc(void** ptr, size_t size);
SYHOST_API ncclResult_t ncclMemFree(void* ptr);
SYHOST_API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                               int winFlags);
SYHOST_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

/* Collectives, in stream order. A group collects sends and receives of this thread: those of a communicator then run as one
 * operation, none waiting for another, so that a group of one send and one receive per rank is an all-to-all-v. Other
 * collectives are posted at once, in a group too; they never block. If a call of a group fails, ncclGroupEnd() returns
 * that and posts no send or receive. */
SYHOST_API ncclResult_t ncclGroupStart(void);
SYHOST_API ncclResult_t ncclGroupEnd(void);
SYHOST_API ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                                      ncclComm_t comm, cudaStream_t stream);
SYHOST_API ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
SYHOST_API ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclComm_t comm, cudaStream_t stream);
SYHOST_API ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                      int root, ncclComm_t comm, cudaStream_t stream);
SYHOST_API ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                          ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                          cudaStream_t stream);
SYHOST_API ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                 cudaStream_t stream);
SYHOST_API ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                 cudaStream_t stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NCCL_H_ */
