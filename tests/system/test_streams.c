// Streams and what orders them: events, the legacy stream, words, host functions.
// The tests run against NVIDIA's library as well and must pass there.

#include <stdlib.h>
#include <string.h>

#include "shm/layout.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/graphs.h"
#include "tests/system/program.h"

TEST(streams, a_stream_keeps_its_order)
{
	uint64_t count = 5000;
	CUdeviceptr a, b;
	uint32_t *result = malloc(count * 4), expected;
	CUstream stream;

	driver_open();
	a = device_words(count, 1);
	b = device_words(count, 0);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t round = 0; round < 3000; round++) {
		CUdeviceptr *out = round % 2 ? &a : &b, *in = round % 2 ? &b : &a;
		void *arguments[] = {out, in, &round, &count};

		ck_cuda(launch("mix", 8, 64, stream, arguments));
	}
	ck_cuda(cuMemcpyDtoHAsync_v2(result, a, count * 4, stream));
	ck_cuda(cuStreamSynchronize(stream));
	for (uint32_t i = 0; i < count; i++) {
		expected = i;
		for (uint32_t round = 0; round < 3000; round++)
			expected = mixed(expected, round, i);
		ck_assert_uint_eq(result[i], expected);
	}
	ck_cuda(cuStreamDestroy_v2(stream));
	free(result);
}

TEST(streams, streams_do_not_wait_for_each_other)
{
	CUstream busy, free_stream;
	uint32_t *word;

	driver_open();
	word = shared_word();
	ck_cuda(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, 1, busy));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 1), 7, 1, free_stream));
	ck_cuda(cuStreamSynchronize(free_stream));
	ck_assert_uint_eq(word[1], 7);
	ck_assert_int_eq(cuStreamQuery(busy), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(busy));
	ck_cuda(cuStreamQuery(busy));
}

TEST(streams, events_order_streams)
{
	CUstream first, second;
	CUevent event;
	uint32_t *word;

	driver_open();
	word = shared_word();
	ck_cuda(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuEventQuery(event));
	ck_cuda(launch_spin(word, 1, first));
	ck_cuda(cuEventRecord(event, first));
	ck_cuda(cuStreamWaitEvent(second, event, 0));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 1), 7, 1, second));
	ck_assert_int_eq(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(word[1], 0);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(second));
	ck_assert_uint_eq(word[1], 7);
	ck_cuda(cuEventSynchronize(event));
	ck_cuda(cuEventDestroy_v2(event));
}

static CUresult set_number(CUstream stream, CUlaunchAttributeID id, int number)
{
	const CUlaunchAttributeValue value = {.priority = number};

	return cuStreamSetAttribute(stream, id, &value);
}

static int get_number(CUstream stream, CUlaunchAttributeID id)
{
	CUlaunchAttributeValue value;

	memset(&value, 0x77, sizeof(value));
	ck_cuda(cuStreamGetAttribute(stream, id, &value));
	/* Nothing behind the value is written. */
	ck_assert_int_eq(value.pad[sizeof(int)], 0x77);
	return value.priority;
}

static int priority_of(CUstream stream)
{
	int priority;

	ck_cuda(cuStreamGetPriority(stream, &priority));
	ck_assert_int_eq(get_number(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY), priority);
	return priority;
}

