/* Expert-parallel dispatch and combine: the C API.
 *
 * Dispatch sends each token's row to the ranks that hold its top-k experts; combine brings the experts' rows back and
 * adds them up. A group owns the buffers shared by all ranks of a communicator, a handle owns the routing of one batch.
 *
 * The order of use:
 *   ncclEpCreateGroup -> ncclEpCreateHandle (or InitHandle + UpdateHandle) -> ncclEpDispatch -> the experts run ->
 *   ncclEpCombine -> ncclEpHandleDestroy -> ncclEpGroupDestroy
 *
 * Letters used below: R ranks, E experts, L experts of this rank, T max_dispatch_tokens_per_rank, n tokens that this
 * rank dispatches now, K experts per token (top-k), H elements of a token row, N rows of a receive tensor, S scales per
 * row.
 *
 * THREADS    Different groups may be used by different threads. Calls on one group, and on its handles, must come from
 *            one thread at a time. All ranks issue the collective calls of a group in the same order; they then execute
 *            in that order, on whatever streams they were issued.
 * OWNERSHIP  Descriptors (configs, input and output structs, tensors) belong to the caller and may go once a call has
 *            returned. The memory they point to must stay valid until the stream has passed the operation, and that of
 *            topk_idx in a low-latency handle until the last operation of that routing has run.
 * ERRORS     Every function returns an ncclResult_t. A failing call changes neither the caller's memory nor its output
 *            pointers. ncclInvalidArgument: a value that can never work. ncclInvalidUsage: a valid value at the wrong
 *            moment or in the wrong configuration. ncclRemoteError: a peer died or did not answer by the deadline.
 * BLOCKING   "never" = local work only. "until deadline" = the host waits for peers or for the device, at most as long
 *            as the group's time limit. Operations that take a stream are enqueued on it unless their comment differs;
 *            a stream of CPUs holds 256, and who enqueues more waits for the first of them.
 */
#ifndef NCCL_EP_H_
#define NCCL_EP_H_

#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <nccl.h>

#include "nccl_ep/ep_enums.h"

/* Version of the library. Build systems read these three lines: one space on either side of the name. */
#define NCCL_EP_MAJOR 0
#define NCCL_EP_MINOR 1
#define NCCL_EP_PATCH 0
#define NCCL_EP_VERSION_CODE (NCCL_EP_MAJOR * 10000 + NCCL_EP_MINOR * 100 + NCCL_EP_PATCH)

/* Version of the structs below: the highest version of any of them. */
#define NCCL_EP_API_VERSION 2

/* Second word of every struct that is passed by itself; catches memory that was never initialised. */
#define NCCL_EP_MAGIC 0xC00FFFEEu
#define NCCL_EP_TENSOR_MAGIC 0xCAFECAFE

/* Two 4-bit floats in a byte. NCCL has no name for it yet; one that does may define the macro first. */
#ifndef ncclFloat4x2
#define ncclFloat4x2 ((ncclDataType_t)12)
#endif

#if defined(__GNUC__)
#define NCCL_EP_API __attribute__((visibility("default")))
#else
#define NCCL_EP_API
#endif

/* ---- Versioned structs -------------------------------------------------------------------------------------------
 *
 * A struct that is passed by itself starts with its size, as the caller was compiled, and a magic word. Fields are
 * only ever appended; each version's end is frozen in a pair <BASE>_V<n>_LAST_FIELD, <BASE>_V<n>_SIZE. The library
 * accepts any size from V1 on: fields that an older caller lacks take their defaults, bytes that a newer one adds are
 * ignored. A smaller size or another magic is ncclInvalidArgument before anything else happens. Always start from
 * <BASE>_INIT. */

/* A struct of this type, zero except for its size and magic (and version). C++ has no compound literals, and compilers
 * that accept them warn about the fields left out; functions give the same values there. */
#ifdef __cplusplus
template <class Struct>
constexpr Struct ncclEpStructInit_(unsigned int magic) {
  Struct fresh = {};
  fresh.size = (unsigned int)sizeof(Struct);
  fresh.magic = magic;
  return fresh;
}
template <class Struct>
constexpr Struct ncclEpStructInit_(unsigned int magic, unsigned int version) {
  Struct fresh = ncclEpStructInit_<Struct>(magic);
  fresh.version = version;
  return fresh;
}
#define NCCL_EP_STRUCT_INIT(type, magic_word) (ncclEpStructInit_<type>(magic_word))
#define NCCL_EP_STRUCT_INIT_VERSION_(type, magic_word, api) (ncclEpStructInit_<type>(magic_word, api))
#else
#define NCCL_EP_STRUCT_INIT(type, magic_word) ((type){.size = (unsigned)sizeof(type), .magic = magic_word})
#define NCCL_EP_STRUCT_INIT_VERSION_(type, magic_word, api) \
  ((type){.size = (unsigned)sizeof(type), .magic = magic_word, .version = api})
