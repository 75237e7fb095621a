// First values of modules' variables, and their path to the device. See variable.c.

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

/* Of an executor. Module thread, main thread in a take-over, carriers (carry.c). */
struct variable_path {
	pthread_mutex_t lock; /* held from a write to the page until the device is done with the page */
	struct backend_stream *stream;
	struct variable_page *page; /* registered */
	uint64_t mark;		    /* value of the page's mark when the device is done */
	bool marked;		    /* the mark was put */
	bool broken;		    /* a copy did not end: the device may still use the page */
	word64 late; /* session whose memory may still change; 0: none. Changed with the lock held */
};

/** Makes the path, early: the calls could wait for running work. Return: CUDA_SUCCESS, the
 * backend's code. */
CUresult variable_open(struct executor *executor);
/** Frees the path; the backend is about to be closed. */
void variable_close(struct executor *executor);

/**
 * Writes the first values of a module's variables into their block, and waits for the copies.
 * Module thread of the executor that serves the session.
 * @block: from the client; checked here
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE: the block is not all in the client's memory;
 * CUDA_ERROR_SYSTEM_NOT_READY: the device was not done in time, and may still write:
 * variable_is_late().
 */
CUresult variable_fill(struct tenant *tenant, const struct range *block, const uint8_t *values);

/** Return: true if late first values may still be written to memory of the session. Any thread;
 * does not wait. */
bool variable_is_late(struct tenant *tenant);

/** Lets the device copy between device and registered memory, and waits. Any thread but a serving
 * one. Return: true if the copies are done. */
bool variable_carry_out(struct executor *executor, const struct backend_copy *copies, uint32_t count);

#endif
