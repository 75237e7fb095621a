// The times of timed events, for the client to read: published when their records are done (struct
// shm_time). So a time outlives its executor, and the client reads the time without a request.
//
// Until then a recorded timed event waits on the stream's list: streams reach their records in
// order, so only the first event of each list is looked at. The looks come when the thread has no
// other work, when the client waits, and at the latest when the session passes to another executor.
//
// Serving thread; the main thread once no thread serves the session.

#ifndef FRMPS_SERVER_EXECUTOR_TIMING_H
#define FRMPS_SERVER_EXECUTOR_TIMING_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct stream;
struct tenant;

/** No event waits for its time. */
void timing_init(struct tenant *tenant);

/** The event was recorded, with timing, on the stream that the event names. */
void timing_expect(struct tenant *tenant, struct event *event);

/** A record of the event failed: the time will not be known. */
void timing_refuse(struct tenant *tenant, const struct event *event, uint64_t place);

/** The event's time is not asked for any more. */
void timing_forget(struct tenant *tenant, struct event *event);

/** Publishes the times of a stream's records up to a command. Return: true if all times are there:
 * work that begins now is behind the records. */
bool timing_is_settled(struct tenant *tenant, struct stream *stream, uint64_t seq);

/** Publishes the times of records that are done. */
void timing_turn(struct tenant *tenant);

/** The same, and waits for events whose marks are there while the device writes the events: at most
 * a millisecond. */
void timing_finish(struct tenant *tenant);

/** Return: true if a time waits to be published: a record is done on one of the first streams with
 * timed records. Cheap. */
bool timing_is_due(struct tenant *tenant);

/** When the next look is due: ns, UINT64_MAX = never. */
uint64_t timing_next_look(const struct tenant *tenant, uint64_t now);

#endif
