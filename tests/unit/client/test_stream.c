// The shim as a program sees it: streams, events, words, host functions, many threads.

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "client/state/session.h"
#include "client/state/clock.h"
#include "client/state/stream.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"
#include "tests/unit/client/shim.h"

/* In the place of the C library's. */
static _Atomic unsigned int yields;
static _Atomic uint64_t yield_ns; /* a yield takes as long: somebody else had the processor */

int sched_yield(void)
{
	uint64_t begin = clock_now_ns();

	atomic_fetch_add(&yields, 1);
	while (clock_now_ns() - begin < atomic_load(&yield_ns))
		;
	return (int)syscall(SYS_sched_yield);
}

TEST(streams, stream_handles)
{
	CUstream a, b;
	unsigned int flags;
	unsigned long long id, other;
	CUgreenCtx green = (CUgreenCtx)(uintptr_t)1;
	CUcontext c;
	int priority;

	OK(cuStreamCreateWithPriority(&a, CU_STREAM_NON_BLOCKING, -99));
	OK(cuStreamGetPriority(a, &priority));
	ck_assert_int_eq(priority, -5);
	OK(cuStreamGetFlags(a, &flags));
	ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
	OK(cuStreamGetCtx(a, &c));
	ck_assert_ptr_eq(c, shim_context);
	OK(cuStreamGetGreenCtx(a, &green));
	ck_assert_ptr_null(green);
	FAILS(cuStreamGetGreenCtx(a, NULL), INVALID_VALUE);
	OK(cuStreamGetId(a, &id));
	OK(cuStreamGetId(NULL, &other));
	ck_assert(id != other);
	OK(cuStreamGetId_ptsz(NULL, &id));
	ck_assert(id != other);
	ck_assert_uint_eq((uintptr_t)a % 8, 0);
	OK(cuStreamDestroy_v2(a));
	FAILS(cuStreamQuery(a), INVALID_HANDLE);
	FAILS(cuStreamDestroy_v2(a), INVALID_HANDLE);
	OK(cuStreamCreate(&b, 0));
	ck_assert_ptr_ne(a, b);
	FAILS(cuStreamQuery(a), INVALID_HANDLE);
	FAILS(cuStreamDestroy_v2(NULL), INVALID_HANDLE);
	FAILS(cuStreamDestroy_v2(CU_STREAM_PER_THREAD), INVALID_HANDLE);
	FAILS(cuStreamCreate(&b, 4), INVALID_VALUE);
	FAILS(cuStreamQuery((CUstream)0xdeadbeef), INVALID_HANDLE);
}

TEST(streams, streams_say_when_they_are_done)
{
	CUstream stream;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, 0));
	OK(cuStreamQuery(stream));
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, stream));
	FAILS(cuStreamQuery(stream), NOT_READY);
	FAILS(cuStreamQuery(NULL), NOT_READY);
	shim_resume();
	OK(cuStreamSynchronize(stream));
	OK(cuStreamQuery(stream));
	OK(cuStreamQuery(NULL));
}

/* It may be a kernel that faulted. */
TEST(streams, what_is_done_is_not_believed_while_the_session_is_held)
{
	struct shm_server_header *server;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	OK(cuStreamSynchronize(NULL));
	server = session_self()->connection.view.server;
	word_set(&loopback->held, 1);
	while (word_acquire(&server->state) != SHM_SESSION_HELD)
		sched_yield();
	FAILS(cuStreamQuery(NULL), NOT_READY);
	word_set(&loopback->held, 0);
	OK(cuStreamSynchronize(NULL));
	OK(cuStreamQuery(NULL));
}

/* What a session reads, without a service. */
static struct {
	struct shm_server_header server;
	struct shm_timeline timelines[SHM_TIMELINES];
	unsigned steps; /* until the verdict is there; 0: it is */
} verdict;

#define TRAP_FLAG 0x100

/* Behind each instruction. The executor has named the session whose kernel faulted: its end is
 * written, then nothing is doubtful. */
