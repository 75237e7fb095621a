// A device that is drained and refilled: no process of the service has it open in between, and
// programs have every byte and every handle afterwards. Whatever is killed meanwhile, they are
// where they were or where they were to be.
//
// FRMPS_TEST_DRAIN_KILLS (7) is how often something of the service is killed in each sweep.

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/suite.h"
#include "tests/system/belongings.h"
#include "tests/system/driver.h"
#include "tests/system/family.h"
#include "tests/system/own_service.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define CONFIG	 "quarantine_faults = 0\norphan_seconds = 1\n"
#define ASK_LONG 120
#define LATER_S	 60
#define OTHER	 4711 /* a user */

static void start(void)
{
	own_service_start(CONFIG);
}

/*
 * Programs
 */

/* Opens the driver, and has no memory before it is ordered to get some. */
static int pauper(int progress, int orders)
{
	CUdeviceptr memory;
	CUresult r;

	driver_attach();
	report(progress);
	ordered(orders, true);
	r = cuMemAlloc_v2(&memory, 1 << 20);
	r = r ? r : cuMemsetD32_v2(memory, 5, 1000);
	r = r ? r : cuCtxSynchronize();
	report(progress);
	return r ? 3 : 0;
}

/* Gets its error, and stays. */
static int culprit(int progress, int orders)
{
	CUdeviceptr memory;
	CUresult r;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&memory, 1 << 20));
	ck_cuda(launch("crash_trap", 1, 1, NULL, NULL));
	r = cuCtxSynchronize();
	report(progress);
	ordered(orders, true);
	return r == CUDA_ERROR_LAUNCH_FAILED && cuCtxSynchronize() == r ? 0 : 2;
}

/* Return: 0 it got no session, and the error that says so */
static int newcomer(int number)
{
	CUcontext context;
	CUresult r;

	(void)number;
	r = cuInit(0);
	r = r ? r : cuDevicePrimaryCtxRetain(&context, 0);
	return r == CUDA_ERROR_MPS_SERVER_NOT_READY ? 0 : r ? 3 : 2;
}

/*
 * Orders and what is to be seen
 */

static bool order(const char *command, char *ret_text, size_t size)
{
	const struct wire_names nothing = {0};

	return !ask_with(service.socket, command, &nothing, ASK_LONG, NULL, ret_text, size);
}

static void expect_done(const char *command)
{
	char text[1400] = "";

	ck_assert_msg(order(command, text, sizeof(text)), "%s", text);
}

/* The state of the device. */
static bool is_device(const char *state)
{
	json_t *status = status_of(&service);
	const char *is = json_string_value(json_object_get(json_object_get(status, "device"), "state"));
	bool same = is && !strcmp(is, state);

	json_decref(status);
	return same;
}

static int count_executors(void)
{
	json_t *status = status_of(&service), *domain;
	int count = 0;
	size_t i;

	json_array_foreach (json_object_get(status, "domains"), i, domain)
		count += (int)json_array_size(json_object_get(domain, "executors"));
	json_decref(status);
	return count;
}

static bool has_keeper(void)
{
	json_t *status = status_of(&service);
	bool has = !json_is_null(json_object_get(status, "keeper"));

	json_decref(status);
	return has;
}

static void expect_empty(void)
{
	pid_t pids[8];
	int waited = 0;

	ck_assert(is_device("drained"));
	ck_assert_int_eq(count_executors(), 0);
	ck_assert(!has_keeper());
	/* The daemon alone; the holder is their parent. A child that a killed daemon had just begun
	 * to start ends by itself. */
	while (service_children(&service, pids, 8) != 1 && ++waited < LATER_S * 100)
		pass_time(10);
	ck_assert_int_eq(service_children(&service, pids, 8), 1);
	if (strcmp(getenv("FRMPS_TEST_BACKEND"), "cuda") != 0)
		ck_assert_int_eq(service_count_chunks(&service), 0);
}

/* One that starts, or goes to make room, is an obstacle for a moment. */
static void expect_drained_in_turns(void)
{
	char text[1400] = "";

	while (!order("drain", text, sizeof(text)))
		ck_assert_msg(strstr(text, "try again") || strstr(text, "meanwhile"), "%s", text);
}

static bool is_in_state(const struct child *child, const char *state)
{
	return status_is_in(&service, child->pid, state);
}

