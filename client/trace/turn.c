// See turn.h.

#include "client/trace/turn.h"

#include <pthread.h>
#include <time.h>

#include "client/state/clock.h"

/* How long others wait, at most: for room, and for the end. */
#define ROOM_NS UINT64_C(100000000)
#define LAST_NS UINT64_C(5000000000)

static struct {
	uint64_t turns; /* that are over */
	bool sleeps, closing, closed;
	uint64_t closing_at; /* ns */
} turn;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER; /* the thread waits for work */
static pthread_cond_t over = PTHREAD_COND_INITIALIZER;	 /* others wait for a turn */

static struct timespec moment_in(uint64_t ns)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	ns += (uint64_t)t.tv_nsec;
	t.tv_sec += (time_t)(ns / 1000000000u);
	t.tv_nsec = (long)(ns % 1000000000u);
	return t;
}

void turn_wake(void)
{
	pthread_mutex_lock(&lock);
	if (turn.sleeps)
		pthread_cond_signal(&wanted);
	pthread_mutex_unlock(&lock);
}

/* Under the lock: waits for so many turns, or the last one. A thread that is cancelled meanwhile
 * would leave the lock taken. */
static void await(uint64_t turns, uint64_t most_ns)
{
	struct timespec until = moment_in(most_ns);
	int cancelable, r = 0;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	while (turn.turns < turns && !turn.closed && r == 0) {
		pthread_cond_signal(&wanted);
		r = pthread_cond_timedwait(&over, &lock, &until);
	}
	pthread_setcancelstate(cancelable, NULL);
}

void turn_await(void)
{
	pthread_mutex_lock(&lock);
	/* A turn may be under way. */
	await(turn.turns + 2, ROOM_NS);
	pthread_mutex_unlock(&lock);
}

void turn_begin(bool (*idle)(void), bool *ret_closing, uint64_t *ret_since)
{
	pthread_mutex_lock(&lock);
	turn.sleeps = true;
	while (!turn.closing && idle())
		pthread_cond_wait(&wanted, &lock);
	turn.sleeps = false;
	*ret_closing = turn.closing;
	*ret_since = turn.closing ? clock_now_ns() - turn.closing_at : 0;
	pthread_mutex_unlock(&lock);
}

void turn_end(bool last)
{
	pthread_mutex_lock(&lock);
	++turn.turns;
	turn.closed = last;
	pthread_cond_broadcast(&over);
	pthread_mutex_unlock(&lock);
}

void turn_close(void)
{
	pthread_mutex_lock(&lock);
	turn.closing = true;
	turn.closing_at = clock_now_ns();
	await(UINT64_MAX, LAST_NS);
	pthread_mutex_unlock(&lock);
}