static void step(int number, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;

	(void)number;
	(void)info;
	if (verdict.steps && --verdict.steps)
		return;
	word_release(&verdict.server.state, SHM_SESSION_FAULTED);
	word_release(&verdict.server.doubtful, 0);
	interrupted->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

/* Asks whether a kernel is done that has faulted and looks done, and writes the verdict behind so
 * many instructions. */
static bool ask_beside_verdict(unsigned steps)
{
	const struct client_stream stream = {.session = session_self(), .slot = 1};
	bool done;

	word_set(&verdict.timelines[0].stream[1].done, 1);
	word_set(&verdict.server.doubtful, SHM_DOUBT);
	word_set(&verdict.server.state, SHM_SESSION_RUNNING);
	verdict.steps = steps;
	__asm__ volatile(
		"lea -128(%%rsp), %%rsp; pushfq; orq %0, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::"i"(
			TRAP_FLAG)
		: "cc", "memory");
	done = wait_is_done(&stream, 1);
	return done;
}

/* Whoever asks while the words are written sees the doubt or the end, wherever he is. */
TEST(streams, kernel_that_faulted_is_never_believed_done)
{
	const struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
	struct shm_view view = session_self()->connection.view;
	unsigned steps = 0, believed = 0;
	struct sigaction before;
	bool ended_before;

	session_self()->connection.view =
		(struct shm_view){.server = &verdict.server, .timelines = verdict.timelines};
	sigaction(SIGTRAP, &action, &before);
	do {
		believed += ask_beside_verdict(++steps);
		ended_before = verdict.steps;
		verdict.steps = 0;
	} while (!ended_before);
	sigaction(SIGTRAP, &before, NULL);
	session_self()->connection.view = view;
	ck_assert_uint_gt(steps, 10);
	ck_assert_uint_eq(believed, 0);
}

static word32 is_asking;

static void *release_when_asked(void *unused)
{
	(void)unused;
	while (!word_acquire(&is_asking))
		sched_yield();
	word_set(&loopback->held, 0);
	return NULL;
}

/* Whoever has waited for an event does not expect that it is not over. */
TEST(streams, time_is_known_behind_a_pause)
{
	struct shm_server_header *server;
	CUevent begin, end;
	pthread_t helper;
	float ms;

	OK(cuEventCreate(&begin, 0));
	OK(cuEventCreate(&end, 0));
	OK(cuEventRecord(begin, NULL));
	OK(cuEventRecord(end, NULL));
	OK(cuEventSynchronize(end));
	server = session_self()->connection.view.server;
	word_set(&loopback->held, 1);
	while (word_acquire(&server->state) != SHM_SESSION_HELD)
		sched_yield();
	ck_assert_int_eq(pthread_create(&helper, NULL, release_when_asked, NULL), 0);
	word_release(&is_asking, 1);
	OK(cuEventElapsedTime(&ms, begin, end));
	pthread_join(helper, NULL);
}

static void record_both(CUevent begin, CUevent end)
{
	OK(cuEventRecord(begin, NULL));
	OK(cuEventRecord(end, NULL));
	OK(cuEventSynchronize(end));
}

static void replace_executor(void)
{
	struct shm_server_header *server = session_self()->connection.view.server;

	word_set(&loopback->held, 1);
	while (word_acquire(&server->state) != SHM_SESSION_HELD)
		sched_yield();
	word_set(&loopback->held, 0);
	while (word_acquire(&server->state) == SHM_SESSION_HELD)
		sched_yield();
}

/* Nobody is asked: the service does not even run. */
TEST(streams, time_is_read_from_memory)
{
	CUevent begin, end;
	float ms;

	OK(cuEventCreate(&begin, 0));
	OK(cuEventCreate(&end, 0));
	record_both(begin, end);
	OK(cuEventElapsedTime(&ms, begin, end));
	shim_pause();
	OK(cuEventElapsedTime(&ms, begin, end));
	ck_assert_float_eq(ms, 1.5f);
	OK(cuEventElapsedTime(&ms, end, begin));
	ck_assert_float_eq(ms, -1.5f);
	shim_resume();
}

TEST(streams, time_spans_executors)
{
	CUevent begin, end;
	float ms;

	OK(cuEventCreate(&begin, 0));
	OK(cuEventCreate(&end, 0));
	OK(cuEventRecord(begin, NULL));
	OK(cuEventSynchronize(begin));
	replace_executor();
	OK(cuEventRecord(end, NULL));
	OK(cuEventSynchronize(end));
	OK(cuEventElapsedTime(&ms, begin, end));
	ck_assert_float_eq(ms, 1.5f);
}

