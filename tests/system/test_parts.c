// Green contexts in a service: they are parts of what the service gives the program, and go where
// the program goes: to the next executor, to other multiprocessors, beside other programs.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/own_service.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

/* Of one device, and blocks that are enough for all of them. */
#define MOST   1024u
#define BLOCKS 4096u
/* Two parts of the least size, what is left, and no green context. */
#define PLACES 4

/*
 * The program
 */

/* Where kernels ran: bit i: on multiprocessor i. `size`: what the program was told. */
struct sight {
	uint64_t at[PLACES][MOST / 64];
	unsigned size[PLACES];
};

struct places {
	CUdeviceptr marks;
	CUstream stream[PLACES];
	CUgraphExec graph[PLACES];
	unsigned size[PLACES];
};

static void launch_marks(struct places *places, int place)
{
	void *arguments[] = {&places->marks};

	ck_cuda(launch("mark_sms", BLOCKS, 32, places->stream[place], arguments));
}

static CUstream open_place(CUdevResource *resource)
{
	CUdevResourceDesc description;
	CUgreenCtx green;
	CUstream stream;

	ck_cuda(cuDevResourceGenerateDesc(&description, resource, 1));
	ck_cuda(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	ck_cuda(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

static void capture(struct places *places, int place)
{
	CUgraph graph;

	ck_cuda(cuStreamBeginCapture_v2(places->stream[place], CU_STREAM_CAPTURE_MODE_RELAXED));
	launch_marks(places, place);
	ck_cuda(cuStreamEndCapture(places->stream[place], &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&places->graph[place], graph, 0));
}

static void open_places(struct places *places)
{
	CUdevResource resources[PLACES];
	unsigned int count = 2;

	driver_open();
	kernel("mark_sms");
	ck_cuda(cuMemAlloc_v2(&places->marks, MOST * 4));
	ck_cuda(cuDeviceGetDevResource(0, &resources[3], CU_DEV_RESOURCE_TYPE_SM));
	ck_cuda(cuDevSmResourceSplitByCount(resources, &count, &resources[3], &resources[2], 0, 0));
	for (int i = 0; i < PLACES; i++) {
		places->size[i] = resources[i].sm.smCount;
		places->stream[i] = i < 3 ? open_place(&resources[i]) : NULL;
	}
	ck_cuda(cuStreamCreate(&places->stream[3], CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < PLACES; i++)
		capture(places, i);
}

static void mark(struct places *places, int place, uint64_t ret_where[MOST / 64])
{
	static uint32_t seen[MOST];

	ck_cuda(cuMemcpyDtoHAsync_v2(seen, places->marks, sizeof(seen), places->stream[place]));
	ck_cuda(cuStreamSynchronize(places->stream[place]));
	for (unsigned i = 0; i < MOST; i++)
		ret_where[i / 64] |= (uint64_t)(seen[i] != 0) << i % 64;
}

/* A kernel of a launch, or of a graph that is launched in another place's stream. */
static void run(struct places *places, int place, bool graph, uint64_t ret_where[MOST / 64])
{
	ck_cuda(cuMemsetD32Async(places->marks, 0, MOST, places->stream[place]));
	if (graph) {
		ck_cuda(cuStreamSynchronize(places->stream[place]));
		ck_cuda(cuGraphLaunch(places->graph[place], places->stream[(place + 1) % PLACES]));
		ck_cuda(cuStreamSynchronize(places->stream[(place + 1) % PLACES]));
	} else {
		launch_marks(places, place);
	}
	mark(places, place, ret_where);
}

/* At each order: runs a kernel in each place, and says where. */
static int look_at_each_order(int progress, int orders)
{
	struct places places = {.marks = 0};
	char order;

	open_places(&places);
	while (read(orders, &order, 1) == 1 && order != '\n') {
		struct sight sight = {
			.size = {places.size[0], places.size[1], places.size[2], places.size[3]}};

		for (int i = 0; i < PLACES; i++) {
			run(&places, i, false, sight.at[i]);
			run(&places, i, true, sight.at[i]);
		}
		if (write(progress, &sight, sizeof(sight)) != sizeof(sight))
			return 1;
	}
	return 0;
}

/* At an order: a kernel faults in a green context. */
static int fault_at_an_order(int progress, int orders)
{
	uint64_t nowhere = 0x10;
	void *arguments[] = {&nowhere};
	struct places places = {.marks = 0};

	open_places(&places);
	kernel("crash_write");
	report(progress);
	ordered(orders, true);
	ck_cuda(launch("crash_write", 1, 1, places.stream[1], arguments));
	return cuStreamSynchronize(places.stream[1]) == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 1;
}

/*
 * Tests
 */

static struct sight look(const struct child *child)
{
	struct sight sight;

	ck_assert_int_eq(write(child->orders, "x", 1), 1);
	ck_assert_int_eq(read(child->progress, &sight, sizeof(sight)), sizeof(sight));
	return sight;
}

static void end(struct child *child)
{
	ck_assert_int_eq(write(child->orders, "\n", 1), 1);
	ck_assert_int_eq(child_end(child), 0);
}

static unsigned count(const struct sight *sight, int place)
{
	unsigned bits = 0;

	for (unsigned i = 0; i < MOST / 64; i++)
		bits += (unsigned)__builtin_popcountll(sight->at[place][i]);
	return bits;
}

static bool meet(const struct sight *a, int one, const struct sight *b, int other)
{
	for (unsigned i = 0; i < MOST / 64; i++)
		if (a->at[one][i] & b->at[other][i])
			return true;
	return false;
}

/* That each place has what the program was told, and no two green contexts the same. */
static void expect_apart(const struct sight *sight)
{
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(count(sight, i), sight->size[i]);
		for (int j = 0; j < i; j++)
			ck_assert(!meet(sight, i, sight, j));
	}
}

/* The program may still be on its way to what it is granted. */
static struct sight look_for(const struct child *child, unsigned all)
{
	struct sight sight;

	do
		sight = look(child);
	while (count(&sight, 3) != all);
	return look(child);
}

TEST(parts, they_are_of_what_the_program_is_granted)
{
	struct child child;
	struct sight sight;

	own_service_start("sm_percent = 75\n");
	child = child_start(look_at_each_order);
	sight = look(&child);
	ck_assert_uint_eq(sight.size[0] + sight.size[1] + sight.size[2], sight.size[3]);
	sight = look_for(&child, sight.size[3]);
	expect_apart(&sight);
	end(&child);
}

TEST(parts, a_next_executor_keeps_to_them)
{
	struct child child;
	struct sight sight;

	own_service_start("");
	child = child_start(look_at_each_order);
	sight = look(&child);
	expect_apart(&sight);
	ck_assert_uint_eq(count(&sight, 3), sight.size[3]);
	for (unsigned i = 1; i < 3; i++) {
		status_replace_active(&service, i);
		sight = look(&child);
		expect_apart(&sight);
		ck_assert_uint_eq(count(&sight, 3), sight.size[3]);
	}
	end(&child);
}

/* What there is no place for any more runs on all that the program has. */
TEST(parts, they_move_with_the_program)
{
	struct child child;
	struct sight sight;
	unsigned unit;

	own_service_start("");
	child = child_start(look_at_each_order);
	sight = look(&child);
	expect_apart(&sight);
	unit = sight.size[0];
	own_service_give(50);
	sight = look_for(&child, sight.size[3] / 2 / unit * unit);
	ck_assert_uint_eq(count(&sight, 0), unit);
	ck_assert_uint_eq(count(&sight, 1), unit);
	ck_assert(!meet(&sight, 0, &sight, 1));
	own_service_give(25);
	sight = look_for(&child, sight.size[3] / 4 / unit * unit);
	ck_assert(meet(&sight, 0, &sight, 3));
	own_service_give(100);
	sight = look_for(&child, sight.size[3]);
	expect_apart(&sight);
	end(&child);
}

TEST(parts, programs_do_not_know_of_each_other)
{
	struct child one, other;
	struct sight sight, theirs;

	own_service_start("");
	one = child_start(look_at_each_order);
	other = child_start(look_at_each_order);
	sight = look(&one);
	theirs = look(&other);
	expect_apart(&sight);
	expect_apart(&theirs);
	/* They split the same device in the same way. */
	ck_assert(meet(&sight, 0, &theirs, 0));
	end(&one);
	sight = look(&other);
	expect_apart(&sight);
	end(&other);
}

TEST(parts, a_fault_in_one_is_its_programs_alone)
{
	struct child child, other;
	struct sight sight;

	own_service_start("");
	child = child_start(look_at_each_order);
	other = child_start(fault_at_an_order);
	sight = look(&child);
	expect_apart(&sight);
	child_wait(&other, 1);
	child_order(&other);
	for (int i = 0; i < 20; i++) {
		sight = look(&child);
		expect_apart(&sight);
	}
	ck_assert_int_eq(child_end(&other), 0);
	sight = look(&child);
	expect_apart(&sight);
	end(&child);
}

int main(void)
{
	Suite *suite = suite_create("parts");
	TCase *tests = tcase_create("parts");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, own_service_stop);
	suite_add(tests, "parts");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
