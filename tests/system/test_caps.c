// Programs that may use some of the multiprocessors alone, and programs that have some for
// themselves: what they see, where their kernels run, and that it can change while they run. A
// program says how many it counts, or which; status says how many it has.

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/own_service.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define RELOAD_SECONDS 60
/* Of one device, and blocks that are enough for all of them. */
#define MOST   1024u
#define BLOCKS 4096u

/*
 * The program
 */

static int attribute(void)
{
	int count = 0;

	ck_cuda(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	return count;
}

static int count_marks(CUdeviceptr words)
{
	static uint32_t seen[MOST];
	int count = 0;

	ck_cuda(cuMemcpyDtoH_v2(seen, words, sizeof(seen)));
	for (unsigned i = 0; i < MOST; i++)
		count += seen[i] != 0;
	return count;
}

struct ways {
	CUdeviceptr words;
	CUstream stream;
	CUgraphExec graph;
};

static void launch_marks(struct ways *ways)
{
	void *arguments[] = {&ways->words};

	ck_cuda(launch("mark_sms", BLOCKS, 32, ways->stream, arguments));
}

static void open_ways(struct ways *ways)
{
	CUgraph graph;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&ways->words, MOST * 4));
	ck_cuda(cuStreamCreate(&ways->stream, CU_STREAM_NON_BLOCKING));
	kernel("mark_sms");
	ck_cuda(cuStreamBeginCapture_v2(ways->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch_marks(ways);
	ck_cuda(cuStreamEndCapture(ways->stream, &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&ways->graph, graph, 0));
}

/* On how many multiprocessors a kernel runs, of a launch or of a graph. */
static int count(struct ways *ways, bool graph)
{
	ck_cuda(cuMemsetD32Async(ways->words, 0, MOST, ways->stream));
	if (graph)
		ck_cuda(cuGraphLaunch(ways->graph, ways->stream));
	else
		launch_marks(ways);
	ck_cuda(cuStreamSynchronize(ways->stream));
	return count_marks(ways->words);
}

/* What else depends on it. */
static void expect_answers(int processors)
{
	CUexecAffinityParam affinity;
	int blocks = 0, grid = 0, size = 0;

	ck_cuda(cuOccupancyMaxPotentialBlockSize(&grid, &size, kernel("mark_sms"), NULL, 0, 0));
	ck_cuda(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel("mark_sms"), size, 0));
	ck_assert_int_eq(grid, blocks * processors);
	ck_cuda(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
	ck_assert_int_eq((int)affinity.param.smCount.val, processors);
}

/* How often a program counts. Set before it is started. */
static int rounds = 1;

/* At its start and at each order: goes on until its kernels run on as many multiprocessors as it
 * sees, and says how many these are. Beside others' work it may take a moment until they are ready
 * (server/executor/cap.c); before that the kernels run where they ran, at first everywhere. */
static int count_again_and_again(int progress, int orders)
{
	struct ways ways;
	int seen;
	char said;

	open_ways(&ways);
	for (int i = 0; i < rounds; i++) {
		if (i)
			ordered(orders, true);
		seen = attribute();
		while (count(&ways, false) != seen || count(&ways, true) != seen)
			;
		expect_answers(seen);
		said = (char)seen;
		if (write(progress, &said, 1) != 1)
			return 1;
	}
	/* Until it was looked at. */
	ordered(orders, true);
	return 0;
}

static int with_variable(const char *value, int progress, int orders)
{
	setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value, 1);
	return count_again_and_again(progress, orders);
}

static int with_a_quarter(int progress, int orders)
{
	return with_variable("25.5", progress, orders);
}

static int with_all(int progress, int orders)
{
	return with_variable("100", progress, orders);
}

/*
 * Tests
 */

static int heard(const struct child *child)
{
	unsigned char said;

	ck_assert_int_eq(read(child->progress, &said, 1), 1);
	return said;
}

/* That status says what it was asked for, and grants no more; and that the program counts what is
 * granted. */
static int expect_cap(const struct child *child, int percent)
{
	int counted = heard(child);
	json_t *status = status_of(&service);
	const json_t *client = status_client(status, child->pid);
	int all = (int)json_integer_value(
		json_object_get(json_object_get(status, "device"), "multiprocessors"));
	int granted = (int)json_integer_value(json_object_get(client, "multiprocessors"));

	ck_assert_int_eq(json_integer_value(json_object_get(client, "sm_percent")), percent);
	ck_assert_int_gt(granted, 0);
	ck_assert_int_le(granted * 100, all * percent);
	ck_assert_int_eq(counted, granted);
	json_decref(status);
	return granted;
}

/* Gives the device as much as it can take. */
static int flood(int progress, int orders)
{
	uint64_t ns = 100000;
	void *arguments[] = {&ns};

	driver_open();
	kernel("spin_ns");
	while (!ordered(orders, false)) {
		for (int i = 0; i < 20; i++)
			ck_cuda(launch("spin_ns", is_without_device() ? 1 : BLOCKS, 256, NULL, arguments));
		ck_cuda(cuCtxSynchronize());
		if (progress >= 0)
			report(progress);
		progress = -1;
	}
	return 0;
}