/* The executor sleeps: it is asked once, and what it writes then is read. */
TEST(streams, time_that_is_not_written_is_asked_for)
{
	CUevent event;
	float ms;

	word_set(&loopback->slow_times, 1);
	OK(cuEventCreate(&event, 0));
	OK(cuEventRecord(event, NULL));
	OK(cuEventSynchronize(event));
	OK(cuEventElapsedTime(&ms, event, event));
	ck_assert_uint_ge(loopback_count(FRMPS_OP_WAKE), 1);
}

TEST(streams, time_that_nobody_wrote_is_lost)
{
	CUevent begin, end;
	float ms = -7;

	word_set(&loopback->slow_times, 2);
	OK(cuEventCreate(&begin, 0));
	OK(cuEventCreate(&end, 0));
	record_both(begin, end);
	replace_executor();
	FAILS(cuEventElapsedTime(&ms, begin, end), ILLEGAL_STATE);
	ck_assert_float_eq(ms, -7);
	/* The next record has a time again. */
	word_set(&loopback->slow_times, 0);
	record_both(begin, end);
	OK(cuEventElapsedTime(&ms, begin, end));
	ck_assert_float_eq(ms, 1.5f);
}

TEST(streams, polling_ends)
{
	CUstream stream;
	CUdeviceptr p;
	CUresult r;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, 0));
	OK(cuMemsetD8Async(p, 1, 64, stream));
	while ((r = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY)
		continue;
	OK(r);
	/* One mark for all the questions. */
	ck_assert_uint_le(loopback_count(FRMPS_OP_MARK), 1);
}

TEST(streams, slots_are_used_again)
{
	CUstream stream;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	for (int i = 0; i < 5000; ++i) {
		OK(cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : 0));
		if (i % 3)
			OK(cuMemsetD8Async(p, 1, 64, stream));
		OK(cuStreamDestroy_v2(stream));
		if (i % 500 == 0)
			OK(cuCtxSynchronize());
	}
	OK(cuCtxSynchronize());
}

TEST(streams, the_default_stream_joins)
{
	CUstream a, b, free_stream;
	CUdeviceptr p;
	unsigned int before;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&a, 0));
	OK(cuStreamCreate(&b, 0));
	OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxSynchronize());
	before = loopback_count(FRMPS_OP_DEPEND);
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, a));
	OK(cuMemsetD8Async(p, 2, 64, b));
	OK(cuMemsetD8Async(p, 3, 64, free_stream));
	OK(cuMemsetD8Async(p, 4, 64, NULL)); /* waits for a and b */
	OK(cuMemsetD8Async(p, 5, 64, NULL));
	OK(cuMemsetD8Async(p, 6, 64, free_stream));
	OK(cuMemsetD8Async(p, 7, 64, a)); /* waits for the default stream */
	OK(cuMemsetD8Async(p, 8, 64, a));
	OK(cuMemsetD8Async(p, 9, 64, CU_STREAM_PER_THREAD)); /* waits as well */
	shim_resume();
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(loopback_count(FRMPS_OP_DEPEND) - before, 4);
}

START_TEST(events)
{
	CUevent event, untimed, unrecorded;
	CUstream a, b;
	CUdeviceptr p;
	float ms = -1;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC));
	OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&unrecorded, 0));
	FAILS(cuEventCreate(&event, CU_EVENT_INTERPROCESS), INVALID_VALUE);
	OK(cuEventQuery(event));
	OK(cuEventSynchronize(event));
	OK(cuStreamWaitEvent(b, event, 0));
	FAILS(cuEventElapsedTime(&ms, event, event), INVALID_HANDLE);
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, a));
	OK(cuEventRecord(event, a));
	OK(cuEventRecordWithFlags(untimed, a, 0));
	FAILS(cuEventRecordWithFlags(untimed, a, CU_EVENT_RECORD_EXTERNAL), ILLEGAL_STATE);
	FAILS(cuEventRecordWithFlags(untimed, a, 2), INVALID_VALUE);
	FAILS(cuEventQuery(event), NOT_READY);
	FAILS(cuEventElapsedTime(&ms, event, event), NOT_READY);
	OK(cuStreamWaitEvent(b, event, 0));
	OK(cuStreamWaitEvent(a, event, 0));
	OK(cuMemsetD8Async(p, 2, 64, b));
	shim_resume();
	OK(cuEventSynchronize(event));
	OK(cuEventQuery(event));
	OK(cuEventElapsedTime_v2(&ms, event, event));
	ck_assert_float_eq(ms, 0.0f);
	FAILS(cuEventElapsedTime(&ms, event, untimed), INVALID_HANDLE);
	FAILS(cuEventElapsedTime(&ms, unrecorded, event), INVALID_HANDLE);
	OK(cuCtxSynchronize());
	/* The wait inside a's own order needs no command. */
	ck_assert_uint_eq(loopback_count(FRMPS_OP_DEPEND), 1);
	OK(cuEventDestroy_v2(event));
	FAILS(cuEventRecord(event, a), INVALID_HANDLE);
	FAILS(cuEventDestroy_v2(event), INVALID_HANDLE);
	OK(cuStreamQuery(a));
}
END_TEST

