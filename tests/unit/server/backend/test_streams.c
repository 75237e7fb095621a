// Streams, events and marks of the host backend: order inside a stream, independence between
// streams, waits that hold no thread.

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/unit/server/backend/bed.h"

/* Places in the chunk. */
enum { GATE = 0, GATE2 = 64, MARK = 128, MARK2 = 192, DATA = 4096 };

#define FENCED 17 /* how the test of the fence ends */

/* More than the backend has threads. */
#define MANY 100

TEST(streams, commands_of_a_stream_run_in_order)
{
	struct backend_stream *stream = stream_new();
	word32 *word = memory(DATA);

	/* Every copy must see exactly the fill and the count before it. */
	for (uint32_t i = 1; i <= 200; i++) {
		launch(stream, "fill",
			&(struct fill_params){.out = device(DATA), .value = i * 10, .count = 1});
		launch(stream, "count_up", &(struct count_up_params){.word = device(DATA), .by = i});
		ok(OPS->copy(stream, &(struct backend_copy){.dst = device(DATA + 4 * i),
					     .src = device(DATA),
					     .width = 4,
					     .height = 1,
					     .depth = 1}));
	}
	ok(OPS->mark(stream, memory(MARK), 600));
	wait_word(memory(MARK), 600);
	for (uint32_t i = 1; i <= 200; i++)
		ck_assert_uint_eq(word_relaxed(&word[i]), i * 11);
	wait_stream(stream);
	ok(OPS->stream_destroy(stream));
}

TEST(streams, a_blocked_stream_blocks_no_other)
{
	struct backend_stream *blocked = stream_new(), *other = stream_new();

	close_gate(blocked, GATE);
	ok(OPS->mark(blocked, memory(MARK), 1));
	for (uint64_t i = 1; i <= 50; i++)
		ok(OPS->mark(other, memory(MARK2), i));
	wait_word(memory(MARK2), 50);
	ck_assert_uint_eq(word_acquire((word64 *)memory(MARK)), 0);
	ck_assert_int_eq(OPS->stream_query(blocked), CUDA_ERROR_NOT_READY);
	open_gate(GATE);
	wait_word(memory(MARK), 1);
	wait_stream(blocked);
	ok(OPS->stream_destroy(blocked));
	ok(OPS->stream_destroy(other));
}

static void *unregister(void *address)
{
	ok(OPS->host_unregister(address));
	return NULL;
}

static void *launch_one(void *stream)
{
	ok(OPS->mark(stream, memory(MARK2), 1));
	return NULL;
}

/* The driver's way: until everything has ended, and whoever launches waits as well. */
TEST(streams, unregistering_stops_the_device)
{
	struct backend_stream *blocked = stream_new(), *other = stream_new();
	void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct timespec soon;
	pthread_t caller, launcher;

	ck_assert_ptr_ne(at, MAP_FAILED);
	ok(OPS->host_register(at, 4096));
	close_gate(blocked, GATE);
	ck_assert_int_eq(pthread_create(&caller, NULL, unregister, at), 0);
	/* That something does not end has no event. */
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec++;
	ck_assert_int_eq(pthread_timedjoin_np(caller, NULL, &soon), ETIMEDOUT);
	ck_assert_int_eq(pthread_create(&launcher, NULL, launch_one, other), 0);
	soon.tv_sec++;
	ck_assert_int_eq(pthread_timedjoin_np(launcher, NULL, &soon), ETIMEDOUT);
	ck_assert_uint_eq(word_acquire((word64 *)memory(MARK2)), 0);
	open_gate(GATE);
	pthread_join(caller, NULL);
	pthread_join(launcher, NULL);
	wait_word(memory(MARK2), 1);
	wait_stream(blocked);
	wait_stream(other);
	ok(OPS->stream_destroy(blocked));
	ok(OPS->stream_destroy(other));
	munmap(at, 4096);
}