TEST(drain, programs_go_on_where_they_were)
{
	struct child idle, working, poor, variables;

	start();
	idle = belongings_begin(belongings_keeper, 4);
	working = belongings_begin(belongings_busy, 0);
	poor = belongings_begin(pauper, 0);
	variables = belongings_begin(moved_tallier, 0);
	for (int i = 0; i < 3; i++) {
		expect_done("drain");
		expect_empty();
		ck_assert(is_in_state(&idle, "suspended"));
		ck_assert(is_in_state(&working, "suspended"));
		child_drain(&working);
		/* Calls wait. */
		child_order(&idle);
		pass_time(100);
		ck_assert(!child_progresses(&idle));
		ck_assert(child_stands_still(&working));
		expect_empty();
		expect_done("refill");
		ck_assert(is_device("serving"));
		child_wait(&idle, 1);
		child_wait(&working, 2);
	}
	expect_done("drain");
	child_order(&poor);
	child_order(&variables);
	pass_time(50);
	expect_done("refill");
	ck_assert_int_eq(child_end(&poor), 0);
	ck_assert_int_eq(child_end(&variables), 0);
	see_it_work(&idle);
	ck_assert_int_eq(child_end(&idle), 0);
	child_order(&working);
	ck_assert_int_eq(child_end(&working), 0);
	status_await_no_memory(&service);
	/* Nobody was lost, and nobody judged. */
	ck_assert_int_eq(status_counter(&service, "promotions"), 0);
	ck_assert_int_eq(status_counter(&service, "keepers_lost"), 0);
	ck_assert_int_eq(status_counter(&service, "faults"), 0);
}

/* One of the two has no room at any moment, and it may be the one that was there. */
TEST(drain_2, programs_that_take_turns_go_on_as_well)
{
	struct child one, other;
	char text[1400] = "";

	setenv("FRMPS_HOST_MEMORY", "240M", 1);
	own_service_start(CONFIG "memory_policy = swap\nguard = off\n");
	one = belongings_begin(belongings_keeper, 3);
	/* Only who rests makes room for an allocation. */
	pass_time(1000);
	other = belongings_begin(belongings_busy, 0);
	ck_assert(is_in_state(&one, "suspended"));
	for (int i = 0; i < 3; i++) {
		child_order(&one);
		expect_drained_in_turns();
		expect_empty();
		if (!order("refill", text, sizeof(text)))
			ck_assert_msg(strstr(text, "there is no room"), "%s", text);
		ck_assert(is_device("serving"));
		child_drain(&other);
		child_wait(&one, 1);
		child_wait(&other, 2);
	}
	child_order(&other);
	ck_assert_int_eq(child_end(&one), 0);
	ck_assert_int_eq(child_end(&other), 0);
}

TEST(drain_3, an_empty_service_can_be_drained_as_well)
{
	start();
	expect_done("refill");
	for (int i = 0; i < 2; i++) {
		expect_done("drain");
		expect_done("drain");
		expect_empty();
		ck_assert_int_eq(exit_status(spawn(newcomer, 0)), 0);
		ck_assert(service_log_wait(&service, "an operator has the device drained", i + 1, LATER_S));
		expect_done("refill");
		expect_done("refill");
		ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
		status_await_no_sessions(&service);
	}
}

TEST(drain_3, who_ends_meanwhile_leaves_nothing)
{
	struct child stays, goes;
	int fds[2], threads[2];
	time_t begin_s;

	start();
	stays = belongings_begin(belongings_keeper, 1);
	expect_done("drain");
	service_footprint(&service, &fds[0], &threads[0]);
	expect_done("refill");
	goes = belongings_begin(belongings_busy, 0);
	expect_done("drain");
	ck_assert_int_eq(kill(goes.pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&goes), 1000 + SIGKILL);
	begin_s = time(NULL);
	do
		service_footprint(&service, &fds[1], &threads[1]);
	while (fds[1] > fds[0] && time(NULL) - begin_s < LATER_S);
	ck_assert_int_le(fds[1], fds[0]);
	expect_done("refill");
	see_it_work(&stays);
	ck_assert_int_eq(child_end(&stays), 0);
	status_await_no_memory(&service);
}

/* Whether a process of the service has a file open. */
static bool has_open(const char *path)
{
	char link[64], target[128];
	pid_t pids[16];
	int count = service_children(&service, pids, 16);

	for (int i = 0; i < count; i++)
		for (int fd = 0; fd < 256; fd++) {
			ssize_t length;

			snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)pids[i], fd);
			length = readlink(link, target, sizeof(target) - 1);
			target[length > 0 ? length : 0] = '\0';
			if (!strcmp(target, path))
				return true;
		}
	return false;
}

