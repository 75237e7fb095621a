// The side of the devices in a trace: collects the times of commands, translates them to the host's
// clock, and puts the commands into the file. The trace's thread; no function waits.

#ifndef FRMPS_CLIENT_TRACE_DEVICE_H
#define FRMPS_CLIENT_TRACE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/trace/align.h"

struct client_stream;
struct command;
struct session;

/* Of a session; only the trace's thread uses it once trace_start() has returned. */
struct trace_clocks {
	bool over; /* the session */
	struct align align;
	struct client_stream *stream;
	struct command *command; /* what the clocks are looked at with; NULL: none is under way */
	uint64_t begun;		 /* ns: when that was begun */
};

/** Before the first session. */
void device_start(void);

/** A session begins. @stream: as trace_start() makes it; NULL: the program's commands alone say how
 * clocks differ */
void device_join(struct session *session, struct client_stream *stream);

/** Looks at the commands whose times are missing. @now: monotonic ns */
void device_look(uint64_t now);

/** True while a missing time may still come. */
bool device_waits(void);

/** A session is over, and no more times come. Return: how many commands have no end */
uint64_t device_give_up(struct session *session);

#endif
