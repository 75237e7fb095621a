// First values of modules' variables, and the way on which they reach the device. See variable.c.

#ifndef FRMPS_SERVER_EXECUTOR_VARIABLE_H
#define FRMPS_SERVER_EXECUTOR_VARIABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct backend_copy;
struct backend_stream;
struct executor;
struct range;
struct tenant;

/* Of an executor. Module thread, main thread where it takes over, carriers (carry.c). */
struct variable_path {
	pthread_mutex_t lock; /* held from what is put into the page until the device is done with it */
	struct backend_stream *stream;
	struct variable_page *page; /* registered */
	uint64_t mark;		    /* what the page's mark will be when the device is done */
	bool marked;		    /* and it will be */
	bool broken;		    /* something did not end: the page may change yet */
	word64 late; /* session whose memory may change as well; 0: none's. Changed with the lock held */
};

/** Makes the path, early: to make it could wait for what runs. Return: CUDA_SUCCESS, the backend's
 * code. */
CUresult variable_open(struct executor *executor);
/** Frees it; the backend is about to be closed. */
void variable_close(struct executor *executor);

/**
 * Writes the first values of a module's variables into the block that they were moved to, and waits
 * for it. Module thread of the executor that serves the session.
 * @block: from the client; checked here
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE: it is not all the client's memory;
 * CUDA_ERROR_SYSTEM_NOT_READY: the device did not do it in time. It may do it yet:
 * variable_is_late().
 */
CUresult variable_fill(struct tenant *tenant, const struct range *block, const uint8_t *values);

/** Whether first values may come into memory of the session yet. Any thread; does not wait. */
bool variable_is_late(struct tenant *tenant);

/** Has the device do copies of memory that is its own or registered, and waits for them. Any thread
 * but a serving one. Return: whether they are done. */
bool variable_carry_out(struct executor *executor, const struct backend_copy *copies, uint32_t count);

#endif
