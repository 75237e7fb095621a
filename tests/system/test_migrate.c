// Programs that go to another device of the service, and back: afterwards a program has every byte
// and every handle, and goes on. Whatever is killed meanwhile, a program is on exactly one device.
//
// FRMPS_TEST_MIGRATE_ROUNDS (3) is how often programs go there and back;
// FRMPS_TEST_MIGRATE_KILLS (8) how often something of the service is killed in a sweep.

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/suite.h"
#include "tests/system/belongings.h"
#include "tests/system/driver.h"
#include "tests/system/migration.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define ASK_LONG 120
#define MIB	 ((size_t)1 << 20)
#define OTHER	 4711 /* a user */

/* The same of one that is now and then in the middle of what cannot leave. */
static void expect_moved_in_the_end(const struct child *child, int to)
{
	char text[MIGRATION_TEXT], word[2] = {(char)('0' + to), '\0'};

	while (!migrate(child, 1 - to, word, text, sizeof(text)))
		ck_assert_msg(strstr(text, "mapped nowhere"), "%s", text);
	ck_assert_int_eq(migration_place(child->pid), to);
}

static const char *const configurations[] = {MIGRATION_PHYSICAL, MIGRATION_LOGICAL};

TEST_LOOP(migrate, programs_go_there_and_back, 0, 2)
{
	const int times = migration_rounds("FRMPS_TEST_MIGRATE_ROUNDS", 3);
	struct child idle, working;

	migration_start(configurations[_i]);
	idle = belongings_begin(belongings_keeper, 2 * times + 1);
	working = belongings_begin(belongings_busy, 0);
	for (int i = 0; i < 2 * times; i++) {
		const int to = 1 - i % 2;

		expect_moved(&idle, to);
		expect_moved(&working, to);
		see_it_work(&idle);
		child_drain(&working);
		child_wait(&working, 2);
	}
	see_it_work(&idle);
	ck_assert_int_eq(child_end(&idle), 0);
	child_order(&working);
	ck_assert_int_eq(child_end(&working), 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct service one = migration_device(i);

		status_await_no_memory(&one);
		ck_assert_int_eq(status_counter(&one, "promotions"), 0);
		ck_assert_int_eq(status_counter(&one, "faults"), 0);
		ck_assert_int_eq(status_counter(&one, "sessions_rejected"), 0);
	}
}

TEST(migrate, what_is_no_device_is_refused)
{
	struct child child;

	migration_start(MIGRATION_PHYSICAL);
	child = belongings_begin(belongings_keeper, 1);
	expect_refused(&child, "0", "already");
	expect_refused(&child, "2", "there is no device 2");
	expect_refused(&child, "-1", "there is no device -1");
	expect_refused(&child, "x", "there is no device x");
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/*
 * Programs with more than belongings
 */

#define THREADS 3
#define WORDS	4099u

/* Each thread has a stream, an event, pinned memory and a word in which kernels count. */
struct strand {
	pthread_t thread;
	CUcontext context;
	CUdeviceptr word;
	int result;
	volatile bool *ends;
	volatile unsigned *rounds;
};

/* Return: false after an error or a wrong number */
static bool count_on(
	struct strand *strand, CUstream stream, CUevent event, uint32_t *pinned, uint32_t *counted)
{
	uint32_t one = 1;
	void *arguments[] = {&strand->word, &one};
	CUresult r = CUDA_SUCCESS;

	for (int i = 0; !r && i < 50; i++, ++*counted)
		r = launch("count_up", 1, 1, stream, arguments);
	r = r ? r : cuMemcpyDtoHAsync_v2(pinned, strand->word, 4, stream);
	r = r ? r : cuEventRecord(event, stream);
	r = r ? r : cuEventSynchronize(event);
	return !r && *pinned == *counted;
}

static void *strand_run(void *data)
{
	struct strand *strand = data;
	uint32_t *pinned, counted = 0;
	CUstream stream;
	CUevent event;

	ck_cuda(cuCtxSetCurrent(strand->context));
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&event, 0));
	ck_cuda(cuMemHostAlloc((void **)&pinned, 4096, 0));
	while (!strand->result && !*strand->ends) {
		strand->result = count_on(strand, stream, event, pinned, &counted) ? 0 : 2;
		__atomic_add_fetch(strand->rounds, 1, __ATOMIC_RELAXED);
	}
	ck_cuda(cuMemFreeHost(pinned));
	return NULL;
}

