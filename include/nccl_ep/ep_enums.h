/* Switches of the expert-parallel C API. The values are part of the ABI: they never change, new ones are appended.
 *
 * Zero is the neutral choice, so that a field nobody set means "as usual"; the layout alone must be chosen. */
#ifndef NCCL_EP_ENUMS_H_
#define NCCL_EP_ENUMS_H_

/* "The library decides", for every numeric field that documents a default. */
#define NCCL_EP_AUTO 0

typedef enum {
  NCCL_EP_ALGO_LOW_LATENCY = 0,    /* decoding: few tokens a rank, one hop; layouts EXPERT_MAJOR and RANK_MAJOR */
  NCCL_EP_ALGO_HIGH_THROUGHPUT = 1 /* training, prefill: thousands of tokens a rank; layouts FLAT and EXPERT_MAJOR */
} ncclEpAlgorithm_t;

/* High throughput with a fixed budget: what happens when more rows arrive than max_recv_tokens_per_rank. */
typedef enum {
  NCCL_EP_OVERFLOW_AUTO = 0, /* as TRAP */
  NCCL_EP_OVERFLOW_TRAP = 1, /* the operation fails; its outputs are not to be used */
  NCCL_EP_OVERFLOW_DROP = 2  /* rows past the budget are left out, and contribute nothing to the combine */
} ncclEpOverflowPolicy_t;

/* How received rows are arranged. UNSET is refused by every function that takes a layout. */
typedef enum {
  NCCL_EP_LAYOUT_UNSET = 0,
  NCCL_EP_LAYOUT_EXPERT_MAJOR = 1, /* one row per (token, local expert), grouped by expert */
  NCCL_EP_LAYOUT_RANK_MAJOR = 2,   /* one row per token, in one block per source rank */
  NCCL_EP_LAYOUT_FLAT = 3          /* one row per token, ordered by (source rank, token) without gaps */
} ncclEpLayout_t;

/* High throughput only. Backward replays the routing of the forward pass that the handle remembers. */
typedef enum { NCCL_EP_FWD_PASS = 0, NCCL_EP_BWD_PASS = 1 } ncclEpPassDir_t;

/* Use of window-backed tensors as direct targets and sources of the transfer. */
typedef enum {
  NCCL_EP_ZERO_COPY_AUTO = 0, /* direct where the tensor allows it, staged otherwise */
  NCCL_EP_ZERO_COPY_OFF = 1,  /* staging is kept; a suitable window may still be used */
  NCCL_EP_ZERO_COPY_ON = 2    /* no staging is allocated; a tensor that would need it is refused */
} ncclEpZeroCopyMode_t;

/* Numbering of the expert ids that a dispatch returns next to the rows. */
typedef enum {
  NCCL_EP_EXPERT_ID_AUTO = 0,  /* as LOCAL */
  NCCL_EP_EXPERT_ID_LOCAL = 1, /* 0 .. local experts - 1 */
  NCCL_EP_EXPERT_ID_GLOBAL = 2 /* 0 .. num_experts - 1 */
} ncclEpExpertIdKind_t;

#endif /* NCCL_EP_ENUMS_H_ */