/* The driver's words for each. */
TEST(streams, streams_have_attributes)
{
	static const struct {
		CUlaunchAttributeID id;
		int number;
		CUresult result;
	} rows[] = {
		{CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, 0, CUDA_ERROR_INVALID_VALUE},
		{CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, CU_SYNC_POLICY_AUTO, CUDA_SUCCESS},
		{CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, CU_SYNC_POLICY_BLOCKING_SYNC, CUDA_SUCCESS},
		{CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, 5, CUDA_ERROR_INVALID_VALUE},
		{CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, 1, CUDA_SUCCESS},
		{CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, 2, CUDA_ERROR_INVALID_VALUE},
		{CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1, CUDA_ERROR_INVALID_VALUE},
		{(CUlaunchAttributeID)99, 1, CUDA_ERROR_INVALID_VALUE},
	};
	CUlaunchAttributeValue value = {.accessPolicyWindow = {.num_bytes = 4096, .hitRatio = 2}};
	CUstream stream, other;

	driver_open();
	ck_cuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -3));
	ck_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	ck_assert_int_eq(get_number(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY), -1);
	ck_assert_int_eq(get_number(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		ck_assert_int_eq(set_number(stream, rows[i].id, rows[i].number), rows[i].result);
	ck_assert_int_eq(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value),
		CUDA_ERROR_INVALID_VALUE);
	value.accessPolicyWindow.hitRatio = 1;
	ck_cuda(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
	ck_cuda(cuStreamCopyAttributes(other, stream));
	ck_assert_int_eq(get_number(other, CU_LAUNCH_ATTRIBUTE_PRIORITY), -3);
	ck_assert_int_eq(
		get_number(other, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY), CU_SYNC_POLICY_BLOCKING_SYNC);
	ck_assert_int_eq(get_number(other, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN), 1);
	/* The device's own ends. */
	ck_cuda(set_number(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, -100));
	ck_assert_int_eq(get_number(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY), -5);
	ck_cuda(set_number(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, 100));
	ck_assert_int_eq(get_number(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY), 0);
}

/* Between commands, which keep their order. */
TEST(streams, a_stream_changes_its_priority)
{
	static const int priorities[] = {-3, -1, 0, -5};
	uint64_t count = 5000;
	CUdeviceptr words;
	CUstream stream;

	driver_open();
	words = device_words(count, 0);
	ck_cuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -2));
	ck_assert_int_eq(priority_of(stream), -2);
	for (uint32_t i = 1; i <= 40; i++) {
		ck_cuda(set_number(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, priorities[i % 4]));
		ck_assert_int_eq(priority_of(stream), priorities[i % 4]);
		ck_cuda(launch("fill", 8, 64, stream, (void *[]){&words, &i, &count}));
	}
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(words), 40);
	ck_assert_uint_eq(word_at(words + 4 * (count - 1)), 40);
}

TEST(streams, events_measure_time)
{
	uint64_t ns = 20000000;
	void *arguments[] = {&ns};
	CUevent begin, end;
	float ms = 0;

	driver_open();
	ck_cuda(cuEventCreate(&begin, CU_EVENT_DEFAULT));
	ck_cuda(cuEventCreate(&end, CU_EVENT_DEFAULT));
	ck_assert_int_eq(cuEventElapsedTime_v2(&ms, begin, end), CUDA_ERROR_INVALID_HANDLE);
	ck_cuda(cuEventRecord(begin, NULL));
	ck_cuda(launch("spin_ns", 1, 1, NULL, arguments));
	ck_cuda(cuEventRecord(end, NULL));
	ck_assert_int_eq(cuEventElapsedTime_v2(&ms, begin, end), CUDA_ERROR_NOT_READY);
	ck_cuda(cuEventSynchronize(end));
	ck_cuda(cuEventElapsedTime_v2(&ms, begin, end));
	ck_assert_float_ge(ms, 19.9f);
}

/* Who has waited for an event knows when it was, at once. */
TEST(streams, time_is_known_when_an_event_is_over)
{
	CUevent start, end;
	CUstream stream;
	float ms;

	driver_open();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&start, CU_EVENT_DEFAULT));
	ck_cuda(cuEventCreate(&end, CU_EVENT_DEFAULT));
	for (int i = 0; i < 2000; i++) {
		ck_cuda(cuEventRecord(start, stream));
		ck_cuda(cuEventRecord(end, stream));
		while (cuEventQuery(end) == CUDA_ERROR_NOT_READY)
			;
		ck_cuda(cuEventElapsedTime(&ms, start, end));
		ck_assert_msg(ms >= 0, "%f ms in round %d", (double)ms, i);
	}
}

#define EVENTS 70000

/* All at a time, in a chain through two streams. Each is over, and the last ones have a time. */
TEST(streams, a_program_has_many_events)
{
	static CUevent events[EVENTS];
	CUstream streams[2];
	float ms;

	driver_open();
	for (int i = 0; i < 2; i++)
		ck_cuda(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < EVENTS; i++)
		ck_cuda(cuEventCreate(&events[i], i < EVENTS - 2 ? CU_EVENT_DISABLE_TIMING : 0));
	for (int i = 0; i < EVENTS; i++) {
		ck_cuda(cuEventRecord(events[i], streams[i % 2]));
		ck_cuda(cuStreamWaitEvent(streams[(i + 1) % 2], events[i], 0));
	}
	ck_cuda(cuEventSynchronize(events[EVENTS - 1]));
	for (int i = 0; i < EVENTS; i++)
		ck_cuda(cuEventQuery(events[i]));
	ck_cuda(cuEventElapsedTime(&ms, events[EVENTS - 2], events[EVENTS - 1]));
	ck_assert(ms >= 0);
	for (int i = 0; i < EVENTS; i++)
		ck_cuda(cuEventDestroy_v2(events[i]));
}

/* More events than there are at a time, behind one that is not over. */
static float time_between(CUevent begin, CUevent end)
{
	float ms;

	ck_cuda(cuEventElapsedTime(&ms, begin, end));
	return ms;
}

