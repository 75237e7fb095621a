// One-shot timers of the daemon's loop, and the loop's clock. Daemon, loop thread only.

#ifndef FRMPS_SERVER_LOOP_TIMER_H
#define FRMPS_SERVER_LOOP_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct uv_loop_s;
struct timer;

/** A timer that calls fire(context) at its end. */
struct timer *timer_new(struct uv_loop_s *loop, void (*fire)(void *context), void *context);
/** Starts (again): fires once, @milliseconds from now. */
void timer_start(struct timer *timer, uint64_t milliseconds);
void timer_stop(struct timer *timer);
bool timer_running(const struct timer *timer);
/** Stops; the memory is freed after the loop has closed the handle. NULL is fine. Return: NULL. */
struct timer *timer_free(struct timer *timer);

/** Monotonic time, microseconds. */
uint64_t timer_now_us(void);

#endif