#endif

/* Offset of the first byte after a field. */
#define NCCL_EP_FIELD_END(type, field) ((unsigned)(offsetof(type, field) + sizeof(((type*)0)->field)))

/* Does the caller's struct reach as far as this field? */
#define NCCL_EP_HAS_FIELD(ptr, type, field) ((ptr) != NULL && (ptr)->size >= NCCL_EP_FIELD_END(type, field))

#if defined(__cplusplus)
#define NCCL_EP_STATIC_ASSERT(cond, msg) static_assert(cond, msg)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define NCCL_EP_STATIC_ASSERT(cond, msg) _Static_assert(cond, msg)
#else
#define NCCL_EP_STATIC_ASSERT(cond, msg)
#endif

/* The header words are where they belong, and the current version ends where it was frozen. */
#define NCCL_EP_STATIC_ASSERT_STRUCT_ABI(type, BASE) \
  NCCL_EP_STATIC_ASSERT_STRUCT_ABI_EXPAND_(type, BASE, BASE##_CURRENT_VERSION)
#define NCCL_EP_STATIC_ASSERT_STRUCT_ABI_EXPAND_(type, BASE, version) \
  NCCL_EP_STATIC_ASSERT_STRUCT_ABI_IMPL_(type, BASE, version)
#define NCCL_EP_STATIC_ASSERT_STRUCT_ABI_IMPL_(type, BASE, version)                                         \
  NCCL_EP_STATIC_ASSERT(offsetof(type, size) == 0, #type ": size must come first");                         \
  NCCL_EP_STATIC_ASSERT(offsetof(type, magic) == sizeof(unsigned int), #type ": magic must follow size");   \
  NCCL_EP_STATIC_ASSERT(sizeof(type) == BASE##_V##version##_SIZE, #type ": size differs from its version"); \
  NCCL_EP_STATIC_ASSERT(version <= NCCL_EP_API_VERSION, #type ": newer than the API version")

/* Version v still ends where it was frozen. */
#define NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(type, BASE, v)                                 \
  NCCL_EP_STATIC_ASSERT(NCCL_EP_FIELD_END(type, BASE##_V##v##_LAST_FIELD) == BASE##_V##v##_SIZE, \
                        #type ": the end of version " #v " moved")

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tensors ---------------------------------------------------------------------------------------------------- */

/* A dense row-major array in device memory. Its place is `data`, or, where that is NULL, an offset into a window. A
 * tensor with a zero extent is empty and may leave both NULL. */
typedef struct ncclEpTensor {
  unsigned int size;
  unsigned int magic;
  unsigned int ndim;
  ncclDataType_t datatype;
  void* data;           /* NULL: at win_offset inside win_hdl */
  ncclWindow_t win_hdl; /* NULL: plain memory */
  uint64_t win_offset;  /* bytes */
  size_t* sizes;        /* ndim extents; stay the caller's, unless ncclEpTensorAlloc made them */
} ncclEpTensor_t;

#define NCCL_EP_TENSOR_V1_LAST_FIELD sizes
#define NCCL_EP_TENSOR_V1_SIZE 48u
#define NCCL_EP_TENSOR_CURRENT_VERSION 1
#define NCCL_EP_TENSOR_SIZE ((unsigned int)sizeof(ncclEpTensor_t))
/* The leading designators, for a braced initialiser that goes on with its own fields. */
#define NCCL_EP_TENSOR_INIT_INLINE .size = NCCL_EP_TENSOR_SIZE, .magic = NCCL_EP_TENSOR_MAGIC
#define NCCL_EP_TENSOR_INIT NCCL_EP_STRUCT_INIT(ncclEpTensor_t, NCCL_EP_TENSOR_MAGIC)

typedef struct {
  unsigned int size;
  unsigned int magic;
} ncclEpTensorAllocConfig_t;

#define NCCL_EP_TENSOR_ALLOC_CONFIG_V1_LAST_FIELD magic
#define NCCL_EP_TENSOR_ALLOC_CONFIG_V1_SIZE 8u
#define NCCL_EP_TENSOR_ALLOC_CONFIG_CURRENT_VERSION 1
#define NCCL_EP_TENSOR_ALLOC_CONFIG_SIZE ((unsigned int)sizeof(ncclEpTensorAllocConfig_t))
#define NCCL_EP_TENSOR_ALLOC_CONFIG_INIT NCCL_EP_STRUCT_INIT(ncclEpTensorAllocConfig_t, NCCL_EP_MAGIC)

/* ---- Groups ----------------------------------------------------------------------------------------------------- */

typedef struct ncclEpGroup* ncclEpGroup_t;

/* Device memory from the caller's own allocator. Called on the thread that creates or destroys the group or handle. */
typedef cudaError_t (*ncclEpAllocFn_t)(void** ptr, size_t size, void* context);
typedef cudaError_t (*ncclEpFreeFn_t)(void* ptr, void* context);

/* Both functions or neither; `context` is handed to them untouched. Embedded only, so it has no header words. */
typedef struct {
  ncclEpAllocFn_t alloc_fn;
  ncclEpFreeFn_t free_fn;
  void* context;
} ncclEpAllocConfig_t;

/* Must be equal on all ranks, except `alloc`. */
typedef struct {
  unsigned int size;
  unsigned int magic;
  unsigned int version; /* NCCL_EP_API_VERSION of the caller; a newer one than the library's is only noted */
  ncclEpAlgorithm_t algorithm;
  unsigned int num_experts;                  /* E, at least 1 */
  unsigned int max_dispatch_tokens_per_rank; /* T, at least 1 */
  unsigned int max_recv_tokens_per_rank;     /* high throughput: row budget of a rank, at least T; 0: eager, the caller
                                                sizes its outputs by recv_total_counter. Low latency: unused */
  unsigned int max_token_bytes;              /* largest token row plus its scales; high throughput: multiple of 16 */
  unsigned long rdma_buffer_size;            /* low latency: bytes to allocate now; 0: as the handles need it */
  unsigned int num_qp_per_rank;              /* network queues per peer; 0: the library decides */
  unsigned int num_channels;                 /* reserved */
  unsigned int max_num_sms;                  /* processors an operation may use; 0: the library decides */
  ncclEpAllocConfig_t alloc;                 /* all NULL: cudaMalloc and cudaFree */
  unsigned int enable_mask;                  /* non-zero: failed ranks can be masked (ncclEpMask...) */
  uint64_t timeout_ns;                       /* limit of one wait on a peer; 0: 100 s. NCCL_EP_TIMEOUT_MS overrides */
  /* version 2 */
  ncclEpZeroCopyMode_t zero_copy;
  ncclEpOverflowPolicy_t overflow_policy; /* high throughput */
  unsigned int num_topk;                  /* high throughput: bound of K, at most E; eager EXPERT_MAJOR needs it */
  unsigned char padding_v2[4];
} ncclEpGroupConfig_t;

#define NCCL_EP_GROUP_CONFIG_V1_LAST_FIELD timeout_ns
#define NCCL_EP_GROUP_CONFIG_V1_SIZE 96u
#define NCCL_EP_GROUP_CONFIG_V2_LAST_FIELD padding_v2
#define NCCL_EP_GROUP_CONFIG_V2_SIZE 112u
#define NCCL_EP_GROUP_CONFIG_CURRENT_VERSION 2
#define NCCL_EP_GROUP_CONFIG_SIZE ((unsigned int)sizeof(ncclEpGroupConfig_t))
#define NCCL_EP_GROUP_CONFIG_INIT NCCL_EP_STRUCT_INIT_VERSION_(ncclEpGroupConfig_t, NCCL_EP_MAGIC, NCCL_EP_API_VERSION)

/* ---- Handles ---------------------------------------------------------------------------------------------------- */

typedef struct ncclEpHandle* ncclEpHandle_t;

typedef struct {
  unsigned int size;
  unsigned int magic;
  size_t dispatch_output_per_expert_alignment; /* high throughput EXPERT_MAJOR: each expert's zone is padded with zero
                                                  rows to this power of two; 0 or 1: no padding */
} ncclEpHandleConfig_t;

#define NCCL_EP_HANDLE_CONFIG_V1_LAST_FIELD dispatch_output_per_expert_alignment
#define NCCL_EP_HANDLE_CONFIG_V1_SIZE 16u
#define NCCL_EP_HANDLE_CONFIG_CURRENT_VERSION 1
#define NCCL_EP_HANDLE_CONFIG_SIZE ((unsigned int)sizeof(ncclEpHandleConfig_t))
#define NCCL_EP_HANDLE_CONFIG_INIT NCCL_EP_STRUCT_INIT(ncclEpHandleConfig_t, NCCL_EP_MAGIC)

/* What the caller wants to know about received rows. Every pointer may be NULL unless noted.
 * High throughput fills them when the handle is updated (counts are int32 or int64, one width for all in EXPERT_MAJOR;
 * FLAT expert_counters are int32), low latency when the dispatch runs (int32). */
typedef struct {
  unsigned int size;
  unsigned int magic;
  ncclEpTensor_t* expert_counters;    /* [L] rows per local expert; low latency EXPERT_MAJOR requires it, RANK_MAJOR
                                         refuses it. High throughput EXPERT_MAJOR counts include the padding */
  ncclEpTensor_t* src_rank_counters;  /* [R] rows per source; low latency RANK_MAJOR only */
  ncclEpTensor_t* expert_offsets;     /* [L] first row of each zone; high throughput EXPERT_MAJOR only */
  ncclEpTensor_t* recv_total_counter; /* [1] rows that were sent here, dropped ones included; high throughput only */
  /* version 2 */
  ncclEpExpertIdKind_t recv_topk_idx_kind; /* read by the dispatch of RANK_MAJOR and FLAT */
  unsigned char padding_v2[4];
} ncclEpLayoutInfo_t;

#define NCCL_EP_LAYOUT_INFO_V1_LAST_FIELD recv_total_counter
#define NCCL_EP_LAYOUT_INFO_V1_SIZE 40u
#define NCCL_EP_LAYOUT_INFO_V2_LAST_FIELD padding_v2
#define NCCL_EP_LAYOUT_INFO_V2_SIZE 48u
#define NCCL_EP_LAYOUT_INFO_CURRENT_VERSION 2
#define NCCL_EP_LAYOUT_INFO_SIZE ((unsigned int)sizeof(ncclEpLayoutInfo_t))
#define NCCL_EP_LAYOUT_INFO_INIT NCCL_EP_STRUCT_INIT(ncclEpLayoutInfo_t, NCCL_EP_MAGIC)

/* ---- Dispatch --------------------------------------------------------------------------------------------------- */

typedef enum {
  NCCL_EP_DISP_QUANT_NONE = 0,      /* rows of BF16, FP16 or FP32; no scales */
  NCCL_EP_DISP_QUANT_FWD = 1,       /* rows and scales that the caller quantised travel as they are */
  NCCL_EP_DISP_QUANT_DS_FP8E3M4 = 2 /* low latency: BF16 in, FP8 E4M3 out with one FP32 scale per 128 elements */
} ncclEpDispQuant_t;

typedef struct {
  unsigned int size;
  unsigned int magic;
  ncclEpTensor_t* tokens;       /* [n, H] */
  ncclEpTensor_t* topk_weights; /* [n, K] FP32; NULL in low-latency EXPERT_MAJOR and in backward passes */
  ncclEpTensor_t* scales;       /* [n, S]; QUANT_FWD only */
} ncclEpDispatchInputs_t;

#define NCCL_EP_DISPATCH_INPUTS_V1_LAST_FIELD scales
#define NCCL_EP_DISPATCH_INPUTS_V1_SIZE 32u
#define NCCL_EP_DISPATCH_INPUTS_CURRENT_VERSION 1
#define NCCL_EP_DISPATCH_INPUTS_SIZE ((unsigned int)sizeof(ncclEpDispatchInputs_t))
#define NCCL_EP_DISPATCH_INPUTS_INIT NCCL_EP_STRUCT_INIT(ncclEpDispatchInputs_t, NCCL_EP_MAGIC)

/* Rows: low latency EXPERT_MAJOR [L, R*T, .], RANK_MAJOR [R, T, .]; high throughput [N, .]. */
typedef struct {
  unsigned int size;
  unsigned int magic;
  ncclEpTensor_t* tokens;       /* rows of H */
  ncclEpTensor_t* topk_weights; /* FP32. RANK_MAJOR, FLAT: rows of K; high throughput EXPERT_MAJOR: [N]; else NULL */
  ncclEpTensor_t* scales;       /* rows of S; NULL without a recipe */
  ncclEpTensor_t* topk_idx;     /* rows of K: RANK_MAJOR int32 at the sender's positions, -1 elsewhere; FLAT int64, the
                                   experts of this rank in ascending order, then -1; else NULL */
} ncclEpDispatchOutputs_t;

#define NCCL_EP_DISPATCH_OUTPUTS_V1_LAST_FIELD topk_idx
#define NCCL_EP_DISPATCH_OUTPUTS_V1_SIZE 40u
#define NCCL_EP_DISPATCH_OUTPUTS_CURRENT_VERSION 1
#define NCCL_EP_DISPATCH_OUTPUTS_SIZE ((unsigned int)sizeof(ncclEpDispatchOutputs_t))
#define NCCL_EP_DISPATCH_OUTPUTS_INIT NCCL_EP_STRUCT_INIT(ncclEpDispatchOutputs_t, NCCL_EP_MAGIC)

typedef struct {
  unsigned int size;
  unsigned int magic;
  unsigned int send_only;         /* low latency: only the sending half; ncclEpComplete does the rest */
  unsigned int round_scales;      /* DS_FP8E3M4: scales are powers of two */
  ncclEpPassDir_t pass_direction; /* low latency knows the forward pass only */
  /* version 2 */
  ncclEpDispQuant_t quant_recipe;
} ncclEpDispatchConfig_t;

#define NCCL_EP_DISPATCH_CONFIG_V1_LAST_FIELD pass_direction
#define NCCL_EP_DISPATCH_CONFIG_V1_SIZE 20u
#define NCCL_EP_DISPATCH_CONFIG_V2_LAST_FIELD quant_recipe
#define NCCL_EP_DISPATCH_CONFIG_V2_SIZE 24u
#define NCCL_EP_DISPATCH_CONFIG_CURRENT_VERSION 2
#define NCCL_EP_DISPATCH_CONFIG_SIZE ((unsigned int)sizeof(ncclEpDispatchConfig_t))
#define NCCL_EP_DISPATCH_CONFIG_INIT NCCL_EP_STRUCT_INIT(ncclEpDispatchConfig_t, NCCL_EP_MAGIC)

/* ---- Combine ---------------------------------------------------------------------------------------------------- */

typedef enum {
  NCCL_EP_COMB_QUANT_NONE = 0,
  NCCL_EP_COMB_QUANT_NVFP4 = 1 /* low latency: BF16 rows cross as 4-bit floats; where the device supports it */
} ncclEpCombQuant_t;

typedef struct {
  unsigned int size;
  unsigned int magic;
  ncclEpTensor_t* tokens;       /* the experts' rows, in the places where the dispatch put theirs */
  ncclEpTensor_t* topk_weights; /* backward: gradients of the received weights; otherwise NULL */
  /* version 2 */
  ncclEpTensor_t* scales; /* NVFP4: one FP32 per row, 2688 / the row's largest magnitude */
} ncclEpCombineInputs_t;

#define NCCL_EP_COMBINE_INPUTS_V1_LAST_FIELD topk_weights
#define NCCL_EP_COMBINE_INPUTS_V1_SIZE 24u
#define NCCL_EP_COMBINE_INPUTS_V2_LAST_FIELD scales
#define NCCL_EP_COMBINE_INPUTS_V2_SIZE 32u
#define NCCL_EP_COMBINE_INPUTS_CURRENT_VERSION 2
#define NCCL_EP_COMBINE_INPUTS_SIZE ((unsigned int)sizeof(ncclEpCombineInputs_t))
#define NCCL_EP_COMBINE_INPUTS_INIT NCCL_EP_STRUCT_INIT(ncclEpCombineInputs_t, NCCL_EP_MAGIC)

typedef struct {
  unsigned int size;
  unsigned int magic;
  ncclEpTensor_t* tokens;       /* [n, H] in the tokens' original order */
  ncclEpTensor_t* topk_weights; /* [n, K] FP32. Low-latency EXPERT_MAJOR READS the routing weights from here; a backward
                                   pass writes the weights' gradients; otherwise ignored */
} ncclEpCombineOutputs_t;

#define NCCL_EP_COMBINE_OUTPUTS_V1_LAST_FIELD topk_weights
#define NCCL_EP_COMBINE_OUTPUTS_V1_SIZE 24u
#define NCCL_EP_COMBINE_OUTPUTS_CURRENT_VERSION 1
#define NCCL_EP_COMBINE_OUTPUTS_SIZE ((unsigned int)sizeof(ncclEpCombineOutputs_t))
#define NCCL_EP_COMBINE_OUTPUTS_INIT NCCL_EP_STRUCT_INIT(ncclEpCombineOutputs_t, NCCL_EP_MAGIC)

typedef struct {
  unsigned int size;
  unsigned int magic;
  unsigned int send_only;         /* as in a dispatch */
  ncclEpPassDir_t pass_direction; /* as in a dispatch */
  /* version 2 */
  ncclEpCombQuant_t quant_recipe;
} ncclEpCombineConfig_t;

#define NCCL_EP_COMBINE_CONFIG_V1_LAST_FIELD pass_direction
#define NCCL_EP_COMBINE_CONFIG_V1_SIZE 16u
#define NCCL_EP_COMBINE_CONFIG_V2_LAST_FIELD quant_recipe
#define NCCL_EP_COMBINE_CONFIG_V2_SIZE 20u
#define NCCL_EP_COMBINE_CONFIG_CURRENT_VERSION 2
#define NCCL_EP_COMBINE_CONFIG_SIZE ((unsigned int)sizeof(ncclEpCombineConfig_t))
#define NCCL_EP_COMBINE_CONFIG_INIT NCCL_EP_STRUCT_INIT(ncclEpCombineConfig_t, NCCL_EP_MAGIC)

typedef struct ncclEpCompleteConfig {
  unsigned int size;
  unsigned int magic;
} ncclEpCompleteConfig_t;

#define NCCL_EP_COMPLETE_CONFIG_V1_LAST_FIELD magic
#define NCCL_EP_COMPLETE_CONFIG_V1_SIZE 8u
#define NCCL_EP_COMPLETE_CONFIG_CURRENT_VERSION 1
#define NCCL_EP_COMPLETE_CONFIG_SIZE ((unsigned int)sizeof(ncclEpCompleteConfig_t))
#define NCCL_EP_COMPLETE_CONFIG_INIT NCCL_EP_STRUCT_INIT(ncclEpCompleteConfig_t, NCCL_EP_MAGIC)

/* ---- Functions: library and tensors ----------------------------------------------------------------------------- */

/* EFFECTS  *version = NCCL_EP_VERSION_CODE of the library, which may differ from the header's.  BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpGetVersion(int* version);

/* Makes a descriptor on the heap, with its own copy of `sizes`; the caller then sets `data`, or the window fields.
 * REQUIRES  ndim > 0; config may be NULL.  EFFECTS  allocates no device memory.  BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpTensorAlloc(ncclEpTensor_t** tensor, unsigned int ndim, ncclDataType_t datatype,
                                           const size_t* sizes, const ncclEpTensorAllocConfig_t* config);

/* REQUIRES  NULL, or a descriptor of ncclEpTensorAlloc whose `sizes` pointer is still its own (extents may be edited).
 * EFFECTS   frees the descriptor, never `data`.  BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpTensorDestroy(ncclEpTensor_t* tensor);

/* ---- Functions: groups ------------------------------------------------------------------------------------------ */

/* Collective over comm.
 * REQUIRES  the same config on all ranks; comm outlives the group; not during graph capture.
 * EFFECTS   allocates the buffers that all handles of the group share.  BLOCKING until deadline. */
NCCL_EP_API ncclResult_t ncclEpCreateGroup(ncclEpGroup_t* ep_group, ncclComm_t comm, const ncclEpGroupConfig_t* config);

/* Collective over comm. NULL succeeds.
 * REQUIRES  every handle of the group is destroyed; comm still exists, or was aborted.
 * EFFECTS   waits for the device and the other ranks, then frees the shared buffers. Where a rank does not come, the
 *           call says so; the group is gone either way.  BLOCKING until deadline. */
NCCL_EP_API ncclResult_t ncclEpGroupDestroy(ncclEpGroup_t ep_group);

/* ---- Functions: handles ----------------------------------------------------------------------------------------- */

/* Bytes of device memory that a handle of this shape needs, for callers that provide it themselves.
 * REQUIRES  a layout that the group's algorithm supports; num_topk >= 1; config may be NULL.  BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpHandleMemSize(ncclEpGroup_t ep_group, ncclEpLayout_t layout,
                                             const ncclEpHandleConfig_t* config, size_t* size_out, int num_topk);

/* Makes a handle without routing.
 * REQUIRES  handle_mem is NULL (the library allocates) or a 1-D ncclUint8 tensor of ncclEpHandleMemSize bytes that
 *           outlives the handle and what was enqueued with it; not during graph capture. In a low-latency group without
 *           rdma_buffer_size all ranks call it in the same order with the same shape and no operation in flight, because
 *           the shared buffer may grow.
 * EFFECTS   handle_mem is used as it is. High throughput: a new handle over the memory of an old one keeps its routing.
 *           Low latency: it keeps what the last dispatch received, and needs ncclEpUpdateHandle before its first use.
 * BLOCKING  never, except where the shared buffer grows: until deadline. */
NCCL_EP_API ncclResult_t ncclEpInitHandle(ncclEpHandle_t* handle, ncclEpGroup_t ep_group, ncclEpLayout_t layout,
                                          const ncclEpHandleConfig_t* config, int num_topk,
                                          const ncclEpTensor_t* handle_mem);

/* Gives the handle the routing of a batch; may be called again for the next one. High throughput: collective, exchanges
 * the routing and fills layout_info on the stream. Low latency: local, remembers where topk_idx lies.
 * REQUIRES  topk_idx is [n, K] int32 or int64 with n <= T, the handle's K, and entries -1 (no expert) or 0 .. E-1;
 *           layout_info may be NULL, and must be in low latency.  BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpUpdateHandle(ncclEpHandle_t handle, const ncclEpTensor_t* topk_idx,
                                            const ncclEpLayoutInfo_t* layout_info, cudaStream_t stream);

/* ncclEpInitHandle with K from topk_idx and library memory, then ncclEpUpdateHandle; the rules of both apply. */
NCCL_EP_API ncclResult_t ncclEpCreateHandle(ncclEpHandle_t* handle, ncclEpGroup_t ep_group, ncclEpLayout_t layout,
                                            const ncclEpTensor_t* topk_idx, const ncclEpLayoutInfo_t* layout_info,
                                            const ncclEpHandleConfig_t* config, cudaStream_t stream);

/* Local; NULL succeeds.
 * EFFECTS   frees library memory only, when what was enqueued in the group so far has run. The caller's handle_mem must
 *           stay that long.
 * BLOCKING  never, except where half of a staged operation is dropped, or the memory of 64 handles waits to be freed:
 *           until what was enqueued has run. */
NCCL_EP_API ncclResult_t ncclEpHandleDestroy(ncclEpHandle_t handle);

/* ---- Functions: operations -------------------------------------------------------------------------------------- */

/* Collective. Sends the rows of inputs->tokens to the ranks of their experts, fills `outputs` with what arrives here.
 * REQUIRES  tensors as the structs above state for the handle's algorithm and layout; layout_info, config may be NULL
 *           where nothing in them is required. A rank without tokens (n = 0) takes part all the same.
 * EFFECTS   rows that nothing was sent for are left as they were, except alignment padding, which is zeroed, and the
 *           unused entries of RANK_MAJOR topk_idx, which become -1. The order of rows is the same in every run.
 * BLOCKING  never in low latency; until deadline in high throughput when the number of rows decides a size (eager). */
NCCL_EP_API ncclResult_t ncclEpDispatch(ncclEpHandle_t handle, const ncclEpDispatchInputs_t* inputs,
                                        const ncclEpDispatchOutputs_t* outputs, const ncclEpLayoutInfo_t* layout_info,
                                        const ncclEpDispatchConfig_t* config, cudaStream_t stream);

/* Collective. Returns the experts' rows to the tokens' owners and adds them up in FP32, in a fixed order, rounded once
 * to the token type (once more for the part that another node contributes). Low-latency EXPERT_MAJOR multiplies by the
 * routing weights on the way; all other forms add plain rows. A token without experts becomes zeros.
 * REQUIRES  inputs laid out as the last dispatch of this handle left its outputs; config may be NULL.
 * BLOCKING  never; eager high throughput as ncclEpDispatch, where that did not come before. */
NCCL_EP_API ncclResult_t ncclEpCombine(ncclEpHandle_t handle, const ncclEpCombineInputs_t* inputs,
                                       const ncclEpCombineOutputs_t* outputs, const ncclEpCombineConfig_t* config,
                                       cudaStream_t stream);

/* Collective where an operation is pending. Runs the receiving half of the handle's oldest send_only operation; with
 * none pending it succeeds and does nothing.
 * REQUIRES  config may be NULL. At most two staged operations of a group are pending at a time; a third is
 *           ncclInvalidUsage when it is issued.  BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpComplete(ncclEpHandle_t handle, const ncclEpCompleteConfig_t* config,
                                        cudaStream_t stream);

/* ---- Functions: failed ranks ------------------------------------------------------------------------------------
 *
 * A rank that does not answer within the time limit is masked: nothing is sent to it or awaited from it, and its
 * experts contribute nothing. Masks are local; ranks may disagree until ncclEpMaskClean. All five functions are
 * ncclInvalidUsage in a group without enable_mask. */

/* EFFECTS  mask_status (device, int[R]) receives 1 for active ranks, 0 for masked ones.  BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpMaskQuery(ncclEpGroup_t ep_group, int* mask_status, cudaStream_t stream);

/* REQUIRES  mask (host, int[R]) holds 1 or 0 per rank.
 * EFFECTS   replaces the local mask on the stream.  BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpMaskUpdate(ncclEpGroup_t ep_group, const int* mask, cudaStream_t stream);

/* Collective over the ranks that are active here.
 * REQUIRES  no operation in flight; not during graph capture.
 * EFFECTS   the survivors agree, clear what failed operations left, and activate all ranks again. The asynchronous
 *           error stays until ncclEpErrorClear.  BLOCKING until deadline. */
NCCL_EP_API ncclResult_t ncclEpMaskClean(ncclEpGroup_t ep_group, cudaStream_t stream);

/* EFFECTS  *error_out = 1 if a rank was masked for not answering since the last clear, else 0.  BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpGetAsyncError(ncclEpGroup_t ep_group, int* error_out);

/* BLOCKING never. */
NCCL_EP_API ncclResult_t ncclEpErrorClear(ncclEpGroup_t ep_group);

/* ---- The frozen ABI, checked wherever the header is compiled ----------------------------------------------------- */

#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L)
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpTensor_t, NCCL_EP_TENSOR);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpTensor_t, NCCL_EP_TENSOR, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpTensorAllocConfig_t, NCCL_EP_TENSOR_ALLOC_CONFIG);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpTensorAllocConfig_t, NCCL_EP_TENSOR_ALLOC_CONFIG, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpGroupConfig_t, NCCL_EP_GROUP_CONFIG);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpGroupConfig_t, NCCL_EP_GROUP_CONFIG, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpGroupConfig_t, NCCL_EP_GROUP_CONFIG, 2);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpHandleConfig_t, NCCL_EP_HANDLE_CONFIG);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpHandleConfig_t, NCCL_EP_HANDLE_CONFIG, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpLayoutInfo_t, NCCL_EP_LAYOUT_INFO);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpLayoutInfo_t, NCCL_EP_LAYOUT_INFO, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpLayoutInfo_t, NCCL_EP_LAYOUT_INFO, 2);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpDispatchInputs_t, NCCL_EP_DISPATCH_INPUTS);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpDispatchInputs_t, NCCL_EP_DISPATCH_INPUTS, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpDispatchOutputs_t, NCCL_EP_DISPATCH_OUTPUTS);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpDispatchOutputs_t, NCCL_EP_DISPATCH_OUTPUTS, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpDispatchConfig_t, NCCL_EP_DISPATCH_CONFIG);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpDispatchConfig_t, NCCL_EP_DISPATCH_CONFIG, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpDispatchConfig_t, NCCL_EP_DISPATCH_CONFIG, 2);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpCombineInputs_t, NCCL_EP_COMBINE_INPUTS);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpCombineInputs_t, NCCL_EP_COMBINE_INPUTS, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpCombineInputs_t, NCCL_EP_COMBINE_INPUTS, 2);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpCombineOutputs_t, NCCL_EP_COMBINE_OUTPUTS);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpCombineOutputs_t, NCCL_EP_COMBINE_OUTPUTS, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpCombineConfig_t, NCCL_EP_COMBINE_CONFIG);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpCombineConfig_t, NCCL_EP_COMBINE_CONFIG, 1);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpCombineConfig_t, NCCL_EP_COMBINE_CONFIG, 2);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpCompleteConfig_t, NCCL_EP_COMPLETE_CONFIG);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpCompleteConfig_t, NCCL_EP_COMPLETE_CONFIG, 1);
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NCCL_EP_H_ */
