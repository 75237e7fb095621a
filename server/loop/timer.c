// Timers over uv_timer_t. The handle belongs to the loop until its close callback, hence heap
// objects only.

#include "server/loop/timer.h"

#include <stdlib.h>
#include <time.h>
#include <uv.h>

#include "server/log.h"

#define NS_PER_MS 1000000u

struct timer {
	uv_timer_t handle;
	void (*fire)(void *context);
	void *context;
};

static void on_fire(uv_timer_t *handle)
{
	struct timer *timer = handle->data;

	timer->fire(timer->context);
}

static void on_close(uv_handle_t *handle)
{
	free(handle->data);
}

struct timer *timer_new(struct uv_loop_s *loop, void (*fire)(void *context), void *context)
{
	struct timer *timer = calloc(1, sizeof(*timer));

	/* The next life of the daemon may have memory. */
	log_bug_on(!timer);
	timer->fire = fire;
	timer->context = context;
	uv_timer_init(loop, &timer->handle);
	timer->handle.data = timer;
	return timer;
}

/* The time counts from now, and the loop's own clock does not move: the clock stands still for a
 * round, so that a timer which is started in a round does not fire in the same round because
 * another callback took long. */
void timer_start(struct timer *timer, uint64_t milliseconds)
{
	uint64_t now = uv_hrtime() / NS_PER_MS, round = uv_now(timer->handle.loop);

	uv_timer_start(&timer->handle, on_fire, milliseconds + (now > round ? now - round : 0), 0);
}

void timer_stop(struct timer *timer)
{
	uv_timer_stop(&timer->handle);
}

bool timer_running(const struct timer *timer)
{
	return uv_is_active((const uv_handle_t *)&timer->handle);
}

uint64_t timer_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

struct timer *timer_free(struct timer *timer)
{
	if (timer)
		uv_close((uv_handle_t *)&timer->handle, on_close);
	return NULL;
}