TEST(streams, event_slots_are_used_again)
{
	CUevent event;
	CUstream stream;

	OK(cuStreamCreate(&stream, 0));
	for (int i = 0; i < 70000; ++i) {
		OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		if (i % 16 == 0)
			OK(cuEventRecord(event, stream));
		OK(cuEventDestroy_v2(event));
	}
	OK(cuCtxSynchronize());
}

/* Lets the service work again when something came behind what is on the ring. */
static void *resume_behind(void *tail)
{
	while (word_acquire(&session_self()->connection.view.client->tail) == *(uint64_t *)tail)
		sched_yield();
	shim_resume();
	return NULL;
}

TEST(streams, the_last_event_slot_is_waited_for)
{
	CUevent event, last;
	pthread_t helper;
	uint64_t tail;

	OK(cuEventCreate(&last, CU_EVENT_DISABLE_TIMING));
	/* Slot 0 is nobody's. */
	for (unsigned int i = 2; i < SHM_EVENTS; ++i)
		OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	FAILS(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), OUT_OF_MEMORY);
	shim_pause();
	OK(cuEventRecord(last, NULL));
	OK(cuEventDestroy_v2(last));
	tail = word_acquire(&session_self()->connection.view.client->tail);
	ck_assert_int_eq(pthread_create(&helper, NULL, resume_behind, &tail), 0);
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	pthread_join(helper, NULL);
	FAILS(cuEventCreate(&last, CU_EVENT_DISABLE_TIMING), OUT_OF_MEMORY);
	/* One that was never recorded makes room at once. */
	shim_pause();
	OK(cuEventDestroy_v2(event));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	shim_resume();
}

TEST(streams, an_event_outlives_its_stream)
{
	CUevent event;
	CUstream stream;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, stream));
	OK(cuEventRecord(event, stream));
	OK(cuStreamDestroy_v2(stream));
	FAILS(cuEventQuery(event), NOT_READY);
	shim_resume();
	OK(cuEventSynchronize(event));
	OK(cuEventDestroy_v2(event));
	OK(cuCtxSynchronize());
}

static struct client_stream *slot_of(CUstream handle)
{
	struct client_stream *stream;

	OK(stream_resolve(handle, false, &stream));
	return stream;
}

/* A slot whose last stream had no command is nobody's again: the end of an event that was recorded
 * there before does not give it one. */
TEST(streams, an_event_outlives_its_slot)
{
	struct client_stream *slot;
	CUstream stream;
	CUevent event;
	uint64_t end;

	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	OK(cuEventRecord(event, stream));
	slot = slot_of(stream);
	OK(cuStreamDestroy_v2(stream));
	end = word_acquire(&slot->seq);
	while (!wait_is_done(slot, end))
		sched_yield();
	OK(cuStreamCreate(&stream, 0));
	ck_assert_ptr_eq(slot_of(stream), slot);
	OK(cuStreamDestroy_v2(stream));
	OK(cuEventDestroy_v2(event));
	ck_assert_uint_eq(word_acquire(&slot->seq), end);
	OK(cuCtxSynchronize());
}