/* The daemon has the device open by NVML. The library here has a FIFO in its place. */
TEST(drain_4, nvml_is_left_as_well)
{
	char folder[] = "/tmp/frmps-nvml-XXXXXX", fifo[64];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(fifo, sizeof(fifo), "%s/events", folder);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	setenv("FRMPS_NVML", getenv("FRMPS_TEST_NVML_LIBRARY"), 1);
	setenv("FRMPS_TEST_NVML", fifo, 1);
	start();
	for (int i = 0; i < 2; i++) {
		ck_assert(service_log_wait(&service, "is a witness of faults", i + 1, LATER_S));
		ck_assert(has_open(fifo));
		expect_done("drain");
		ck_assert(!has_open(fifo));
		expect_done("refill");
	}
	unsetenv("FRMPS_NVML");
	unsetenv("FRMPS_TEST_NVML");
	expect_done("drain");
	/* One that is drained can be stopped. */
	ck_assert_int_eq(service_stop(&service), 0);
	service.pid = 0;
	unlink(fifo);
	rmdir(folder);
}

/* What was suspended or paused before is so afterwards. */
TEST(drain_5, suspended_and_paused_programs_stay_so)
{
	struct child suspended, paused;
	char number[24], text[400] = "";
	const char *words[] = {number};
	const struct wire_names names = {words, 1};

	start();
	suspended = belongings_begin(belongings_keeper, 1);
	paused = belongings_begin(belongings_keeper, 1);
	snprintf(number, sizeof(number), "%lld", status_session(&service, suspended.pid));
	while (ask_with(service.socket, "suspend", &names, ASK_LONG, NULL, text, sizeof(text)))
		ck_assert_msg(strstr(text, "has work") || strstr(text, "try again"), "%s", text);
	snprintf(number, sizeof(number), "%lld", status_session(&service, paused.pid));
	ck_assert(!ask_with(service.socket, "pause", &names, ASK_LONG, NULL, text, sizeof(text)));
	expect_done("drain");
	ck_assert(is_in_state(&paused, "suspended"));
	/* Its memory has nowhere to go. */
	ck_assert(ask_with(service.socket, "resume", &names, ASK_LONG, NULL, text, sizeof(text)));
	ck_assert_msg(strstr(text, "drained"), "%s", text);
	ck_assert(!ask_with(service.socket, "pause", &names, ASK_LONG, NULL, text, sizeof(text)));
	expect_done("refill");
	ck_assert(is_in_state(&suspended, "suspended"));
	ck_assert(is_in_state(&paused, "paused"));
	see_it_work(&suspended);
	ck_assert(!ask_with(service.socket, "resume", &names, ASK_LONG, NULL, text, sizeof(text)));
	see_it_work(&paused);
	ck_assert_int_eq(child_end(&suspended), 0);
	ck_assert_int_eq(child_end(&paused), 0);
}

static void expect_refused(const char *why, const struct child *who)
{
	char text[1400] = "", name[64];

	ck_assert(!order("drain", text, sizeof(text)));
	ck_assert_msg(strstr(text, why), "%s", text);
	snprintf(name, sizeof(name), "session %lld (process %d,", status_session(&service, who->pid),
		(int)who->pid);
	ck_assert_msg(strstr(text, name), "%s", text);
	ck_assert(is_device("serving"));
}

TEST(drain_5, what_cannot_move_is_named_before_anything_moves)
{
	struct child good, array, values, texture;

	start();
	good = belongings_begin(belongings_keeper, 2);
	array = belongings_begin(array_keeper, 0);
	expect_refused("CUDA arrays", &array);
	values = belongings_begin(held_tallier, 0);
	/* All of them in one line. */
	expect_refused("CUDA arrays", &values);
	expect_refused("in its executor's context alone", &array);
	texture = belongings_begin(texture_keeper, 0);
	expect_refused("texture objects", &texture);
	ck_assert_int_eq(status_counter(&service, "sessions_suspended"), 0);
	child_order(&array);
	ck_assert_int_eq(child_end(&array), 0);
	see_it_work(&good);
	child_order(&values);
	ck_assert_int_eq(child_end(&values), 0);
	child_order(&texture);
	ck_assert_int_eq(child_end(&texture), 0);
	expect_done("drain");
	expect_done("refill");
	see_it_work(&good);
	ck_assert_int_eq(child_end(&good), 0);
}

