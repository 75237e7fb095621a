// The clock of this process's context: a chain of bases and stamps (backend/ticks.h) on streams of
// their own, of the highest priority, so that few kernels share their hardware queues. Executors
// only. Serving threads note and ask; a single lock, and recording never waits for this lock.

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/ticks.h"
#include "server/clock.h"

/* Stamps at the start, of which the tightest counts. */
#define STAMPS 32

static struct {
	CUstream bases, stamps;
	bool is_open;
	CUevent events[TICKS_EVENTS];
	struct ticks ticks; /* under lock */
	_Atomic bool wanted;
} timer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The device writes there: a page that nothing else lies in. */
static union {
	uint64_t ns;
	char page[4096];
} word __attribute__((aligned(4096)));

static CUresult record(enum ticks_event event)
{
	return driver.event_record(timer.events[event], timer.bases);
}

static CUresult put_stamp(void)
{
	CUresult code = driver.event_record(timer.events[TICKS_EVENT_BEFORE], timer.stamps);

	if (!code)
		code = cuda_stamp(timer.stamps, &word.ns);
	return code ? code : driver.event_record(timer.events[TICKS_EVENT_BEHIND], timer.stamps);
}

static uint64_t stamped(void)
{
	return __atomic_load_n(&word.ns, __ATOMIC_ACQUIRE);
}

static CUresult between(enum ticks_event from, enum ticks_event to, float *ret_ms)
{
	return driver.event_elapsed(ret_ms, timer.events[from], timer.events[to]);
}

static CUresult since(enum ticks_event from, struct backend_event *to, float *ret_ms)
{
	return driver.event_elapsed(ret_ms, timer.events[from], cuda_event(to));
}

static const struct ticks_source source = {record, put_stamp, stamped, between, since};

static CUresult make_events(void)
{
	CUresult code = CUDA_SUCCESS;

	for (int i = 0; !code && i < TICKS_EVENTS; i++)
		code = driver.event_create(&timer.events[i], CU_EVENT_DEFAULT);
	return code;
}

/* Without stamps this is a clock as well. */
static CUresult start(void)
{
	CUresult code = CUDA_SUCCESS;

	ticks_init(&timer.ticks, &source);
	ticks_note(&timer.ticks, clock_now());
	for (int i = 0; !code && i < STAMPS; i++) {
		code = driver.context_synchronize();
		if (!code)
			code = ticks_settle(&timer.ticks);
		ticks_stamp(&timer.ticks, clock_now());
	}
	return code;
}

void cuda_clock_open(void)
{
	int least = 0, greatest = 0;
	CUresult code = driver.context_priorities(&least, &greatest);

	if (!code)
		code = driver.stream_create(&timer.bases, CU_STREAM_NON_BLOCKING, greatest);
	if (!code)
		code = driver.stream_create(&timer.stamps, CU_STREAM_NON_BLOCKING, greatest);
	if (!code)
		code = make_events();
	if (!code)
		code = cuda_host_register(&word, sizeof(word));
	if (!code)
		code = start();
	if (code)
		fprintf(stderr, "Times of events are not known (code %d).\n", (int)code);
	else if (!ticks_is_known(&timer.ticks))
		fprintf(stderr, "Times of events cannot be compared across executors: known to %.0f us.\n",
			timer.ticks.width / 1000);
	timer.is_open = !code;
}

/* These objects are freed with the context. */
void cuda_clock_close(void)
{
	timer.is_open = false;
}

void cuda_clock_want(void)
{
	atomic_store_explicit(&timer.wanted, true, memory_order_relaxed);
}

void cuda_clock_note(void)
{
	if (!atomic_load_explicit(&timer.wanted, memory_order_relaxed) || !timer.is_open ||
		pthread_mutex_trylock(&lock))
		return;
	ticks_note(&timer.ticks, clock_now());
	pthread_mutex_unlock(&lock);
}

CUresult cuda_event_time(struct backend_event *event, struct backend_time *ret_time)
{
	CUresult code;

	if (!timer.is_open)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	code = ticks_time(&timer.ticks, event, clock_now(), ret_time);
	pthread_mutex_unlock(&lock);
	return code;
}