TEST(streams, words_in_memory)
{
	CUstreamBatchMemOpParams batch[3] = {0};
	CUstream stream;
	volatile uint32_t *word;
	CUdeviceptr p;

	OK(cuMemHostAlloc((void **)&word, 64, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	p = (CUdeviceptr)(uintptr_t)word;
	OK(cuStreamWaitValue32_v2(stream, p, 5, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue64_v2(stream, p + 8, 77, 0));
	FAILS(cuStreamQuery(stream), NOT_READY);
	word[0] = 5;
	OK(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word[2], 77);
	FAILS(cuStreamWriteValue32_v2(stream, p + 1, 1, 0), INVALID_VALUE);
	FAILS(cuStreamWriteValue32_v2(stream, 0, 1, 0), INVALID_VALUE);
	FAILS(cuStreamWriteValue32_v2(stream, p, 1, 8), INVALID_VALUE);
	batch[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	batch[0].writeValue.address = p;
	batch[0].writeValue.value = 6;
	batch[1].operation = CU_STREAM_MEM_OP_BARRIER;
	batch[2].operation = (CUstreamBatchMemOpType)99;
	FAILS(cuStreamBatchMemOp_v2(stream, 3, batch, 0), INVALID_VALUE);
	OK(cuStreamBatchMemOp_v2(stream, 2, batch, 0));
	OK(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word[0], 6);
}

TEST(streams, nothing_is_captured)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;

	OK(cuStreamIsCapturing(NULL, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuStreamGetCaptureInfo_v2(NULL, &status, NULL, NULL, NULL, NULL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

TEST(streams, host_functions_run_in_order)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 20; ++i)
		OK(cuLaunchHostFunc(stream, shim_append, (void *)(intptr_t)i));
	OK(cuStreamAddCallback(stream, shim_on_stream, (void *)(intptr_t)20, 0));
	FAILS(cuStreamAddCallback(stream, shim_on_stream, NULL, 1), INVALID_VALUE);
	FAILS(cuLaunchHostFunc(stream, NULL, NULL), INVALID_VALUE);
	OK(cuStreamSynchronize(stream));
	ck_assert_int_eq(shim_ran, 21);
	for (int i = 0; i < 21; ++i)
		ck_assert_int_eq(shim_order[i], i);
	ck_assert_int_eq(shim_callback.status, CUDA_SUCCESS);
	ck_assert_ptr_eq(shim_callback.stream, stream);
}

#define THREADS	 8
#define COMMANDS 4000

static CUdeviceptr shared_memory;

static void *submit_much(void *arg)
{
	CUstream stream = arg;
	CUevent event;

	if (cuCtxSetCurrent(shim_context) != CUDA_SUCCESS || cuEventCreate(&event, 2) != CUDA_SUCCESS)
		return (void *)"setup";
	for (int i = 0; i < COMMANDS; ++i) {
		CUstream to = i % 5 == 0 ? NULL : i % 7 == 0 ? CU_STREAM_PER_THREAD : stream;

		if (cuMemsetD8Async(shared_memory, 1, 16, to) != CUDA_SUCCESS)
			return (void *)"set";
		if (i % 11 == 0 && cuEventRecord(event, to) != CUDA_SUCCESS)
			return (void *)"record";
		if (i % 13 == 0 && cuStreamWaitEvent(stream, event, 0) != CUDA_SUCCESS)
			return (void *)"wait";
		if (i % 500 == 0 && cuStreamSynchronize(to) != CUDA_SUCCESS)
			return (void *)"synchronize";
	}
	return cuEventDestroy_v2(event) == CUDA_SUCCESS ? NULL : (void *)"destroy";
}

TEST(threads, threads_keep_the_order)
{
	pthread_t threads[THREADS];
	CUstream streams[THREADS / 2];
	void *failed;

	OK(cuMemAlloc_v2(&shared_memory, 16));
	for (int i = 0; i < THREADS / 2; ++i)
		OK(cuStreamCreate(&streams[i], i % 2));
	for (int i = 0; i < THREADS; ++i)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_much, streams[i / 2]), 0);
	for (int i = 0; i < THREADS; ++i) {
		pthread_join(threads[i], &failed);
		ck_assert_msg(!failed, "%s", (char *)failed);
	}
	OK(cuCtxSynchronize());
}

TEST(threads, the_credit_is_kept)
{
	CUstream stream;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 30000; ++i)
		OK(cuMemsetD8Async(p, (unsigned char)i, 1, stream));
	OK(cuStreamSynchronize(stream));
}

static void *exceed_credit(void *memory)
{
	CUresult result = cuCtxSetCurrent(shim_context);

	for (unsigned int i = 0; i <= SHM_STREAM_CREDIT && result == CUDA_SUCCESS; ++i)
		result = cuMemsetD8Async((CUdeviceptr)(uintptr_t)memory, 1, 1, CU_STREAM_LEGACY);
	return (void *)(uintptr_t)result;
}

/* It is a long wait: the thread sleeps at once and asks to be woken, however long it spins for
 * other things.
 */
TEST(threads, a_wait_for_credit_does_not_spin)
{
	const uint32_t size = sizeof(struct frmps_head) + sizeof(struct frmps_set);
	const uint64_t all = SHM_STREAM_CREDIT * (uint64_t)(size + (-size & (FRMPS_RECORD_ALIGN - 1)));
	word64 *tail = &session_self()->connection.view.client->tail;
	unsigned int before;
	pthread_t thread;
	uint64_t begin;
	CUdeviceptr p;
	void *result;

	session_self()->connection.spin_us = 3600u * 1000000u;
	OK(cuMemAlloc_v2(&p, 64));
	OK(cuCtxSynchronize());
	before = loopback_count(FRMPS_OP_WAKE);
	shim_pause();
	begin = word_acquire(tail);
	ck_assert_int_eq(pthread_create(&thread, NULL, exceed_credit, (void *)(uintptr_t)p), 0);
	/* What comes behind the last command that has credit is the wait. */
	while (word_acquire(tail) <= begin + all)
		sched_yield();
	shim_resume();
	pthread_join(thread, &result);
	OK((CUresult)(uintptr_t)result);
	/* The other end may come to it when the thread has its credit already. */
	while (loopback_count(FRMPS_OP_WAKE) == before)
		sched_yield();
	ck_assert_uint_eq(loopback_count(FRMPS_OP_WAKE), before + 1);
	OK(cuCtxSynchronize());
}

static void *wait_for_all(void *context)
{
	CUresult result = cuCtxSetCurrent(context);

	return (void *)(uintptr_t)(result ? result : cuCtxSynchronize());
}

/* @ret_tail: of the ring, before it waits */
static pthread_t begin_to_wait(CUcontext context, uint64_t *ret_tail)
{
	pthread_t thread;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuCtxSynchronize());
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, CU_STREAM_LEGACY));
	*ret_tail = word_acquire(&session_self()->connection.view.client->tail);
	atomic_store(&yields, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_all, context), 0);
	return thread;
}

