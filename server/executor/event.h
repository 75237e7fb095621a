// Events of a session. An event is a slot that the client picked; a record of the event is a
// command (stream, seq), and waits name that command. The backend's event of a slot lets other
// streams wait on the device, and has the time (timing.h). Serving thread.
//
// Streams reach their records in another order than the program's, even after the event was
// destroyed and the slot reused. The program's latest record determines the time: earlier records
// do not touch a timing event. An executor does not know the latest record of commands from before
// its start, so a published time names the record.

#ifndef FRMPS_SERVER_EXECUTOR_EVENT_H
#define FRMPS_SERVER_EXECUTOR_EVENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/backend/backend.h"
#include "shm/layout.h"

struct stream;
struct tenant;

struct event {
	struct backend_event *backend; /* NULL until first recorded by this executor */
	uint64_t seq;
	uint32_t slot; /* of the stream of the latest record */
	bool timing;
	struct stream *timed_on; /* the time is not published: on this stream's list; else NULL */
	TAILQ_ENTRY(event) timed;
	/* The program's latest command about the event, once the event had timing. 0: before this
	 * executor. */
	uint64_t latest_seq;
	uint32_t latest_slot;
};

struct event_table {
	struct event *at; /* SHM_EVENTS; NULL until first used */
	uint32_t used;	  /* slots; those behind never had an event */
};

/** Destroys all events; fine twice. The session is not served any more. */
void event_table_deinit(struct tenant *tenant, struct event_table *table);

/** Notes that a record or the end of an event was taken from the ring: command seq of a stream's
 * slot. Serving thread. */
void event_expect(struct tenant *tenant, uint32_t event, bool timing, uint32_t slot, uint64_t seq);

/** Records command seq of the stream, whose backend stream exists. */
CUresult event_record(
	struct tenant *tenant, struct stream *stream, uint32_t event, bool timing, uint64_t seq);

/** The backend's event whose latest record is this command, or NULL. Serving thread. */
struct backend_event *event_find(struct tenant *tenant, uint32_t event, uint32_t slot, uint64_t seq);

/** Destroys an event of the backend; NULL is none. Serving thread, or when nothing is served.
 * Return: as the backend. */
CUresult event_drop(struct tenant *tenant, struct backend_event *event);

/** Forgets an event. Serving thread. */
CUresult event_destroy(struct tenant *tenant, uint32_t event);

#endif