/* Another event, with the place of one that was destroyed if that is what the library does. */
static CUevent event_in_place_of(CUevent former)
{
	CUevent event;

	ck_cuda(cuEventDestroy_v2(former));
	for (int i = 0;; i++) {
		ck_cuda(cuEventCreate(&event, 0));
		if (((uintptr_t)event ^ (uintptr_t)former) % (SHM_EVENTS << 4) == 0 || i == 100000)
			return event;
		ck_cuda(cuEventDestroy_v2(event));
	}
}

/* What a stream comes to later does not count: an event was recorded there, and then elsewhere, or
 * is another one since. */
TEST_LOOP(streams_2, time_is_that_of_the_latest_record, 0, is_native() ? 1 : 2)
{
	uint64_t ns = 5000000;
	void *arguments[] = {&ns};
	CUstream slow, fast;
	CUevent begin, end;
	uint32_t *gate;
	float before;

	driver_open();
	kernel("spin_ns");
	gate = shared_word();
	ck_cuda(cuStreamCreate(&slow, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&fast, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&begin, 0));
	ck_cuda(cuEventCreate(&end, 0));
	/* A kernel that is loaded when it is launched first would wait for the other stream. */
	ck_cuda(launch("spin_ns", 1, 1, fast, arguments));
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cuStreamWaitValue32_v2(slow, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuEventRecord(begin, slow));
	if (_i) {
		ck_cuda(cuStreamDestroy_v2(slow));
		begin = event_in_place_of(begin);
	}
	ck_cuda(cuEventRecord(begin, fast));
	ck_cuda(launch("spin_ns", 1, 1, fast, arguments));
	ck_cuda(cuEventRecord(end, fast));
	ck_cuda(cuStreamSynchronize(fast));
	before = time_between(begin, end);
	ck_assert_float_ge(before, 5);
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	ck_cuda(cuCtxSynchronize());
	ck_assert_float_eq(time_between(begin, end), before);
}

TEST(streams_2, events_come_and_go_beside_a_stream_that_stands_still)
{
	uint32_t *word;
	CUstream held, other;
	CUevent event;

	driver_open();
	word = shared_word();
	ck_cuda(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, 1, held));
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuEventRecord(event, held));
	ck_cuda(cuEventDestroy_v2(event));
	for (int i = 0; i < 70000; i++) {
		ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		ck_cuda(cuEventRecord(event, other));
		ck_cuda(cuEventDestroy_v2(event));
	}
	ck_assert_int_eq(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
	*(volatile uint32_t *)word = 1;
	ck_cuda(cuStreamSynchronize(held));
}