/* Return: 0 the service refuses both */
static int stranger(int number)
{
	char text[1400] = "";

	if (setresuid(OTHER, OTHER, OTHER) || order("drain", text, sizeof(text)) ||
		!strstr(text, "only root"))
		return 2;
	return order("refill", text, sizeof(text)) || !strstr(text, "only root") ? 3 : number;
}

TEST(drain_5, it_is_the_operators_to_order)
{
	start();
	if (geteuid())
		return;
	ck_assert_int_eq(chmod(service.folder, 0711), 0);
	ck_assert_int_eq(exit_status(spawn(stranger, 0)), 0);
	ck_assert(is_device("serving"));
}

TEST(drain_5, work_that_does_not_end_calls_it_off)
{
	struct child good, endless;

	start();
	good = belongings_begin(belongings_busy, 0);
	endless = belongings_begin(kernel_keeper, 0);
	status_await_commands(&service, endless.pid, 1);
	expect_refused("does not end", &endless);
	child_wait(&good, 3);
	child_order(&endless);
	ck_assert_int_eq(child_end(&endless), 0);
	child_order(&good);
	ck_assert_int_eq(child_end(&good), 0);
}

TEST(drain_5, a_program_with_an_error_is_no_obstacle)
{
	struct child bad;

	start();
	bad = belongings_begin(culprit, 0);
	status_await_faults(&service, 1);
	expect_done("drain");
	expect_empty();
	child_order(&bad);
	ck_assert_int_eq(child_end(&bad), 0);
	expect_done("refill");
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
}

static const char *asked_what;

/* Its answer may not come. */
static int asker(int number)
{
	char text[1400];

	(void)number;
	order(asked_what, text, sizeof(text));
	return 0;
}