static void end_to_wait(pthread_t thread)
{
	void *result;

	shim_resume();
	pthread_join(thread, &result);
	OK((CUresult)(uintptr_t)result);
}

/* A thread that sleeps has asked for a mark, which is one record, and for a wake-up. */
static bool sleeps(uint64_t tail)
{
	return word_acquire(&session_self()->connection.view.client->tail) >=
	       tail + 2 * 2 * FRMPS_RECORD_ALIGN;
}

/* The executor may need the processor. A busy machine may take it, too. */
TEST(threads, a_wait_that_spins_gives_way)
{
	pthread_t thread;
	uint64_t tail;

	session_self()->connection.spin_us = 3600u * 1000000u;
	thread = begin_to_wait(shim_context, &tail);
	while (atomic_load(&yields) < 3 && !sleeps(tail))
		syscall(SYS_sched_yield);
	ck_assert_uint_gt(atomic_load(&yields), 0);
	end_to_wait(thread);
}

TEST(threads, a_wait_whose_processor_was_taken_sleeps)
{
	pthread_t thread;
	uint64_t tail;

	session_self()->connection.spin_us = 3600u * 1000000u;
	atomic_store(&yield_ns, 20000);
	thread = begin_to_wait(shim_context, &tail);
	while (!sleeps(tail))
		syscall(SYS_sched_yield);
	ck_assert_uint_eq(atomic_load(&yields), 1);
	end_to_wait(thread);
}

enum { WAITS = 20 };

static _Atomic uint64_t waits_behind; /* the ring's tail before a wait; 0: there is none */

static void *wait_again_and_again(void *context)
{
	CUresult result = cuCtxSetCurrent(context);
	CUdeviceptr p = 0;

	result = result ? result : cuMemAlloc_v2(&p, 64);
	result = result ? result : cuCtxSynchronize();
	for (int i = 0; i < WAITS; i++) {
		shim_pause();
		result = result ? result : cuMemsetD8Async(p, 1, 64, CU_STREAM_LEGACY);
		atomic_store(&waits_behind, word_acquire(&session_self()->connection.view.client->tail));
		result = result ? result : cuCtxSynchronize();
	}
	return (void *)(uintptr_t)result;
}

