// The end of the loop's turn: after the handlers of timers, and after those of what was ready,
// before the loop waits again. Daemon, loop thread only.

#ifndef FRMPS_SERVER_LOOP_TURN_END_H
#define FRMPS_SERVER_LOOP_TURN_END_H

struct turn_end;
struct uv_loop_s;

/** Calls fire(context) at the end of each turn; keeps no loop alive. NULL when out of memory. */
struct turn_end *turn_end_new(struct uv_loop_s *loop, void (*fire)(void *context), void *context);
/** Stops; the memory is freed after the loop has closed the handles. NULL is fine. Return: NULL. */
struct turn_end *turn_end_free(struct turn_end *turn_end);

#endif
