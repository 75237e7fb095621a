// Events that several programs of a user share (cuIpcGetEventHandle): counters in pages of pinned
// memory that each of the programs has mapped (shm/layout.h). A record is a number, and a word that
// the device writes when the stream has come that far; a wait is a wait for that word. So it makes
// no difference in which executors the programs are, and a promotion repeats or keeps both.
//
// An own page stays. One of another program goes when addresses or memory are short and the program
// has none of its events open. A place in a page is used again once the program that made its
// event has destroyed it, which ends every use of the event in all programs, and its records are
// done. Records are counted on from there, so what still waits for an earlier one is let go by it.
// Any thread.

#ifndef FRMPS_CLIENT_STATE_SHARED_EVENT_H
#define FRMPS_CLIENT_STATE_SHARED_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/layout.h"

struct client_stream;

/** A place for a new event. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult shared_event_new(struct shm_shared_event **ret_event);
/** The program needs it no more. @imported: it is another program's. Return: NULL, always. */
struct shm_shared_event *shared_event_free(struct shm_shared_event *event, bool imported);

/** What another program opens it with. */
void shared_event_export(const struct shm_shared_event *event, CUipcEventHandle *ret_handle);
/** CUDA_ERROR_MAP_FAILED for what is no handle, CUDA_ERROR_INVALID_CONTEXT for one of this
 * program's own, CUDA_ERROR_INVALID_HANDLE where the program that made it is gone. */
CUresult shared_event_import(const CUipcEventHandle *handle, struct shm_shared_event **ret_event);

/**
 * Records, in stream order.
 * @ret_number: the record's; @ret_slot, @ret_seq: the command that says it is done
 */
CUresult shared_event_record(struct shm_shared_event *event, struct client_stream *stream,
	uint64_t *ret_number, uint32_t *ret_slot, uint64_t *ret_seq);

/** Number of the latest record, whoever made it; 0: none. */
uint64_t shared_event_latest(const struct shm_shared_event *event);
/** Whether that record is done. */
bool shared_event_is_done(const struct shm_shared_event *event, uint64_t number);
/** Holds the stream's later commands until it is. */
CUresult shared_event_wait(struct shm_shared_event *event, uint64_t number, struct client_stream *stream);
/** Waits until it is. Return: CUDA_SUCCESS, the sticky error. */
CUresult shared_event_synchronize(const struct shm_shared_event *event, uint64_t number);

#endif
