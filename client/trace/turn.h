// The thread of a trace and those of the program, as they wait for each other. The thread takes
// turns: in each it looks at what was done, and writes. Between turns it sleeps a little, and while
// there is nothing to do until somebody wakes it. A thread that finds no room waits for a turn, for
// a bounded time.

#ifndef FRMPS_CLIENT_TRACE_TURN_H
#define FRMPS_CLIENT_TRACE_TURN_H

#include <stdbool.h>
#include <stdint.h>

/** There is something to do, which idle() of turn_begin() notices. Any thread but the trace's. */
void turn_wake(void);

/** Waits for a whole turn, for a bounded time. Any thread but the trace's. */
void turn_await(void);

/**
 * The trace's thread: sleeps while there is nothing to do.
 * @idle: whether that is so
 * @ret_closing: whether the process ends, and for how long it has, ns
 */
void turn_begin(bool (*idle)(void), bool *ret_closing, uint64_t *ret_since);

/** The turn is over. @last: and no other one follows */
void turn_end(bool last);

/** The process ends: waits for the last turn, but not for ever. */
void turn_close(void);

#endif
