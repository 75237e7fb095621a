// Events of this program. An event is the (stream, seq) of its latest record, so the timelines
// answer queries and waits; only times need the service. An event that several programs share
// (shared_event.h) has a number beside that. Handles as with streams: slot and count of uses in a
// table that is never freed. Any thread; recording and waiting for the same event from two threads
// at once gives either order.

#ifndef FRMPS_CLIENT_STATE_EVENT_H
#define FRMPS_CLIENT_STATE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;
struct session;

/** The context that an event was made in; NULL for an invalid handle. */
CUcontext event_context(CUevent handle);

/** The session of an event; NULL for an invalid handle. */
struct session *event_session(CUevent event);

/** A new event. CUDA_ERROR_OUT_OF_MEMORY when all slots are in use. */
CUresult event_create(CUcontext context, unsigned int flags, CUevent *ret_event);

/** The number of an event for timed records of the shim's own, which keeps it for the rest of the
 * process's life; 0: all slots are in use. */
uint32_t event_take_number(void);

/** What other programs open an event with that was made for several. CUDA_ERROR_INVALID_HANDLE. */
CUresult event_export(CUevent event, CUipcEventHandle *ret_handle);

/** An event of another program. Errors: shared_event_import(). */
CUresult event_import(CUcontext context, const CUipcEventHandle *handle, CUevent *ret_event);

/** Destroys an event; waits for its record continue. */
CUresult event_destroy(CUevent event);

/** Destroys all events of a context. */
void event_release_context(CUcontext context);

/** True for the handle of a live event. */
bool event_is_live(CUevent event);

/**
 * Checks that a launch may record an event: CUDA_ERROR_NOT_SUPPORTED for events with timing,
 * CUDA_ERROR_INVALID_VALUE for those of several programs.
 */
CUresult event_check_launch(CUevent event);

CUresult event_record(CUevent event, struct client_stream *stream);

/**
 * Holds the stream's later commands until the event's latest record is done. Without a record there
 * is nothing to wait for.
 */
CUresult event_wait(CUevent event, struct client_stream *stream);
/**
 * As event_wait() for a launched graph, which no capture affects: for the latest record outside of
 * captures.
 */
CUresult event_wait_launched(CUevent event, struct client_stream *stream);

/** Ends the capture that an event was recorded in, if any: as capture_refuse_event(). */
CUresult event_refuse_captured(CUevent event);

/** CUDA_SUCCESS when done or never recorded, else CUDA_ERROR_NOT_READY. */
CUresult event_query(CUevent event);

CUresult event_synchronize(CUevent event);

/** Milliseconds between two finished records of events with timing. */
CUresult event_elapsed(CUevent start, CUevent end, float *ret_milliseconds);

#endif
