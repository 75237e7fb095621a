// Events that several programs share: one program records, another one asks, waits and lets its
// stream wait, in the same executor or in another one, over the death of executors, over that of
// the program which recorded, and over that of the service. The recorder's stream stands before a
// gate, a word that the test opens by telling it to.

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/layout.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

/* Handles and answers between the two programs; made before they are. */
static int handles[2], answers[2];

static void pass(int fd, const void *bytes, size_t size)
{
	if (write(fd, bytes, size) != (ssize_t)size)
		ck_abort_msg("cannot write: %s", strerror(errno));
}

static void take(int fd, void *bytes, size_t size)
{
	if (read(fd, bytes, size) != (ssize_t)size)
		ck_abort_msg("cannot read: %s", strerror(errno));
}

struct recorder {
	CUevent event;
	CUstream stream;
	uint32_t *gate;
	CUdeviceptr word;
};

static void record_behind_gate(struct recorder *r, uint32_t round)
{
	ck_cuda(cuStreamWaitValue32_v2(
		r->stream, (CUdeviceptr)(uintptr_t)r->gate, round, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuEventRecord(r->event, r->stream));
}

#define RECORDS 19

/* Makes the event and records it. One order opens the gate, the next one lets it record anew: who
 * waits for a record must have begun to before there is another. It ends with the last record. */
static int recorder(int progress, int orders)
{
	CUipcEventHandle handle, again;
	struct recorder r;
	CUevent other;

	driver_open();
	ck_cuda(cuMemHostAlloc((void **)&r.gate, 4, 0));
	*(volatile uint32_t *)r.gate = 0;
	ck_cuda(cuStreamCreate(&r.stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&r.event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuEventCreate(&other, CU_EVENT_DISABLE_TIMING));
	ck_assert_int_eq(cuIpcGetEventHandle(&handle, other), CUDA_ERROR_INVALID_HANDLE);
	ck_cuda(cuIpcGetEventHandle(&handle, r.event));
	ck_cuda(cuIpcGetEventHandle(&again, r.event));
	ck_assert_mem_eq(&handle, &again, sizeof(handle));
	ck_assert_int_eq(cuIpcOpenEventHandle(&other, handle), CUDA_ERROR_INVALID_CONTEXT);
	ck_cuda(cuEventQuery(r.event));
	record_behind_gate(&r, 1);
	ck_assert_int_eq(cuEventQuery(r.event), CUDA_ERROR_NOT_READY);
	pass(handles[1], &handle, sizeof(handle));
	report(progress);
	for (uint32_t round = 1; ordered(orders, true); round++) {
		*(volatile uint32_t *)r.gate = round;
		ck_cuda(cuEventSynchronize(r.event));
		ck_cuda(cuEventQuery(r.event));
		if (round == RECORDS)
			break;
		report(progress);
		ordered(orders, true);
		record_behind_gate(&r, round + 1);
		report(progress);
	}
	return 0;
}

/* Opens the event: it is not done. Says so; its stream and then its thread wait. Answers with the
 * last query.
 */
static int waiter(int unused)
{
	CUipcEventHandle handle, nonsense;
	CUevent event;
	CUstream stream;
	CUdeviceptr word;
	uint32_t value = 0;
	int result = -1;

	(void)unused;
	driver_open();
	take(handles[0], &handle, sizeof(handle));
	memset(&nonsense, 0x5a, sizeof(nonsense));
	ck_assert_int_eq(cuIpcOpenEventHandle(&event, nonsense), CUDA_ERROR_MAP_FAILED);
	ck_cuda(cuIpcOpenEventHandle(&event, handle));
	ck_assert_int_eq(cuIpcGetEventHandle(&handle, event), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	ck_cuda(cuMemAlloc_v2(&word, 4));
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamWaitEvent(stream, event, 0));
	ck_cuda(cuMemsetD32Async(word, 77, 1, stream));
	ck_assert_int_eq(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	pass(answers[1], &result, sizeof(result));
	ck_cuda(cuEventSynchronize(event));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuMemcpyDtoH_v2(&value, word, 4));
	ck_assert_uint_eq(value, 77);
	result = (int)cuEventQuery(event);
	pass(answers[1], &result, sizeof(result));
	ck_cuda(cuEventDestroy_v2(event));
	return 0;
}

static struct service service;

static void open_pipes(void)
{
	ck_assert_int_eq(pipe(handles), 0);
	ck_assert_int_eq(pipe(answers), 0);
}

static void close_all(void)
{
	for (int i = 0; i < 2; i++) {
		close(handles[i]);
		close(answers[i]);
	}
	ck_assert_int_eq(service_stop(&service), 0);
}

static const char *const configurations[] = {"", "isolation = client\n"};

/* All records behind the first. */
static void record_on(struct child *first)
{
	for (int i = 0; i < 2 * (RECORDS - 1); i++) {
		child_wait(first, 1);
		child_order(first);
	}
	ck_assert_int_eq(child_end(first), 0);
}

/* A program that records, and another one with its event. Return: the other one, which has answered
 * once. */
static pid_t start_both(
	const char *config, struct child *first, int (*other)(int), int number, int *ret_answer)
{
	pid_t second;

	ck_assert(service_start_configured(&service, config));
	open_pipes();
	*first = child_start(recorder);
	child_wait(first, 1);
	second = spawn(other, number);
	take(answers[0], ret_answer, sizeof(*ret_answer));
	return second;
}

TEST_LOOP(events, one_records_another_waits, 0, 2)
{
	struct child first;
	int result;
	pid_t second = start_both(configurations[_i], &first, waiter, 0, &result);

	ck_assert_int_eq(result, -1);
	child_order(&first);
	take(answers[0], &result, sizeof(result));
	ck_assert_int_eq(result, CUDA_SUCCESS);
	ck_assert_int_eq(exit_status(second), 0);
	record_on(&first);
	close_all();
}

/* Both are in the executor that dies; what they had given waits at the gate. */
TEST(events, records_and_waits_survive_their_executor)
{
	struct child first;
	int result;
	pid_t second = start_both("", &first, waiter, 0, &result);

	ck_assert(service_kill_active(&service));
	child_order(&first);
	take(answers[0], &result, sizeof(result));
	ck_assert_int_eq(exit_status(second), 0);
	record_on(&first);
	close_all();
}

/* Nobody will open the gate: the record is done with the end of its program. */
TEST_LOOP(events, a_program_that_ends_keeps_nobody, 0, 2)
{
	struct child first;
	int result;
	pid_t second = start_both(configurations[_i], &first, waiter, 0, &result);

	kill(first.pid, SIGKILL);
	take(answers[0], &result, sizeof(result));
	ck_assert_int_eq(result, CUDA_SUCCESS);
	ck_assert_int_eq(exit_status(second), 0);
	ck_assert_int_eq(child_end(&first), 1000 + SIGKILL);
	close_all();
}

/* Waits for another program's event, or asks for it all the time; answers with what ends that. */
static int left_behind(int asks)
{
	CUipcEventHandle handle;
	CUevent event;
	int result = -1;

	driver_attach();
	take(handles[0], &handle, sizeof(handle));
	ck_cuda(cuIpcOpenEventHandle(&event, handle));
	ck_assert_int_eq(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	pass(answers[1], &result, sizeof(result));
	do
		result = (int)(asks ? cuEventQuery(event) : cuEventSynchronize(event));
	while (result == CUDA_ERROR_NOT_READY);
	pass(answers[1], &result, sizeof(result));
	return 0;
}

/* Nobody will say that the record is done. */
TEST_LOOP(events, without_a_service_nobody_waits, 0, 2)
{
	struct child first;
	int result;
	pid_t second = start_both("", &first, left_behind, _i, &result);

	ck_assert_int_eq(result, -1);
	kill(service.pid, SIGKILL);
	take(answers[0], &result, sizeof(result));
	ck_assert_int_eq(result, CUDA_ERROR_MPS_RPC_FAILURE);
	ck_assert_int_eq(exit_status(second), 0);
	kill(first.pid, SIGKILL);
	child_end(&first);
	service_stop(&service);
}

/* What is destroyed before its record is done is nobody else's event until then. */
static void destroy_early(CUstream stream)
{
	struct recorder r = {.stream = stream, .gate = shared_word()};
	CUipcEventHandle handle, other;
	CUevent next;

	ck_cuda(cuEventCreate(&r.event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuIpcGetEventHandle(&handle, r.event));
	record_behind_gate(&r, 1);
	ck_cuda(cuEventDestroy_v2(r.event));
	ck_cuda(cuEventCreate(&next, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuEventQuery(next));
	ck_cuda(cuIpcGetEventHandle(&other, next));
	ck_assert_mem_ne(&handle, &other, sizeof(handle));
	*(volatile uint32_t *)r.gate = 1;
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuEventDestroy_v2(next));
}

/* As programs do that send each piece of memory with an event of its own. */
static int exports_many(int count)
{
	CUipcEventHandle handle;
	CUstream stream;
	CUevent event;

	driver_open();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	destroy_early(stream);
	for (int i = 0; i < count; i++) {
		CUresult r = cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);

		if (r != CUDA_SUCCESS)
			ck_abort_msg("event %d: %d", i, (int)r);
		ck_cuda(cuEventRecord(event, stream));
		ck_cuda(cuIpcGetEventHandle(&handle, event));
		ck_cuda(cuEventSynchronize(event));
		ck_cuda(cuEventDestroy_v2(event));
	}
	return 0;
}

TEST(events, events_that_were_sent_are_given_back)
{
	open_pipes();
	ck_assert(service_start(&service, NULL));
	ck_assert_int_eq(exit_status(spawn(exports_many, 70000)), 0);
	close_all();
}

#define PAGES_MAX    4096 /* a program has room for */
#define PAGES_OF_ONE 1380 /* all exporters have more */
#define EXPORTERS    3

/* On order says of each page of its events one, on the next it ends. */
static int exports_pages(int progress, int orders)
{
	CUipcEventHandle handle;
	CUevent event;

	(void)progress;
	close(handles[0]);
	if (!ordered(orders, true))
		return 1;
	driver_open();
	for (unsigned i = 0; i < PAGES_OF_ONE * SHM_SHARED_PAGE_EVENTS; i++) {
		ck_cuda(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
		if (i % SHM_SHARED_PAGE_EVENTS)
			continue;
		ck_cuda(cuIpcGetEventHandle(&handle, event));
		pass(handles[1], &handle, sizeof(handle));
	}
	ordered(orders, true);
	return 0;
}

static void open_page(const CUipcEventHandle *handle, CUstream stream)
{
	CUevent event;

	ck_cuda(cuIpcOpenEventHandle(&event, *handle));
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuStreamWaitEvent(stream, event, 0));
	ck_cuda(cuEventDestroy_v2(event));
}

/* Opens what an exporter says, one after the other. */
static void open_pages(CUstream stream, int count)
{
	CUipcEventHandle handle;

	for (int i = 0; i < count; i++) {
		take(handles[0], &handle, sizeof(handle));
		open_page(&handle, stream);
	}
}

static _Atomic pid_t opener;
static _Atomic bool created;

static void *open_one(void *stream)
{
	CUipcEventHandle handle;

	driver_attach();
	take(handles[0], &handle, sizeof(handle));
	opener = (pid_t)syscall(SYS_gettid);
	open_page(&handle, stream);
	return NULL;
}

/* Whether the thread waits for something. */
static bool sleeps(pid_t thread)
{
	char path[64], text[64] = "";
	FILE *file;
	size_t size;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	size = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	ck_assert_uint_gt(size, 0);
	return strstr(text, ") S ");
}

static void await_event(void *unused)
{
	(void)unused;
	while (!created)
		sched_yield();
}

/* Another page has room when one that was opened is unmapped, behind work that waits for this
 * thread to make an event. */
static void open_beside_work(CUstream stream)
{
	pthread_t thread;
	CUstream busy;
	CUevent event;

	ck_cuda(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuLaunchHostFunc(busy, await_event, NULL));
	ck_assert_int_eq(pthread_create(&thread, NULL, open_one, stream), 0);
	while (!opener || !sleeps(opener))
		sched_yield();
	ck_cuda(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	created = true;
	pthread_join(thread, NULL);
}

static int opens_of_many(int unused)
{
	struct child exporters[EXPORTERS];
	int room = PAGES_MAX - 1, count;
	CUstream stream;
	CUevent own;

	(void)unused;
	for (int i = 0; i < EXPORTERS; i++)
		exporters[i] = child_start(exports_pages);
	driver_attach(); /* a module's assertions would have a page, too */
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&own, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < EXPORTERS; i++) {
		child_order(&exporters[i]);
		count = room < PAGES_OF_ONE ? room : PAGES_OF_ONE;
		open_pages(stream, count);
		room -= count;
		if (count < PAGES_OF_ONE) {
			open_beside_work(stream);
			open_pages(stream, PAGES_OF_ONE - count - 1);
		}
		child_order(&exporters[i]);
		ck_assert_int_eq(child_end(&exporters[i]), 0);
	}
	ck_cuda(cuStreamSynchronize(stream));
	return 0;
}

/* A program that lives long opens events of many that do not. */
TEST(events, events_of_others_are_let_go)
{
	open_pipes();
	ck_assert(service_start(&service, NULL));
	ck_assert_int_eq(exit_status(spawn(opens_of_many, 0)), 0);
	close_all();
}

/* What is refused at a limit is there once the program has freed its memory. */
static int exports_at_limit(int unused)
{
	void *memory;
	CUevent event;

	(void)unused;
	driver_attach(); /* a module's assertions would have pinned memory, too */
	ck_cuda(cuMemHostAlloc(&memory, 16 << 20, 0));
	for (int i = 0; i < 5000; i++)
		ck_assert_int_eq(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
			CUDA_ERROR_OUT_OF_MEMORY);
	ck_cuda(cuMemFreeHost(memory));
	ck_cuda(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	return 0;
}

TEST(events, events_are_refused_at_a_limit_only)
{
	open_pipes();
	ck_assert(service_start_configured(&service, "pinned_limit = 16M\n"));
	ck_assert_int_eq(exit_status(spawn(exports_at_limit, 0)), 0);
	close_all();
}

static int opens_stale(int unused)
{
	CUipcEventHandle handle;
	CUevent event;

	(void)unused;
	take(handles[0], &handle, sizeof(handle));
	driver_open();
	for (int i = 0; i < 5000; i++) {
		CUresult r = cuIpcOpenEventHandle(&event, handle);

		if (r != CUDA_ERROR_INVALID_HANDLE)
			ck_abort_msg("open %d: %d", i, (int)r);
	}
	ck_cuda(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	return 0;
}

static int leaves_handle(int unused)
{
	CUipcEventHandle handle;
	CUevent event;

	(void)unused;
	driver_open();
	ck_cuda(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuIpcGetEventHandle(&handle, event));
	pass(handles[1], &handle, sizeof(handle));
	return 0;
}

TEST(events, stale_handles_cost_nothing)
{
	open_pipes();
	ck_assert(service_start(&service, NULL));
	ck_assert_int_eq(exit_status(spawn(leaves_handle, 0)), 0);
	wait_closed(&service);
	ck_assert_int_eq(exit_status(spawn(opens_stale, 0)), 0);
	close_all();
}

int main(void)
{
	Suite *suite = suite_create("events");
	TCase *tests = tcase_create("events");

	tcase_set_timeout(tests, 120);
	suite_add(tests, "events");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
