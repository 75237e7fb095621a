// The daemon's clock. See timer.h. Alone in its file: tests have one in which time passes faster.

#include "server/loop/timer.h"

#include <time.h>

uint64_t timer_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