static void end(struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), 0);
}

TEST(caps, a_program_sees_and_has_what_it_is_granted)
{
	struct child child;

	own_service_start("sm_percent = 50\n");
	child = child_start(count_again_and_again);
	expect_cap(&child, 50);
	end(&child);
}

TEST(caps, a_reload_changes_it_while_the_program_runs)
{
	static const int percents[] = {25, 75, 100, 50, 25};
	struct child child;

	own_service_start("");
	rounds = 1 + sizeof(percents) / sizeof(percents[0]);
	child = child_start(count_again_and_again);
	expect_cap(&child, 100);
	for (unsigned i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		own_service_give(percents[i]);
		child_order(&child);
		expect_cap(&child, percents[i]);
	}
	end(&child);
}

TEST(caps, a_variable_of_the_program_only_lowers_it)
{
	struct child less, more;

	own_service_start("sm_percent = 50\n");
	less = child_start(with_a_quarter);
	more = child_start(with_all);
	ck_assert_int_lt(expect_cap(&less, 25), expect_cap(&more, 50));
	end(&less);
	end(&more);
}

TEST(caps, it_holds_beside_a_full_device)
{
	struct child capped, other;

	own_service_start("");
	other = child_start(flood);
	child_wait(&other, 1);
	rounds = 2;
	capped = child_start(with_a_quarter);
	expect_cap(&capped, 25);
	child_order(&capped);
	expect_cap(&capped, 25);
	end(&capped);
	end(&other);
}

TEST(caps, a_next_executor_keeps_to_it)
{
	struct child child;

	own_service_start("sm_percent = 50\n");
	rounds = 2;
	child = child_start(count_again_and_again);
	expect_cap(&child, 50);
	status_replace_active(&service, 1);
	child_order(&child);
	expect_cap(&child, 50);
	end(&child);
}

TEST(caps, a_next_daemon_keeps_to_it)
{
	struct child child;

	own_service_start("");
	rounds = 2;
	child = child_start(with_a_quarter);
	expect_cap(&child, 25);
	kill(status_daemon(&service), SIGKILL);
	status_await_executors(&service);
	own_service_give(75);
	child_order(&child);
	expect_cap(&child, 25);
	end(&child);
}

/*
 * Partitions
 */

/* An order to end, other than that of child_order(). */
#define STOP '\n'

/* Where a program's kernels ran, bit i: on multiprocessor i; of a launch and of a graph. And how
 * many it sees. */
struct sight {
	uint64_t launch[MOST / 64], graph[MOST / 64];
	int seen;
};

static void mark(struct ways *ways, bool graph, uint64_t ret_where[MOST / 64])
{
	static uint32_t seen[MOST];

	count(ways, graph);
	ck_cuda(cuMemcpyDtoH_v2(seen, ways->words, sizeof(seen)));
	for (unsigned i = 0; i < MOST; i++)
		ret_where[i / 64] |= (uint64_t)(seen[i] != 0) << i % 64;
}

/* At each order: runs its kernels and says where. */
static int look_at_each_order(int progress, int orders)
{
	struct ways ways;
	char order;

	open_ways(&ways);
	while (read(orders, &order, 1) == 1 && order != STOP) {
		struct sight sight = {.seen = attribute()};

		mark(&ways, false, sight.launch);
		mark(&ways, true, sight.graph);
		if (write(progress, &sight, sizeof(sight)) != sizeof(sight))
			return 1;
	}
	return 0;
}

static char partition[128];

static int look_in_a_partition(int progress, int orders)
{
	setenv("CUDA_MPS_SM_PARTITION", partition, 1);
	return look_at_each_order(progress, orders);
}

static int be_refused(int progress, int orders)
{
	(void)progress;
	(void)orders;
	setenv("CUDA_MPS_SM_PARTITION", partition, 1);
	return cuInit(0) == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION ? 0 : 1;
}

static struct sight look(const struct child *child)
{
	struct sight sight;

	child_order(child);
	ck_assert_int_eq(read(child->progress, &sight, sizeof(sight)), sizeof(sight));
	return sight;
}

static void stop_looking(struct child *child)
{
	ck_assert_int_eq(write(child->orders, &(char){STOP}, 1), 1);
	ck_assert_int_eq(child_end(child), 0);
}

static int count_bits(const uint64_t where[MOST / 64])
{
	int bits = 0;

	for (unsigned i = 0; i < MOST / 64; i++)
		bits += __builtin_popcountll(where[i]);
	return bits;
}

static bool runs_on(const struct sight *sight, int count)
{
	return count_bits(sight->launch) == count && count_bits(sight->graph) == count;
}

static bool do_not_meet(const struct sight *one, const struct sight *other)
{
	for (unsigned i = 0; i < MOST / 64; i++)
		if ((one->launch[i] | one->graph[i]) & (other->launch[i] | other->graph[i]))
			return false;
	return true;
}

