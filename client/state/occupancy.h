// Number of blocks or clusters of a kernel that fit the device: the service's answers, cached per
// kernel, its attributes and the question. Any thread; no lock is held while the service is asked.

#ifndef FRMPS_CLIENT_STATE_OCCUPANCY_H
#define FRMPS_CLIENT_STATE_OCCUPANCY_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/command.h"
#include "protocol/cuda_abi.h"

struct client_function;
struct client_stream;

/* QueryOccupancy.query */
enum occupancy_query {
	OCCUPANCY_ACTIVE_BLOCKS = 0,
	OCCUPANCY_AVAILABLE_SHARED = 1,
	OCCUPANCY_CLUSTER_SIZE = 2,
	OCCUPANCY_ACTIVE_CLUSTERS = 3,
};

/* Questions with more attributes are not cached. */
#define OCCUPANCY_KEY_ATTRIBUTES 4u

/* A question; fields that a query does not use are zero. */
struct occupancy {
	uint32_t query, flags, blocks, block_size;
	uint64_t shared_bytes;
	uint32_t grid[3], block[3];
	uint32_t attribute_count;
	/* Of the stream that is meant, if the answer depends on it: occupancy_place() */
	uint32_t sms;
	uint64_t part;
	struct frmps_launch_attribute attributes[FRMPS_ATTRIBUTE_MAX];
};

/** The green context of a stream; NULL: none. @stream: NULL: the default stream */
CUcontext occupancy_green(const struct client_stream *stream);
/** Notes the multiprocessors of a stream in a question. @stream: NULL: the default stream */
void occupancy_place(struct occupancy *question, const struct client_stream *stream);

/** Answers a question. Errors are the driver's for the question, or sticky. */
CUresult occupancy_ask(
	const struct client_function *function, const struct occupancy *question, uint64_t *ret_value);

/** Whether a kernel prefers to have no shared memory. */
bool occupancy_prefers_cache(const struct client_function *function);

/** Blocks of block_size threads that fit a multiprocessor, as the kernel prefers it. */
CUresult occupancy_preferred_blocks(const struct client_function *function, uint32_t block_size,
	uint64_t shared_bytes, uint32_t flags, int *ret_blocks);
/** Shared memory that each of so many blocks can have beside the kernel's own, as it prefers it.
 * CUDA_ERROR_INVALID_VALUE: so many do not fit. */
CUresult occupancy_available(
	const struct client_function *function, uint32_t blocks, uint32_t block_size, uint64_t *ret_bytes);

/** Blocks of block_size threads that fit a multiprocessor, whatever the kernel prefers. */
CUresult occupancy_blocks(const struct client_function *function, uint32_t block_size, uint64_t shared_bytes,
	uint32_t flags, int *ret_blocks);

#endif
