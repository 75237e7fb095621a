// Times of timed events. The service writes a time into memory that the program can read (struct
// shm_time), a moment after it has seen the record done, so a query costs a few loads. Any thread;
// no state.

#ifndef FRMPS_CLIENT_STATE_TIMING_H
#define FRMPS_CLIENT_STATE_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct client_stream;

/* A record that is done. */
struct timing_record {
	uint32_t event;	      /* number of the event */
	const word64 *latest; /* place of its latest record; if not `place`, this record's time is unknown */
	uint64_t place, seq;  /* shm_place() */
	struct client_stream *stream;
};

/** Gives the service some microseconds to write the time of a record that has just become done. */
void timing_expect(const struct timing_record *record);

/**
 * The time of a record of the shim's own, if it is there.
 * @stream, @place: of the record, as shm_place() makes the latter
 * @ret_epoch: generation of the executor whose clock it is; 0: no executor knows the time
 * @ret_ns: on that clock
 */
bool timing_read(const struct client_stream *stream, uint32_t event, uint64_t place, uint64_t *ret_epoch,
	uint64_t *ret_ns);

/** Whether a record was done in an executor that is not the session's any more. A time that this
 * executor has not written some milliseconds later is lost. */
bool timing_is_orphaned(const struct client_stream *stream, uint64_t seq);

/**
 * Milliseconds between two records of the same session. Waits while the service has not written a
 * time yet.
 * Return: CUDA_SUCCESS, the sticky error; CUDA_ERROR_ILLEGAL_STATE: the executor of a record ended
 * before it could write the time; CUDA_ERROR_NOT_READY: an event was recorded again meanwhile
 */
CUresult timing_between(
	const struct timing_record *start, const struct timing_record *end, float *ret_milliseconds);

#endif