/* The device, as status has it. */
static int device_number(const char *name)
{
	json_t *status = status_of(&service);
	int number = (int)json_integer_value(json_object_get(json_object_get(status, "device"), name));

	json_decref(status);
	return number;
}

static void order_partition(const char *const *words, unsigned count)
{
	const struct wire_names names = {words, count};
	char text[400];

	ck_assert_msg(
		!ask_with(service.socket, "sm_partition", &names, RELOAD_SECONDS, NULL, text, sizeof(text)),
		"%s", text);
}

/* The first partition of a service has this name. */
static void make_partition(const char *chunks)
{
	order_partition((const char *const[]){"add", "0", chunks}, 3);
	snprintf(partition, sizeof(partition), "p1");
}

static void resize_partition(int chunks)
{
	char number[12];

	snprintf(number, sizeof(number), "%d", chunks);
	order_partition((const char *const[]){"resize", "0", "p1", number}, 4);
}

static void remove_partition(void)
{
	order_partition((const char *const[]){"rm", "0", "p1"}, 3);
}

/* Until the member runs on so many chunks and the other one elsewhere; and that it stays so while
 * both go on. */
static void expect_apart(const struct child *member, const struct child *other, int chunks)
{
	int granule = device_number("chunk_multiprocessors"), rest = device_number("chunks") - chunks;
	struct sight in, out;

	do {
		in = look(member);
		out = look(other);
	} while (
		!runs_on(&in, chunks * granule) || !runs_on(&out, rest * granule) || !do_not_meet(&in, &out));
	for (int i = 0; i < 20; i++) {
		in = look(member);
		out = look(other);
		ck_assert(runs_on(&in, chunks * granule));
		ck_assert(do_not_meet(&in, &out));
		ck_assert_int_eq(in.seen, chunks * granule);
		ck_assert_int_eq(out.seen, rest * granule);
	}
}

static void await_everywhere(const struct child *child)
{
	int all = device_number("multiprocessors");
	struct sight sight;

	do
		sight = look(child);
	while (!runs_on(&sight, all));
}

TEST(caps, a_partition_is_made_resized_and_removed_while_programs_run)
{
	struct child member, other;

	own_service_start("");
	other = child_start(look_at_each_order);
	await_everywhere(&other);
	make_partition("1");
	member = child_start(look_in_a_partition);
	expect_apart(&member, &other, 1);
	resize_partition(device_number("chunks") / 2);
	expect_apart(&member, &other, device_number("chunks") / 2);
	resize_partition(1);
	expect_apart(&member, &other, 1);
	remove_partition();
	await_everywhere(&member);
	await_everywhere(&other);
	ck_assert_int_eq(look(&member).seen, device_number("multiprocessors"));
	ck_assert_int_eq(look(&other).seen, device_number("multiprocessors"));
	stop_looking(&member);
	stop_looking(&other);
}

TEST(caps, an_idle_partition_is_lent_and_taken_back)
{
	struct child member, other;

	own_service_start("");
	make_partition("1");
	other = child_start(look_at_each_order);
	await_everywhere(&other);
	member = child_start(look_in_a_partition);
	expect_apart(&member, &other, 1);
	await_everywhere(&other);
	/* It sees what it has for certain. */
	ck_assert_int_eq(
		look(&other).seen, (device_number("chunks") - 1) * device_number("chunk_multiprocessors"));
	expect_apart(&member, &other, 1);
	stop_looking(&member);
	await_everywhere(&other);
	stop_looking(&other);
}

TEST(caps, a_partition_holds_beside_a_full_device)
{
	struct child member, other, busy;

	own_service_start("");
	busy = child_start(flood);
	child_wait(&busy, 1);
	make_partition("1");
	member = child_start(look_in_a_partition);
	other = child_start(look_at_each_order);
	expect_apart(&member, &other, 1);
	stop_looking(&other);
	stop_looking(&member);
	end(&busy);
}

TEST(caps, next_executors_and_daemons_keep_partitions)
{
	struct child member, other;

	own_service_start("");
	make_partition("1");
	member = child_start(look_in_a_partition);
	other = child_start(look_at_each_order);
	expect_apart(&member, &other, 1);
	status_replace_active(&service, 1);
	expect_apart(&member, &other, 1);
	kill(status_daemon(&service), SIGKILL);
	status_await_executors(&service);
	resize_partition(2);
	expect_apart(&member, &other, 2);
	stop_looking(&other);
	stop_looking(&member);
}

TEST(caps, a_partition_that_is_not_there_is_an_error)
{
	struct child child;

	own_service_start("");
	snprintf(partition, sizeof(partition), "p1");
	child = child_start(be_refused);
	ck_assert_int_eq(child_end(&child), 0);
}

int main(void)
{
	Suite *suite = suite_create("caps");
	TCase *tests = tcase_create("caps");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, own_service_stop);
	suite_add(tests, "caps");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