TEST(streams, an_event_orders_two_streams)
{
	struct backend_stream *first = stream_new(), *second = stream_new();
	struct backend_event *event;

	ok(OPS->event_create(false, &event));
	close_gate(first, GATE);
	launch(first, "fill", &(struct fill_params){.out = device(DATA), .value = 7, .count = 1});
	ok(OPS->event_record(event, first));
	ok(OPS->stream_wait(second, event));
	ok(OPS->event_destroy(event)); /* what was queued keeps its meaning */
	launch(second, "count_up", &(struct count_up_params){.word = device(DATA), .by = 1});
	ok(OPS->mark(second, memory(MARK), 1));
	ck_assert_int_eq(OPS->stream_query(second), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(*(uint32_t *)memory(DATA), 0);
	open_gate(GATE);
	wait_word(memory(MARK), 1);
	ck_assert_uint_eq(*(uint32_t *)memory(DATA), 8);
	wait_stream(first);
	wait_stream(second);
	ok(OPS->stream_destroy(first));
	ok(OPS->stream_destroy(second));
}

/* A wait is for the record that was the latest when it was queued, whatever becomes of the
 * event. */
TEST(streams, a_wait_names_a_record)
{
	struct backend_stream *slow = stream_new(), *fast = stream_new(), *waiter = stream_new();
	struct backend_event *event;

	ok(OPS->event_create(false, &event));
	ok(OPS->stream_wait(waiter, event)); /* never recorded: nothing to wait for */
	ok(OPS->mark(waiter, memory(MARK), 1));
	wait_word(memory(MARK), 1);
	close_gate(slow, GATE);
	ok(OPS->event_record(event, slow));
	ok(OPS->stream_wait(waiter, event));
	ok(OPS->mark(waiter, memory(MARK), 2));
	ok(OPS->event_record(event, fast));
	ok(OPS->mark(fast, memory(MARK2), 1));
	wait_word(memory(MARK2), 1);
	ok(OPS->stream_wait(fast, event)); /* its own record, done */
	ok(OPS->mark(fast, memory(MARK2), 2));
	wait_word(memory(MARK2), 2);
	ck_assert_uint_eq(word_acquire((word64 *)memory(MARK)), 1);
	open_gate(GATE);
	wait_word(memory(MARK), 2);
	ok(OPS->event_destroy(event));
	ok(OPS->stream_destroy(slow));
	ok(OPS->stream_destroy(fast));
	ok(OPS->stream_destroy(waiter));
}

TEST(streams, waiting_streams_hold_no_threads)
{
	struct backend_stream *waiters[MANY], *slow = stream_new(), *free_one = stream_new();
	struct backend_event *event;

	ok(OPS->event_create(false, &event));
	close_gate(slow, GATE);
	ok(OPS->event_record(event, slow));
	for (int i = 0; i < MANY; i++) {
		waiters[i] = stream_new();
		ok(OPS->stream_wait(waiters[i], event));
		launch(waiters[i], "count_up", &(struct count_up_params){.word = device(DATA), .by = 1});
		ok(OPS->mark(waiters[i], memory(2 * DATA + 16 * (unsigned)i), 1));
	}
	ok(OPS->mark(free_one, memory(MARK), 1));
	wait_word(memory(MARK), 1); /* a thread was left for it */
	ck_assert_uint_eq(*(uint32_t *)memory(DATA), 0);
	open_gate(GATE);
	for (int i = 0; i < MANY; i++) {
		wait_word(memory(2 * DATA + 16 * (unsigned)i), 1);
		ok(OPS->stream_destroy(waiters[i]));
	}
	ck_assert_uint_eq(*(uint32_t *)memory(DATA), MANY);
	ok(OPS->event_destroy(event));
	ok(OPS->stream_destroy(slow));
	ok(OPS->stream_destroy(free_one));
}

TEST(streams, more_streams_than_threads_all_finish)
{
	struct backend_stream *streams[MANY];

	for (int i = 0; i < MANY; i++) {
		streams[i] = stream_new();
		close_gate(streams[i], GATE);
		launch(streams[i], "count_up", &(struct count_up_params){.word = device(DATA), .by = 1});
		ok(OPS->mark(streams[i], memory(2 * DATA + 16 * (unsigned)i), 1));
	}
	open_gate(GATE);
	for (int i = 0; i < MANY; i++) {
		wait_word(memory(2 * DATA + 16 * (unsigned)i), 1);
		ok(OPS->stream_destroy(streams[i]));
	}
	ck_assert_uint_eq(*(uint32_t *)memory(DATA), MANY);
}

TEST(streams, a_destroyed_stream_finishes_its_work)
{
	struct backend_stream *stream = stream_new();

	close_gate(stream, GATE);
	ok(OPS->mark(stream, memory(MARK), 1));
	ok(OPS->stream_destroy(stream));
	open_gate(GATE);
	wait_word(memory(MARK), 1);
}

TEST(streams, elapsed_time)
{
	struct backend_stream *stream = stream_new();
	struct backend_event *start, *end, *untimed;
	struct backend_time from, to;

	ok(OPS->event_create(true, &start));
	ok(OPS->event_create(true, &end));
	ok(OPS->event_create(false, &untimed));
	ck_assert_int_eq(OPS->event_time(start, &from), CUDA_ERROR_INVALID_HANDLE);
	ok(OPS->event_record(start, stream));
	launch(stream, "spin_ns", &(struct spin_ns_params){.ns = 5000000});
	close_gate(stream, GATE);
	ok(OPS->event_record(end, stream));
	ok(OPS->event_record(untimed, stream));
	ck_assert_int_eq(OPS->event_time(end, &to), CUDA_ERROR_NOT_READY);
	open_gate(GATE);
	wait_stream(stream);
	ck_assert_int_eq(OPS->event_time(untimed, &to), CUDA_ERROR_INVALID_HANDLE);
	ok(OPS->event_time(start, &from));
	ok(OPS->event_time(end, &to));
	ck_assert_int_ge(to.local - from.local, 5000000);
	ck_assert_int_lt(to.local - from.local, INT64_C(60000000000));
	ck_assert_int_eq(to.device - from.device, to.local - from.local);
	ok(OPS->event_destroy(start));
	ok(OPS->event_destroy(end));
	ok(OPS->event_destroy(untimed));
	ok(OPS->stream_destroy(stream));
}

/* Endless kernels and copies alike; what did not begin does not begin. */
START_TEST(a_fence_stops_everything)
{
	struct backend_stream *kernel = stream_new(), *fills = stream_new(), *counts = stream_new();
	word32 *words = memory(DATA), *filled = memory(2 * DATA), *counted = memory(GATE2);
	uint32_t before;

	launch(kernel, "occupy", &(struct occupy_params){.words = device(DATA)});
	launch(kernel, "count_up", &(struct count_up_params){.word = device(GATE2), .by = 1});
	/* Seconds of writing. */
	for (uint32_t i = 0; i < 50000; i++)
		launch(fills, "fill",
			&(struct fill_params){.out = device(2 * DATA), .value = i, .count = 400000});
	while (!word_acquire(&words[0]) || !word_acquire(filled))
		sched_yield();
	ok(OPS->fence());
	before = word_acquire(filled);
	/* Would let the kernel end, and what waits behind it begin. */
	word_release(&words[1], 1);
	launch(counts, "count_up", &(struct count_up_params){.word = device(GATE2), .by = 1});
	for (int i = 0; i < 1000; i++) {
		ck_assert_uint_eq(word_acquire(filled), before);
		ck_assert_uint_eq(word_acquire(counted), 0);
		sched_yield();
	}
	ck_assert_int_eq(OPS->stream_query(fills), CUDA_ERROR_NOT_READY);
	_exit(FENCED); /* the backend does not close any more */
}
END_TEST

TEST(streams, written_values)
{
	struct backend_stream *stream = stream_new();
	uint64_t *words = memory(DATA);

	words[0] = words[1] = UINT64_MAX;
	ok(OPS->write_value(
		stream, &(struct frmps_write_value){
				.address = device(DATA), .value = 0x1122334455667788, .bytes = 8}));
	ok(OPS->write_value(
		stream, &(struct frmps_write_value){
				.address = device(DATA + 8), .value = 0x99aabbcc, .bytes = 4, .flags = 1}));
	wait_stream(stream);
	ck_assert_uint_eq(words[0], 0x1122334455667788);
	ck_assert_uint_eq(words[1], 0xffffffff99aabbcc);
	ck_assert_int_eq(
		OPS->write_value(stream, &(struct frmps_write_value){.address = device(DATA), .bytes = 2}),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		OPS->write_value(stream, &(struct frmps_write_value){.address = device(1), .bytes = 4}),
		CUDA_ERROR_INVALID_VALUE);
	ok(OPS->stream_destroy(stream));
}

static struct backend_module **list_one(void *context, uint32_t *ret_count)
{
	struct backend_module **modules = malloc(sizeof(*modules));

	ck_assert_ptr_nonnull(modules);
	modules[0] = context;
	*ret_count = 1;
	return modules;
}

/* Until the mark behind them has come: what has not begun when it is called needs another call. */
static void end_kernels(struct backend_module *module, uint64_t mark, uint64_t value)
{
	const struct backend_ending ending = {.list = list_one, .context = module};
	char kernel[BACKEND_KERNEL_BYTES];

	while (word_acquire((word64 *)memory(mark)) < value) {
		ok(OPS->kernels_end(&ending, kernel));
		ck_assert(!kernel[0] || !strcmp(kernel, "endless"));
		sched_yield();
	}
}

TEST(streams, kernels_of_one_module_are_ended_and_no_others)
{
	struct backend_stream *endless = stream_new(), *other = stream_new();
	struct backend_module *theirs = bed_load(), *ours = bed.module;
	char kernel[BACKEND_KERNEL_BYTES];

	ok(OPS->kernels_end(NULL, kernel));
	bed.module = theirs;
	close_gate(other, GATE);
	ok(OPS->mark(other, memory(MARK2), 1));
	bed.module = ours;
	launch(endless, "endless", NULL);
	launch(endless, "endless", NULL);
	ok(OPS->mark(endless, memory(MARK), 1));
	end_kernels(ours, MARK, 1);
	wait_stream(endless);
	ck_assert_int_eq(OPS->stream_query(other), CUDA_ERROR_NOT_READY);
	/* The thread, the stream and the module are as good as before. */
	launch(endless, "fill", &(struct fill_params){.out = device(DATA), .value = 7, .count = 1});
	ok(OPS->mark(endless, memory(MARK), 2));
	wait_word(memory(MARK), 2);
	ck_assert_uint_eq(*(uint32_t *)memory(DATA), 7);
	ck_assert_uint_eq(word_acquire((word64 *)memory(MARK2)), 0);
	open_gate(GATE);
	wait_word(memory(MARK2), 1);
	wait_stream(other);
	ok(OPS->stream_destroy(endless));
	ok(OPS->stream_destroy(other));
	ok(OPS->module_unload(theirs));
}

int main(void)
{
	Suite *suite = suite_create("server/backend/streams");
	TCase *tests = suite_case(suite, "streams");

	tcase_add_checked_fixture(tests, bed_init, bed_deinit);
	suite_add(tests, "streams");
	tcase_add_exit_test(tests, a_fence_stops_everything, FENCED);
	return suite_run(suite);
}
