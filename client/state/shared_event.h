// Events that several programs of a user share (cuIpcGetEventHandle): counters in pages of pinned
// memory that each of the programs has mapped (shm/layout.h). A record is a number, and a word that
// the device writes when the stream reaches the record; a wait is a wait for that word. So it does
// not matter which executors serve the programs, and a promotion replays or keeps both.
//
// An own page stays. Another program's page is unmapped when addresses or memory are short and the
// program has none of its events open. A place in a page is reused once the program that made its
// event has destroyed it, which ends every use of the event in all programs, and its records are
// done. Numbers continue from there, so a later record also ends a wait for an earlier one. Any
// thread.

#ifndef FRMPS_CLIENT_STATE_SHARED_EVENT_H
#define FRMPS_CLIENT_STATE_SHARED_EVENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "protocol/cuda_abi.h"
#include "shm/layout.h"

struct client_stream;
struct session;

/* Of a session; guarded by lock. */
struct shared_events {
	pthread_mutex_t lock, dropping;
	STAILQ_HEAD(import_list, import) imports; /* pages of other programs, the latest last */
	/* Places of own events that were destroyed, the latest last. */
	STAILQ_HEAD(spare_list, spare) spares;
	struct shm_shared_event *page; /* own, with places that were never used */
	uint32_t page_used;
};

/** Called by session start. */
void shared_event_start(void);

/** A place for a new event. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult shared_event_new(struct shm_shared_event **ret_event);
/** Releases an event. @imported: made by another program. Return: always NULL. */
struct shm_shared_event *shared_event_free(struct shm_shared_event *event, bool imported);

/** The handle with which another program opens the event. */
void shared_event_export(const struct shm_shared_event *event, CUipcEventHandle *ret_handle);
/** The ordinal of a handle's device, for shared_event_import(); the own one if the program does not
 * see that device. */
int shared_event_device(const CUipcEventHandle *handle);
/**
 * In a session on the handle's device.
 * CUDA_ERROR_MAP_FAILED for an invalid handle, CUDA_ERROR_INVALID_CONTEXT for this program's own
 * event, CUDA_ERROR_INVALID_HANDLE if the program that made the event has ended.
 */
CUresult shared_event_import(const CUipcEventHandle *handle, struct shm_shared_event **ret_event);

/**
 * Records, in stream order.
 * @ret_number: the record's number; @ret_slot, @ret_seq: the command that completes the record
 */
CUresult shared_event_record(struct shm_shared_event *event, struct client_stream *stream,
	uint64_t *ret_number, uint32_t *ret_slot, uint64_t *ret_seq);

/** Number of the latest record of any program; 0: none. */
uint64_t shared_event_latest(const struct shm_shared_event *event);
/** True if the record is done. */
bool shared_event_is_done(const struct shm_shared_event *event, uint64_t number);
/** Holds the stream's later commands until the record is done. */
CUresult shared_event_wait(struct shm_shared_event *event, uint64_t number, struct client_stream *stream);
/** As that, for a stream of another device than the event's. @session: the event's */
CUresult shared_event_wait_across(struct shm_shared_event *event, uint64_t number, struct session *session,
	struct client_stream *stream);
/** Waits until the record is done. Return: CUDA_SUCCESS, the sticky error. */
CUresult shared_event_synchronize(const struct shm_shared_event *event, uint64_t number);

#endif
