// The times of timed events, for the client to read: published when their records are done (struct
// shm_time). So a time outlives the executor that knew it, and asking for it needs nobody.
//
// A timed event that was recorded waits on the list of its stream until then: streams come to their
// records in order, so only the first of each is looked at. That is done when nothing else is to be
// done, when the client waits, and at the latest when the session passes to another executor.
//
// Serving thread; the main thread once nobody serves the session.

#ifndef FRMPS_SERVER_EXECUTOR_TIMING_H
#define FRMPS_SERVER_EXECUTOR_TIMING_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct stream;
struct tenant;

/** No event waits for its time. */
void timing_init(struct tenant *tenant);

/** The event was recorded, with timing, on the stream that it names. */
void timing_expect(struct tenant *tenant, struct event *event);

/** A record of the event could not be made: its time will not be known. */
void timing_refuse(struct tenant *tenant, const struct event *event, uint64_t place);

/** Nobody asks for the event's time any more. */
void timing_forget(struct tenant *tenant, struct event *event);

/** Publishes the times of a stream's records up to a command. Return: whether all of them are
 * there: what begins now is behind them. */
bool timing_is_settled(struct tenant *tenant, struct stream *stream, uint64_t seq);

/** Publishes the times of what is done. */
void timing_turn(struct tenant *tenant);

/** The same, and waits for those whose marks are there while the device writes their events: at
 * most a millisecond. */
void timing_finish(struct tenant *tenant);

/** Whether a time waits to be published: a record is done on one of the first streams that have
 * any. Cheap. */
bool timing_is_due(struct tenant *tenant);

/** When the next look is due: ns, UINT64_MAX = never. */
uint64_t timing_next_look(const struct tenant *tenant, uint64_t now);

#endif