TEST(drain_5, the_opposite_order_wins)
{
	struct child child;
	char text[1400];
	pid_t pid;

	start();
	child = belongings_begin(belongings_keeper, 6);
	for (int i = 0; i < 6; i++) {
		asked_what = i % 2 ? "refill" : "drain";
		pid = spawn(asker, 0);
		pass_time(1 + i * 15);
		/* Whichever of the two comes first is told of the other. */
		order(i % 2 ? "drain" : "refill", text, sizeof(text));
		exit_status(pid);
		expect_done(i % 2 ? "drain" : "refill");
		ck_assert(is_device(i % 2 ? "drained" : "serving"));
		child_order(&child);
		if (i % 2) {
			expect_empty();
			expect_done("refill");
		}
		child_wait(&child, 1);
	}
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(drain_5, a_daemon_that_dies_comes_back_drained)
{
	struct child child, working;

	start();
	child = belongings_begin(belongings_keeper, 2);
	working = belongings_begin(belongings_busy, 0);
	for (int i = 0; i < 2; i++) {
		expect_done("drain");
		ck_assert_int_eq(kill(status_daemon(&service), SIGKILL), 0);
		ck_assert(service_log_wait(&service, "the daemon is back", i + 1, LATER_S));
		expect_empty();
		ck_assert(is_in_state(&child, "suspended"));
		child_drain(&working);
		child_order(&child);
		pass_time(50);
		ck_assert(!child_progresses(&child));
		expect_done("refill");
		child_wait(&child, 1);
		child_wait(&working, 2);
	}
	ck_assert_int_eq(child_end(&child), 0);
	child_order(&working);
	ck_assert_int_eq(child_end(&working), 0);
	status_await_no_memory(&service);
}

/* One of the service's processes; the device's may not be there. */
static void kill_something(bool only_daemon, int *daemons)
{
	pid_t daemon = status_daemon(&service), pids[16], pid = daemon;
	int count = service_children(&service, pids, 16);

	if (!only_daemon && count)
		pid = pids[rand() % count];
	*daemons += pid == daemon;
	kill(pid, SIGKILL);
	if (pid == daemon)
		ck_assert(service_log_wait(&service, "the daemon is back", *daemons, LATER_S));
}

static int kills_of_a_sweep(void)
{
	const char *text = getenv("FRMPS_TEST_DRAIN_KILLS");

	return text ? atoi(text) : 7;
}

/* Something is killed while the device is being drained, or refilled. Return: whether the device is
 * drained */
static bool drain_among_kills(bool is_drained, bool only_daemons, int *daemons)
{
	pid_t pid;

	asked_what = is_drained ? "refill" : "drain";
	pid = spawn(asker, 0);
	pass_time(1 + rand() % 200);
	kill_something(only_daemons, daemons);
	exit_status(pid);
	is_drained = is_device("drained");
	ck_assert(is_drained || is_device("serving") || is_device("draining"));
	return is_drained;
}

TEST(drain_5, kills_at_any_moment_harm_nothing)
{
	const int kills = kills_of_a_sweep();
	bool is_drained = false;
	struct child child;
	int daemons = 0;

	start();
	child = belongings_begin(belongings_keeper, kills);
	srand(29);
	for (int i = 0; i < kills; i++) {
		char why[1400] = "";

		is_drained = drain_among_kills(is_drained, false, &daemons);
		/* Every other time it is to be refilled from wherever it is. */
		if (i % 2 && is_drained) {
			expect_done("drain");
			expect_empty();
		}
		if (i % 2) {
			expect_done("refill");
			is_drained = false;
			see_it_work(&child);
		} else if (!is_drained && order("drain", why, sizeof(why))) {
			is_drained = true;
			expect_empty();
		}
	}
	expect_done("refill");
	for (int i = 0; i < kills - kills / 2; i++)
		see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
	status_await_no_memory(&service);
}

/* The device is drained among kills, every other time refilled from wherever it is, and serves at
 * the end. @see: sees the programs work */
static void sweep(bool only_daemons, unsigned seed, void (*see)(const void *programs), const void *programs)
{
	const int kills = kills_of_a_sweep();
	bool is_drained = false;
	int daemons = 0;

	srand(seed);
	for (int i = 0; i < kills; i++) {
		is_drained = drain_among_kills(is_drained, only_daemons, &daemons);
		if (i % 2 == 0)
			continue;
		expect_done("refill");
		is_drained = false;
		see(programs);
	}
	expect_done("refill");
}

static void see_busy(const void *child)
{
	child_drain(child);
	child_wait(child, 1);
}

/* Kernels that are on the device would end with an executor. */
TEST(drain_5, daemons_that_die_harm_no_work)
{
	struct child child;

	start();
	child = belongings_begin(belongings_busy, 0);
	sweep(true, 53, see_busy, &child);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	status_await_no_memory(&service);
}

/*
 * Programs that share
 */

/* Bytes of one kind of all programs. */
static long long sum_of(const struct family *family, const char *kind)
{
	long long sum = 0;

	for (int i = 0; i < FAMILY; i++)
		sum += status_number(&service, family->members[i].pid, kind);
	return sum;
}

static long long host_bytes_of_swap(void)
{
	json_t *status = status_of(&service);
	long long bytes = json_integer_value(json_object_get(json_object_get(status, "swap"), "bytes"));

	json_decref(status);
	return bytes;
}

TEST(drain_6, programs_that_share_go_together)
{
	struct family family;
	struct child other;
	long long had;

	start();
	other = belongings_begin(belongings_keeper, 3);
	family = family_begin(3);
	had = status_number(&service, family.members[0].pid, "memory_bytes");
	for (int i = 0; i < 3; i++) {
		expect_done("drain");
		expect_empty();
		ck_assert(family_is_in(&service, &family, "suspended"));
		ck_assert_int_eq(sum_of(&family, "memory_bytes"), 0);
		/* What they share is there once: each has one piece of its own beside. */
		ck_assert_int_gt(sum_of(&family, "swapped_bytes"), had);
		ck_assert_int_lt(sum_of(&family, "swapped_bytes"), had + (8 << 20));
		ck_assert_int_eq(
			host_bytes_of_swap(), sum_of(&family, "swapped_bytes") +
						      status_number(&service, other.pid, "swapped_bytes"));
		expect_done("refill");
		ck_assert_int_eq(status_number(&service, family.members[0].pid, "memory_bytes"), had);
		family_see_it_work(&family);
		see_it_work(&other);
	}
	family_end(&family);
	ck_assert_int_eq(child_end(&other), 0);
	status_await_no_memory(&service);
	ck_assert_int_eq(status_counter(&service, "faults"), 0);
}

TEST(drain_6, programs_that_share_and_work_go_together)
{
	struct family family;

	start();
	family = family_begin_busy();
	for (int i = 0; i < 4; i++) {
		for (int j = 0; j < FAMILY; j++)
			child_wait(&family.members[j], 1);
		expect_done("drain");
		expect_empty();
		ck_assert(family_is_in(&service, &family, "suspended"));
		if (i % 2) {
			ck_assert_int_eq(kill(status_daemon(&service), SIGKILL), 0);
			ck_assert(service_log_wait(&service, "the daemon is back", i / 2 + 1, LATER_S));
			expect_empty();
		}
		expect_done("refill");
		for (int j = 0; j < FAMILY; j++)
			child_drain(&family.members[j]);
	}
	family_end(&family);
	status_await_no_memory(&service);
}

/* In executors of their own as well: what one writes, the other one reads. */
TEST(drain_6, programs_that_share_may_have_executors_of_their_own)
{
	struct family family;
	char text[400] = "";

	start();
	family = family_begin(2);
	ck_assert(status_isolate(&service, family.members[1].pid, text, sizeof(text)));
	ck_assert_str_eq(text, "");
	for (int i = 0; i < 2; i++) {
		expect_drained_in_turns();
		expect_empty();
		expect_done("refill");
		family_see_it_work(&family);
	}
	family_end(&family);
}

TEST(drain_6, memory_outlives_the_program_that_exported_it)
{
	struct family family;

	start();
	family = family_begin(2);
	child_order(&family.members[0]);
	child_wait(&family.members[0], 1);
	ck_assert_int_eq(kill(family.members[0].pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&family.members[0]), 1000 + SIGKILL);
	expect_drained_in_turns();
	expect_empty();
	expect_done("refill");
	see_it_work(&family.members[1]);
	expect_done("drain");
	expect_done("refill");
	see_it_work(&family.members[1]);
	child_order(&family.members[1]);
	ck_assert_int_eq(child_end(&family.members[1]), 0);
	status_await_no_memory(&service);
}

TEST(drain_6, one_that_ends_meanwhile_leaves_the_other_all_of_it)
{
	struct family family;

	start();
	for (int goes = 0; goes < FAMILY; goes++) {
		struct child *stays;

		family = family_begin(1);
		stays = &family.members[!goes];
		expect_done("drain");
		ck_assert_int_eq(kill(family.members[goes].pid, SIGKILL), 0);
		ck_assert_int_eq(child_end(&family.members[goes]), 1000 + SIGKILL);
		child_order(stays);
		expect_done("refill");
		child_wait(stays, 1);
		child_order(stays);
		ck_assert_int_eq(child_end(stays), 0);
		status_await_no_memory(&service);
	}
}

TEST(drain_6, an_import_meanwhile_waits)
{
	struct child importer;
	struct family family;

	start();
	importer = family_expect_late();
	family = family_begin(1);
	expect_done("drain");
	child_order(&importer);
	pass_time(100);
	ck_assert(!child_progresses(&importer));
	expect_done("refill");
	ck_assert_int_eq(child_end(&importer), 0);
	family_see_it_work(&family);
	family_end(&family);
}

/* Nothing is lost, nothing comes twice, and no half of it stays out. */
static void see_family(const void *family)
{
	family_see_it_work(family);
}

static void see_busy_family(const void *programs)
{
	const struct family *family = programs;

	for (int i = 0; i < FAMILY; i++)
		see_busy(&family->members[i]);
}

TEST(drain_6, kills_at_any_moment_harm_no_program_that_shares)
{
	const int kills = kills_of_a_sweep();
	struct family family;

	start();
	family = family_begin((kills + 1) / 2);
	sweep(false, 31, see_family, &family);
	for (int i = kills / 2; i < (kills + 1) / 2; i++)
		family_see_it_work(&family);
	family_end(&family);
	status_await_no_memory(&service);
}

TEST(drain_6, daemons_that_die_harm_no_work_of_programs_that_share)
{
	struct family family;

	start();
	family = family_begin_busy();
	sweep(true, 59, see_busy_family, &family);
	family_end(&family);
	status_await_no_memory(&service);
}

int main(void)
{
	Suite *suite = suite_create("drain");
	TCase *tests = tcase_create("drain");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, own_service_stop);
	suite_add(tests, "drain");
	if (strcmp(getenv("FRMPS_TEST_BACKEND"), "cuda") != 0)
		suite_add(tests, "drain_2");
	suite_add(tests, "drain_3");
	if (strcmp(getenv("FRMPS_TEST_BACKEND"), "cuda") != 0)
		suite_add(tests, "drain_4");
	suite_add(tests, "drain_5");
	suite_add(tests, "drain_6");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
