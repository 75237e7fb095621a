// The device's side of a trace: collects the times of commands, translates them to the host's
// clock, and puts the commands into the file. The trace's thread; no function waits.

#ifndef FRMPS_CLIENT_TRACE_DEVICE_H
#define FRMPS_CLIENT_TRACE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct client_stream;

/** @stream: as trace_start() makes it; NULL: the program's commands alone say how clocks differ */
void device_start(struct client_stream *stream);

/** Looks at the commands whose times are missing. @now: monotonic ns */
void device_look(uint64_t now);

/** True while a missing time may still come. */
bool device_waits(void);

/** The session is over, and no more times come. Return: how many commands have no end */
uint64_t device_give_up(void);

#endif
