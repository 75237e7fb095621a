// Events of a session. An event is a slot that the client picked; a record of it is a command
// (stream, seq), which is what waits name. The backend's event behind it lets other streams wait on
// the device, and tells time (timing.h). Serving thread.
//
// Streams come to their records in another order than the program gave them, and may come to one
// when the event was destroyed and its slot is another's. The time that counts is that of the
// record that was given last: one that is not does not touch a timing event. Which one it is an
// executor does not know of what was given before its time: what it publishes names the record.

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
	uint32_t slot; /* of the stream it was recorded on */
	bool timing;
	struct stream *timed_on; /* its time is not published: on this stream's list; else NULL */
	TAILQ_ENTRY(event) timed;
	/* The command about it that the program gave last, once there was one with timing. 0:
	 * before this executor. */
	uint64_t latest_seq;
	uint32_t latest_slot;
};

struct event_table {
	struct event *at; /* SHM_EVENTS; NULL until first used */
};

/** Destroys all events; fine twice. The session is not served any more. */
void event_table_deinit(struct tenant *tenant, struct event_table *table);

/** A record or the end of an event was taken from the ring: command seq of a stream's slot. Serving
 * thread. */
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