TEST(streams_2, legacy_default_stream_waits_and_is_waited_for)
{
	CUstream blocking, free_stream;
	CUdeviceptr d;
	uint32_t *word;

	driver_open();
	word = shared_word();
	d = (CUdeviceptr)(uintptr_t)(word + 1);
	ck_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ck_cuda(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, 1, blocking));
	ck_cuda(cuMemsetD32Async(d, 2, 1, NULL));
	ck_cuda(cuMemsetD32Async(d + 4, 3, 1, free_stream));
	ck_cuda(cuStreamSynchronize(free_stream));
	ck_assert_uint_eq(word[2], 3);
	ck_assert_uint_eq(word[1], 0);
	ck_assert_int_eq(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(word[1], 2);
	/* And the other way round. */
	ck_cuda(launch_spin(word, 4, NULL));
	ck_cuda(cuMemsetD32Async(d, 5, 1, blocking));
	ck_assert_int_eq(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(word[1], 2);
	__atomic_store_n(word, 4, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(blocking));
	ck_assert_uint_eq(word[1], 5);
}

static void write_late(void *word)
{
	pass_time(50);
	*(uint32_t *)word = 7;
}

/* Such a copy is made by the program's side, when it is the stream's turn. */
TEST(streams_2, copies_from_host_to_host_wait_for_the_legacy_stream)
{
	CUstream blocking;
	uint32_t *words;

	driver_open();
	words = shared_word();
	ck_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ck_cuda(cuLaunchHostFunc(NULL, write_late, &words[0]));
	ck_cuda(cuMemcpyAsync(
		(CUdeviceptr)(uintptr_t)&words[1], (CUdeviceptr)(uintptr_t)&words[0], 4, blocking));
	ck_cuda(cuStreamSynchronize(blocking));
	ck_assert_uint_eq(words[1], 7);
}

TEST(streams_2, streams_wait_for_words)
{
	CUstream waits, writes;
	CUdeviceptr d;
	uint32_t *word;

	driver_open();
	word = shared_word();
	d = (CUdeviceptr)(uintptr_t)word;
	ck_cuda(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&writes, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamWaitValue32_v2(waits, d, 5, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuMemsetD32Async(d + 4, 9, 1, waits));
	ck_cuda(cuMemsetD32Async(d + 8, 1, 1, writes));
	ck_cuda(cuStreamSynchronize(writes));
	ck_assert_int_eq(cuStreamQuery(waits), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(word[1], 0);
	ck_cuda(cuStreamWriteValue32_v2(writes, d, 6, 0));
	ck_cuda(cuStreamSynchronize(waits));
	ck_assert_uint_eq(word[1], 9);
	/* Released by the program itself. */
	ck_cuda(cuStreamWaitValue32_v2(waits, d + 16, 1, CU_STREAM_WAIT_VALUE_EQ));
	ck_cuda(cuMemsetD32Async(d + 20, 4, 1, waits));
	__atomic_store_n(word + 4, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(waits));
	ck_assert_uint_eq(word[5], 4);
}

/* More streams than can exist at a time, each destroyed before its work ends. */
TEST(streams_2, streams_are_destroyed_faster_than_they_end)
{
	uint64_t ns = 200000;
	void *arguments[] = {&ns};
	CUstream stream;

	driver_open();
	for (int i = 0; i < 5000; i++) {
		ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		ck_cuda(launch("spin_ns", 1, 1, stream, arguments));
		ck_cuda(cuStreamDestroy_v2(stream));
	}
	ck_cuda(cuCtxSynchronize());
}

/* As many streams as there can be, and of two that are gone one does not end. */
TEST(streams_2, a_new_stream_takes_the_place_of_one_that_ends)
{
	enum { STREAMS = 65535 };
	uint64_t ns = 300000000;
	void *arguments[] = {&ns};
	CUstream ends, stays, idle;
	uint32_t *word;

	driver_open();
	word = shared_word();
	/* The first lookup of a kernel may wait for those that run. */
	kernel("spin_until");
	kernel("spin_ns");
	ck_cuda(cuStreamCreate(&ends, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&stays, CU_STREAM_NON_BLOCKING));
	for (int i = 2; i < STREAMS; i++)
		ck_cuda(cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, 1, stays));
	ck_cuda(launch("spin_ns", 1, 1, ends, arguments));
	ck_cuda(cuStreamDestroy_v2(ends));
	ck_cuda(cuStreamDestroy_v2(stays));
	ck_cuda(cuStreamCreate(&ends, CU_STREAM_NON_BLOCKING));
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuCtxSynchronize());
}

/* Every so many of as many streams as there can be have work, the last one too; and again behind
 * the loss of an executor. */
TEST(streams_2, a_program_has_many_streams)
{
	enum { STREAMS = 65535, STEP = 31, USED = STREAMS / STEP + 1 };
	static CUstream streams[STREAMS];
	uint32_t one = 1, words[USED];
	CUdeviceptr counts, at;
	void *arguments[] = {&at, &one};

	driver_open();
	counts = device_words(USED, 0);
	for (int i = 0; i < STREAMS; i++)
		ck_cuda(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (uint32_t round = 1; round <= 3; round++) {
		for (uint32_t i = 0; i < USED; i++) {
			at = counts + 4 * i;
			ck_cuda(launch("count_up", 1, 1, streams[STREAMS - 1 - i * STEP], arguments));
		}
		ck_cuda(cuStreamSynchronize(streams[STREAMS - 1]));
		ck_cuda(cuCtxSynchronize());
		ck_cuda(cuMemcpyDtoH_v2(words, counts, sizeof(words)));
		for (uint32_t i = 0; i < USED; i++)
			ck_assert_uint_eq(words[i], round);
		if (round == 1 && !is_native())
			ck_assert(service_kill_active(&common_service));
	}
	for (int i = 0; i < STREAMS; i++)
		ck_cuda(cuStreamDestroy_v2(streams[i]));
}

struct order {
	uint32_t *word;
	uint32_t seen, calls;
};

static void note(void *data)
{
	struct order *order = data;

	order->seen = *order->word;
	order->calls++;
}

TEST(streams_2, host_functions_run_in_order_and_once)
{
	struct order order = {0};
	CUstream stream;

	driver_open();
	order.word = shared_word();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t i = 1; i <= 50; i++) {
		ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)order.word, i, 1, stream));
		ck_cuda(cuLaunchHostFunc(stream, note, &order));
	}
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)order.word, 99, 1, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(order.calls, 50);
	ck_assert_uint_eq(order.seen, 50);
	ck_assert_uint_eq(*order.word, 99);
}

int main(void)
{
	Suite *suite = suite_create("streams");
	TCase *tests = tcase_create("streams");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "streams");
	/* Slots of events are the service's. */
	suite_add(tests, "streams_2");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