/* What it makes and frees all the time: a module, memory, reserved addresses, pinned memory. */
static bool make_and_free(uint32_t round)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	static uint32_t words[WORDS], result[WORDS];
	CUmemGenericAllocationHandle handle;
	uint64_t count = WORDS;
	CUdeviceptr in, out;
	void *arguments[] = {&out, &in, &round, &count};
	CUresult r;

	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = i * 3;
	r = cuMemAlloc_v2(&in, sizeof(words));
	r = r ? r : cuMemAddressReserve(&out, 2 * MIB, 0, 0, 0);
	r = r ? r : cuMemCreate(&handle, 2 * MIB, &properties, 0);
	r = r ? r : cuMemMap(out, 2 * MIB, 0, handle, 0);
	r = r ? r : cuMemcpyHtoD_v2(in, words, sizeof(words));
	r = r ? r : launch("mix", 4, 64, NULL, arguments);
	r = r ? r : cuMemcpyDtoH_v2(result, out, sizeof(result));
	r = r ? r : cuMemUnmap(out, 2 * MIB);
	r = r ? r : cuMemRelease(handle);
	r = r ? r : cuMemAddressFree(out, 2 * MIB);
	r = r ? r : cuMemFree_v2(in);
	for (uint32_t i = 0; !r && i < WORDS; i++)
		r = result[i] == mixed(i * 3, round, i) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
	return !r;
}

/* Threads that count, beside one that makes and frees, until it is ordered to end. */
static int threaded(int progress, int orders)
{
	struct strand strands[THREADS] = {0};
	volatile unsigned done = 0;
	volatile bool ends = false;
	uint32_t round = 0;
	CUcontext context;
	int result = 0;

	driver_open();
	kernels();
	ck_cuda(cuCtxGetCurrent(&context));
	for (int i = 0; i < THREADS; i++) {
		strands[i] = (struct strand){
			.context = context, .word = device_words(1, 0), .ends = &ends, .rounds = &done};
		ck_assert_int_eq(pthread_create(&strands[i].thread, NULL, strand_run, &strands[i]), 0);
	}
	while (!result && !ordered(orders, false)) {
		result = make_and_free(++round) ? 0 : 3;
		report(progress);
	}
	ends = true;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(strands[i].thread, NULL);
		result = result ? result : strands[i].result;
	}
	return result;
}

/* Gets its error, and ends. */
static int faulty(int progress, int orders)
{
	CUdeviceptr memory;
	CUresult r;

	(void)orders;
	driver_open();
	ck_cuda(cuMemAlloc_v2(&memory, 1 << 20));
	report(progress);
	ck_cuda(launch("crash_trap", 1, 1, NULL, NULL));
	r = cuCtxSynchronize();
	return r == CUDA_ERROR_LAUNCH_FAILED ? 0 : 2;
}

/* The same on the second device. */
static int faulty_there(int progress, int orders)
{
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	return faulty(progress, orders);
}

