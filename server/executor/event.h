// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Events of a session. An event is a slot that the client picked; a record of it is a command (stream, seq),
// which is what waits name. The backend's event behind it lets other streams wait on the device, and tells
// time.
//
// The serving thread records and waits; the module thread answers QueryElapsed. Timing events are therefore
// under a lock; others belong to the serving thread alone.
//
// Streams come to their records in another order than the program gave them, and may come to one when the event
// was destroyed and its slot is another's. The time that counts is that of the record that was given last: one
// that is not does not touch a timing event. Which one it is an executor does not know of what was given before
// its time: a question names the records that it means.
//
// Over a promotion the backend's events of finished records are gone, and with them their time: QueryElapsed
// then says CUDA_ERROR_ILLEGAL_STATE and why. Not CUDA_ERROR_NOT_READY, on which programs would wait for
// ever, and not a time.

#ifndef FRMPS_SERVER_EXECUTOR_EVENT_H
#define FRMPS_SERVER_EXECUTOR_EVENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"
#include "shm/layout.h"

struct session;
struct stream;
struct wire_elapsed;

struct event {
	struct backend_event *backend; /* NULL until first recorded by this executor */
	uint64_t seq;
	uint32_t slot; /* of the stream it was recorded on */
	bool timing;
	/* The command about it that the program gave last, once there was one with timing. 0: before this executor. */
	uint64_t latest_seq;
	uint32_t latest_slot;
};

struct event_table {
	struct event *_Atomic at; /* SHM_EVENTS; NULL until first used. Set once, by the serving thread */
	pthread_mutex_t lock;	  /* of timing events */
};

void event_table_init(struct event_table *table);
/** Destroys all events; fine twice. The session is not served any more. The lock stays until the session
 * goes. */
void event_table_deinit(struct session *session, struct event_table *table);

/** A record or the end of an event was taken from the ring: command seq of a stream's slot. Serving thread. */
void event_expect(struct session *session, uint32_t event, bool timing, uint32_t slot, uint64_t seq);

/** Records command seq of the stream, whose backend stream exists. Serving thread; with timing under
 * table->lock. */
CUresult event_record(
	struct session *session, struct stream *stream, uint32_t event, bool timing, uint64_t seq);

/** The backend's event whose latest record is this command, or NULL. Serving thread. */
struct backend_event *event_find(struct session *session, uint32_t event, uint32_t slot, uint64_t seq);

/** Destroys an event of the backend; NULL is none. Serving thread, or when nothing is served. Return: as the
 * backend. */
CUresult event_drop(struct session *session, struct backend_event *event);

/** Forgets an event. Serving thread. */
CUresult event_destroy(struct session *session, uint32_t event);

/** Milliseconds between two records. Module thread. CUDA_ERROR_ILLEGAL_STATE: never recorded here, or without
 * time, or it is that of another record. */
CUresult event_elapsed(struct session *session, const struct wire_elapsed *wish, float *ret_ms);

#endif