/* It does not try again in each wait, but after a while that becomes longer. */
TEST(threads, a_thread_believes_for_a_while_that_others_want_its_processor)
{
	uint64_t begin = clock_now_ns(), tail;
	unsigned tries;
	pthread_t thread;

	session_self()->connection.spin_us = 3600u * 1000000u;
	atomic_store(&yields, 0);
	atomic_store(&yield_ns, 20000);
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_again_and_again, shim_context), 0);
	for (int i = 0; i < WAITS; i++) {
		while (!(tail = atomic_exchange(&waits_behind, 0)))
			syscall(SYS_sched_yield);
		while (!sleeps(tail))
			syscall(SYS_sched_yield);
		shim_resume();
	}
	end_to_wait(thread);
	tries = atomic_load(&yields);
	ck_assert_uint_ge(tries, 1);
	/* One, two, four ... ms lie between them. */
	ck_assert_uint_ge((clock_now_ns() - begin) / 1000000, (UINT64_C(1) << (tries - 1)) - 1);
}

TEST(threads, a_context_that_asks_for_spinning_keeps_the_processor)
{
	pthread_t thread;
	CUcontext context;
	uint64_t tail;

	session_self()->connection.spin_us = 100;
	OK(cuCtxCreate_v2(&context, CU_CTX_SCHED_SPIN, 0));
	thread = begin_to_wait(context, &tail);
	while (!sleeps(tail))
		syscall(SYS_sched_yield);
	ck_assert_uint_eq(atomic_load(&yields), 0);
	end_to_wait(thread);
}

/* The end of a stream is a command, too, but the program may do what its commands wait for only
 * behind the call. */
TEST(threads, a_full_stream_is_destroyed_without_a_wait)
{
	CUstream stream;
	pthread_t helper;
	CUdeviceptr p;
	uint32_t first;
	uint64_t tail;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxSynchronize());
	shim_pause();
	first = word_acquire(&loopback->count);
	for (unsigned int i = 0; i < SHM_STREAM_CREDIT; ++i)
		OK(cuMemsetD8Async(p, 1, 1, stream));
	tail = word_acquire(&session_self()->connection.view.client->tail);
	ck_assert_int_eq(pthread_create(&helper, NULL, resume_behind, &tail), 0);
	OK(cuStreamDestroy_v2(stream));
	pthread_join(helper, NULL);
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(loopback->notes[first + SHM_STREAM_CREDIT].op, FRMPS_OP_STREAM_DESTROY);
}

/* A thread that makes a call which returns early, on its own stream. */
struct caller {
	CUresult (*call)(void);
	pthread_t thread;
	_Atomic(struct client_stream *) stream;
};

static CUresult early_set(void)
{
	return cuMemsetD8_v2_ptds(shared_memory, 1, 16);
}

static CUresult early_copy(void)
{
	return cuMemcpyDtoD_v2_ptds(shared_memory, shared_memory + 16, 16);
}

static CUresult early_copy_in(void)
{
	return cuMemcpyHtoD_v2_ptds(shared_memory, "sixteen bytes...", 16);
}

static CUresult (*const early_calls[])(void) = {early_set, early_copy, early_copy_in};

static void *make_call(void *arg)
{
	struct caller *caller = arg;
	struct client_stream *stream;
	CUresult r = cuCtxSetCurrent(shim_context);

	if (r == CUDA_SUCCESS)
		r = stream_resolve(CU_STREAM_PER_THREAD, true, &stream);
	if (r != CUDA_SUCCESS)
		return (void *)(uintptr_t)r;
	atomic_store(&caller->stream, stream);
	return (void *)(uintptr_t)caller->call();
}

/* Until its command is on the ring. */
static void start_caller(struct caller *caller)
{
	struct client_stream *stream;

	ck_assert_int_eq(pthread_create(&caller->thread, NULL, make_call, caller), 0);
	while (!(stream = atomic_load(&caller->stream)) || word_acquire(&stream->last) == 0)
		sched_yield();
}

/* A doorbell at which everybody stands who rings it, until it is emptied. */
static void open_heavy_bell(int ret_bell[2])
{
	ck_assert_int_eq(pipe2(ret_bell, O_CLOEXEC | O_NONBLOCK), 0);
	while (write(ret_bell[1], "", 1) == 1)
		continue;
	ck_assert_int_eq(fcntl(ret_bell[1], F_SETFL, 0), 0);
}

static void empty_heavy_bell(const int bell[2])
{
	char bytes[4096];

	while (read(bell[0], bytes, sizeof(bytes)) > 0)
		continue;
}