TEST(migrate, threads_go_on_beside_faults_on_both_devices)
{
	const int times = migration_rounds("FRMPS_TEST_MIGRATE_ROUNDS", 3);
	struct child child, other;

	migration_start(MIGRATION_PHYSICAL);
	child = belongings_begin(threaded, 0);
	for (int i = 0; i < 2 * times; i++) {
		other = belongings_begin(i & 2 ? faulty_there : faulty, 0);
		expect_moved_in_the_end(&child, 1 - i % 2);
		child_drain(&child);
		child_wait(&child, 3);
		ck_assert_int_eq(child_end(&other), 0);
	}
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/* Its variables are in its own memory, and it counts in one that only kernels know. */
TEST(migrate, variables_go_along)
{
	struct child child;

	migration_start(MIGRATION_LOGICAL);
	child = belongings_begin(moved_tallier, 0);
	expect_moved(&child, 1);
	expect_moved(&child, 0);
	expect_moved(&child, 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/* A new session of the process, or another process, begins where it asked to. */
TEST(migrate, who_comes_later_comes_to_the_device_that_he_asks_for)
{
	struct child moved, later;

	migration_start(MIGRATION_LOGICAL);
	moved = belongings_begin(belongings_keeper, 1);
	expect_moved(&moved, 1);
	later = belongings_begin(belongings_keeper, 1);
	ck_assert_int_eq(migration_place(later.pid), 0);
	expect_moved(&later, 1);
	see_it_work(&moved);
	see_it_work(&later);
	ck_assert_int_eq(child_end(&moved), 0);
	ck_assert_int_eq(child_end(&later), 0);
}

/*
 * What does not go
 */

static const struct {
	child_function *function;
	const char *why;
} obstacles[] = {{array_keeper, "CUDA arrays"}, {texture_keeper, "texture objects"},
	{held_tallier, "in its executor's context alone"}, {kernel_keeper, "does not end"}};

TEST_LOOP(migrate, what_cannot_move_is_refused_and_goes_on, 0, sizeof(obstacles) / sizeof(*obstacles))
{
	struct child child;

	migration_start(MIGRATION_LOGICAL);
	child = belongings_begin(obstacles[_i].function, 0);
	expect_refused(&child, "1", obstacles[_i].why);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

static const struct {
	const char *there, *why;
} limits[] = {{"device_memory = 64M\n", "does not fit"}, {"memory_limit = 100M\n", "memory_limit"}};

TEST_LOOP(migrate, what_does_not_fit_there_is_refused_before_anything_moves, 0,
	sizeof(limits) / sizeof(*limits))
{
	struct service first;
	char text[300];
	struct child child;

	snprintf(text, sizeof(text), MIGRATION_LOGICAL "guard = off\n[device 1]\n%s", limits[_i].there);
	migration_start(text);
	first = migration_device(0);
	child = belongings_begin(belongings_keeper, 1);
	expect_refused(&child, "1", limits[_i].why);
	ck_assert_int_eq(status_counter(&first, "sessions_suspended"), 0);
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/* Its neighbour on the other device has chosen the same addresses. */
static int at_an_address(int progress, int orders)
{
	CUdeviceptr address;
	CUresult r;

	driver_open();
	r = cuMemAddressReserve(&address, 2 * MIB, 0, UINT64_C(0x300000000000), 0);
	if (r || address != UINT64_C(0x300000000000))
		return 4;
	report(progress);
	ordered(orders, true);
	return cuMemAddressFree(address, 2 * MIB) ? 3 : 0;
}

static int at_it_there(int progress, int orders)
{
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	return at_an_address(progress, orders);
}

TEST(migrate, addresses_of_another_program_are_refused)
{
	struct child child, other;

	migration_start(MIGRATION_LOGICAL);
	child = belongings_begin(at_an_address, 0);
	other = belongings_begin(at_it_there, 0);
	expect_refused(&child, "1", "its addresses are another program's");
	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
	expect_moved(&child, 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(migrate, a_drained_device_is_refused)
{
	const struct wire_names nothing = {0};
	struct child child;
	char text[400];

	migration_start(MIGRATION_LOGICAL);
	child = belongings_begin(belongings_keeper, 1);
	ck_assert(
		!ask_with(migration_device(1).socket, "drain", &nothing, ASK_LONG, NULL, text, sizeof(text)));
	expect_refused(&child, "1", "is not served now");
	ck_assert(!ask_with(
		migration_device(1).socket, "refill", &nothing, ASK_LONG, NULL, text, sizeof(text)));
	expect_moved(&child, 1);
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/* Suspended and paused programs are so afterwards. */
TEST(migrate, who_rests_goes_on_resting)
{
	struct child suspended, paused;
	char number[24], text[400] = "";
	const char *words[] = {number};
	const struct wire_names names = {words, 1};
	struct service first, second;

	migration_start(MIGRATION_LOGICAL);
	first = migration_device(0);
	second = migration_device(1);
	suspended = belongings_begin(belongings_keeper, 1);
	paused = belongings_begin(belongings_keeper, 1);
	snprintf(number, sizeof(number), "%lld", status_session(&first, suspended.pid));
	while (ask_with(first.socket, "suspend", &names, ASK_LONG, NULL, text, sizeof(text)))
		ck_assert_msg(strstr(text, "has work") || strstr(text, "try again"), "%s", text);
	expect_moved(&suspended, 1);
	ck_assert(status_is_in(&second, suspended.pid, "suspended"));
	snprintf(number, sizeof(number), "%lld", status_session(&first, paused.pid));
	ck_assert(!ask_with(first.socket, "pause", &names, ASK_LONG, NULL, text, sizeof(text)));
	expect_moved(&paused, 1);
	child_order(&paused);
	pass_time(100);
	ck_assert(!child_progresses(&paused));
	ck_assert(!ask_with(second.socket, "resume", &names, ASK_LONG, NULL, text, sizeof(text)));
	child_wait(&paused, 1);
	see_it_work(&suspended);
	ck_assert_int_eq(child_end(&suspended), 0);
	ck_assert_int_eq(child_end(&paused), 0);
}

static char session_word[24];

/* Another user. Return: 0: he is refused */
static int stranger(int number)
{
	const char *words[] = {session_word, "1"};
	const struct wire_names names = {words, 2};
	char text[400] = "";

	(void)number;
	if (setresuid(OTHER, OTHER, OTHER) ||
		!ask_with(migration_device(0).socket, "migrate", &names, ASK_LONG, NULL, text, sizeof(text)))
		return 2;
	return strstr(text, "another user's") ? 0 : 3;
}

TEST(migrate, programs_of_others_are_not_his_to_move)
{
	struct service first;
	struct child child;

	migration_start(MIGRATION_LOGICAL);
	first = migration_device(0);
	if (geteuid())
		return;
	ck_assert_int_eq(chmod(migration_service.folder, 0711), 0);
	child = belongings_begin(belongings_keeper, 1);
	snprintf(session_word, sizeof(session_word), "%lld", status_session(&first, child.pid));
	ck_assert_int_eq(exit_status(spawn(stranger, 0)), 0);
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/*
 * Kills
 */

/* @only_daemons: else any process, and the program rests */
static void sweep(child_function *function, bool only_daemons)
{
	const int kills = migration_rounds("FRMPS_TEST_MIGRATE_KILLS", 8);
	struct child child, other;
	int daemons = 0;

	migration_start(MIGRATION_LOGICAL);
	other = belongings_begin(belongings_keeper, kills);
	/* It is there still when the sweep is over. */
	child = belongings_begin(function, kills + 1);
	srand(31);
	for (int i = 0; i < kills; i++) {
		migrate_among_kills(&child, only_daemons, &daemons);
		if (function == belongings_keeper) {
			see_it_work(&child);
		} else {
			child_drain(&child);
			child_wait(&child, 2);
		}
		see_it_work(&other);
	}
	move_in_the_end(&child);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(child_end(&other), 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct service one = migration_device(i);

		status_await_no_memory(&one);
	}
}

TEST(migrate, kills_at_any_moment_harm_nothing)
{
	sweep(belongings_keeper, false);
}

TEST(migrate, daemons_that_die_harm_no_work)
{
	sweep(belongings_busy, true);
}

int main(void)
{
	Suite *suite = suite_create("migrate");
	TCase *tests = tcase_create("migrate");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, migration_stop);
	suite_add(tests, "migrate");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
