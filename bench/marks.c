// Costs of the driver's ways to report the end of a kernel, from several threads of the same
// context at once, like an executor's serving threads. Natively: this measures the driver, and its
// mutexes, for which the executor has a spinning lock (server/executor/mutex.h).
//
//   marks SPIN_NS       how long a thread spins on a mutex before it sleeps; 0: the C library's way
//
// Each thread has a stream of its own and repeats an action for SECONDS; "launch" is a kernel
// without a mark, for comparison:
//
//   write    behind each kernel the device writes a word (cuStreamWriteValue32)
//   record   … an event
//   kernel   … another kernel runs, which would write the word
//   WAY_wait the same, and the thread waits each time before it continues: it polls the word,
//            queries the event, or synchronises ("launch")
//
// "make", "first" and "next" are of streams: making a stream of many, its first launch with a wait,
// and another launch.

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/lib/driver.h"
#include "bench/lib/stats.h"
#include "server/executor/mutex.h"

#define SECONDS 0.25
/* Launches ahead of the device: too few to block in the driver. */
#define AHEAD 256u

enum { THREADS_MAX = 16, STREAMS = 64 };

enum way { LAUNCH, WRITE, RECORD, KERNEL, WAYS };
static const char *const way_names[] = {"launch", "write", "record", "kernel"};

static CUfunction empty;
static CUcontext context;
static uint64_t end; /* ns */

struct thread {
	pthread_t thread;
	enum way way;
	bool waits;
	CUstream stream;
	CUevent event;
	volatile uint32_t *word; /* in pinned memory, on a cache line of its own */
	uint32_t number;
	uint64_t done;
};
static struct thread threads[THREADS_MAX];

static void launch(CUstream stream)
{
	driver_check(cu.launch(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
}

static void mark(struct thread *thread)
{
	switch (thread->way) {
	case WRITE:
		driver_check(
			cu.write32(thread->stream, (CUdeviceptr)(uintptr_t)thread->word, ++thread->number, 0),
			"cuStreamWriteValue32");
		break;
	case RECORD:
		driver_check(cu.event_record(thread->event, thread->stream), "cuEventRecord");
		break;
	case KERNEL:
		launch(thread->stream);
		break;
	default:
		break;
	}
}

static void await(struct thread *thread)
{
	if (thread->way == WRITE)
		while (*thread->word != thread->number)
			;
	else if (thread->way == RECORD)
		while (cu.event_query(thread->event) != CUDA_SUCCESS)
			;
	else
		driver_check(cu.stream_sync(thread->stream), "cuStreamSynchronize");
}

static void *work(void *argument)
{
	struct thread *thread = argument;

	driver_check(cu.set_current(context), "cuCtxSetCurrent");
	for (thread->done = 0; now_ns() < end; thread->done++) {
		launch(thread->stream);
		mark(thread);
		if (thread->waits || thread->done % AHEAD == AHEAD - 1)
			await(thread);
	}
	driver_check(cu.stream_sync(thread->stream), "cuStreamSynchronize");
	return NULL;
}

static void measure(enum way way, bool waits, unsigned count)
{
	uint64_t done = 0, begin = now_ns();

	end = begin + (uint64_t)(SECONDS * 1e9);
	for (unsigned i = 0; i < count; i++) {
		threads[i].way = way;
		threads[i].waits = waits;
		if (pthread_create(&threads[i].thread, NULL, work, &threads[i]))
			abort();
	}
	for (unsigned i = 0; i < count; i++) {
		pthread_join(threads[i].thread, NULL);
		done += threads[i].done;
	}
	printf("{\"name\": \"%s%s_%u\", \"unit\": \"k/s\", \"value\": %.1f}\n", way_names[way],
		waits ? "_wait" : "", count, (double)done / ((double)(now_ns() - begin) / 1e9) / 1000);
	fflush(stdout);
}

static double timed_launch(CUstream stream)
{
	uint64_t begin = now_ns();

	launch(stream);
	driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
	return (double)(now_ns() - begin) / 1000;
}

static void measure_streams(void)
{
	struct samples make, first, next;
	CUstream streams[STREAMS];

	samples_init(&make, STREAMS);
	samples_init(&first, STREAMS);
	samples_init(&next, STREAMS);
	for (int i = 0; i < STREAMS; i++) {
		uint64_t begin = now_ns();

		driver_check(cu.stream_create(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
		samples_add(&make, (double)(now_ns() - begin) / 1000);
	}
	for (int i = 0; i < STREAMS; i++)
		samples_add(&first, timed_launch(streams[i]));
	for (int i = 0; i < STREAMS; i++)
		samples_add(&next, timed_launch(streams[i]));
	samples_print(&make, "make", "us");
	samples_print(&first, "first", "us");
	samples_print(&next, "next", "us");
	samples_deinit(&make);
	samples_deinit(&first);
	samples_deinit(&next);
}

int main(int argc, char **argv)
{
	static const unsigned counts[] = {1, 2, 4, 8, 16};
	uint8_t *page;

	if (argc != 2) {
		fprintf(stderr, "usage: marks SPIN_NS\n");
		return 64;
	}
	mutex_spin(strtoull(argv[1], NULL, 10));
	driver_open();
	driver_check(cu.get_current(&context), "cuCtxGetCurrent");
	empty = driver_function(driver_module(), "empty");
	driver_check(cu.host_alloc((void **)(void *)&page, 4096, 0), "cuMemHostAlloc");
	memset(page, 0, 4096);
	for (unsigned i = 0; i < THREADS_MAX; i++) {
		threads[i].word = (volatile uint32_t *)(void *)(page + (size_t)i * 64);
		driver_check(cu.stream_create(&threads[i].stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
		driver_check(cu.event_create(&threads[i].event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
	}
	for (int waits = 0; waits < 2; waits++)
		for (int way = 0; way < WAYS; way++)
			for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
				measure((enum way)way, waits, counts[i]);
	measure_streams();
	return 0;
}