/* The first thread goes no further than to the bell; to it the call is not over, but its place is
 * taken: the second one's command is behind it, as will be what waits for the second one's only. */
TEST_LOOP(threads, a_command_and_its_early_return_are_one, 0, 3)
{
	struct caller first = {.call = early_calls[_i]}, second = {.call = early_calls[_i]};
	int bell[2], own = session_self()->connection.doorbell_fd;
	void *result;

	OK(cuMemAlloc_v2(&shared_memory, 32));
	OK(cuCtxSynchronize());
	open_heavy_bell(bell);
	shim_pause();
	session_self()->connection.doorbell_fd = bell[1];
	start_caller(&first);
	start_caller(&second);
	empty_heavy_bell(bell);
	shim_resume();
	pthread_join(first.thread, &result);
	OK((CUresult)(uintptr_t)result);
	pthread_join(second.thread, &result);
	OK((CUresult)(uintptr_t)result);
	session_self()->connection.doorbell_fd = own;
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(loopback_count(FRMPS_OP_DEPEND), 1);
	close(bell[0]);
	close(bell[1]);
}

static void *drain(void *ret_done)
{
	word32 *done = ret_done;
	CUresult result = submit_drain();

	word_release(done, 1);
	return (void *)(uintptr_t)result;
}

/* The thread may be anywhere before its end while the ring is not empty, but not behind it. */
TEST(threads, a_drained_ring_is_empty)
{
	word32 done = 0;
	pthread_t thread;
	void *result;
	CUdeviceptr p;

	OK(submit_drain());
	OK(cuMemAlloc_v2(&p, 64));
	shim_pause();
	for (int i = 0; i < 100; ++i)
		OK(cuMemsetD8Async(p, (unsigned char)i, 1, NULL));
	ck_assert_int_eq(pthread_create(&thread, NULL, drain, &done), 0);
	for (int i = 0; i < 1000; ++i) {
		sched_yield();
		ck_assert(!word_acquire(&done));
	}
	shim_resume();
	pthread_join(thread, &result);
	OK((CUresult)(uintptr_t)result);
	ck_assert_uint_eq(word_acquire(&session_self()->connection.view.server->head),
		word_acquire(&session_self()->connection.view.client->tail));
	OK(cuCtxSynchronize());
}

static void drop_object(CUhostFn destroy, void *user)
{
	CUuserObject object;

	OK(cuUserObjectCreate(&object, user, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuUserObjectRelease(object, 1));
}

static void call_driver(void *results)
{
	CUdeviceptr p;
	CUresult *result = results;

	result[0] = cuMemAlloc_v2(&p, 64);
	result[1] = cuCtxSynchronize();
	result[2] = cuCtxGetCurrent(&(CUcontext){NULL});
}

/* Whichever thread it runs in. */
TEST(threads, a_destructor_may_not_call_the_driver)
{
	CUresult results[3];
	CUcontext c;

	drop_object(call_driver, results);
	for (unsigned i = 0; i < 3; ++i)
		FAILS(results[i], NOT_PERMITTED);
	OK(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, shim_context);
	OK(cuCtxSynchronize());
}

static void end_thread(void *unused)
{
	pthread_exit(unused);
}

static void *work_and_drop(void *at)
{
	OK(cuCtxSetCurrent(shim_context));
	OK(cuMemsetD8Async((CUdeviceptr)(uintptr_t)at, 1, 1, CU_STREAM_PER_THREAD));
	drop_object(end_thread, NULL);
	return NULL;
}

TEST(threads, a_thread_that_ends_in_a_destructor_leaves_no_stream)
{
	pthread_t thread;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	ck_assert_int_eq(pthread_create(&thread, NULL, work_and_drop, (void *)(uintptr_t)p), 0);
	pthread_join(thread, NULL);
	OK(submit_drain());
	ck_assert_uint_eq(loopback_count(FRMPS_OP_STREAM_DESTROY), 1);
}

int main(void)
{
	Suite *suite = suite_create("stream");
	TCase *streams = suite_case(suite, "streams");
	TCase *threads = suite_case(suite, "threads");

	tcase_add_checked_fixture(streams, shim_setup, shim_teardown);
	suite_add(streams, "streams");
	tcase_add_test(streams, events);
	tcase_add_checked_fixture(threads, shim_setup, shim_teardown);
	suite_add(threads, "threads");
	return suite_run(suite);
}
