// Programs whose device memory goes to host memory and comes back: every byte, at the same
// addresses, whatever happens to the service meanwhile. Others have the room.
//
// FRMPS_TEST_SUSPEND_KILLS (12) is how often something of the service is killed in the sweep.

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/suite.h"
#include "tests/system/belongings.h"
#include "tests/system/driver.h"
#include "tests/system/family.h"
#include "tests/system/own_service.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define CONFIG	 "quarantine_faults = 0\n"
#define ALL_MIB	 150
#define SETTINGS 64 /* words of the constant in tests/lib/moved_kernels.c */
#define ASK_LONG 60
#define LATER_S	 60
#define TAKEN	 BELONGINGS_TAKEN /* exit status: no memory */

static void start(void)
{
	own_service_start(CONFIG);
}

/*
 * Programs
 */

/* Has so much memory until it is ordered to end. */
static int taker(int progress, int orders)
{
	CUdeviceptr memory;
	CUresult r;

	driver_open();
	r = cuMemAlloc_v2(&memory, UINT64_C(120) << 20);
	if (!r)
		r = cuMemsetD32_v2(memory, 5, 1000);
	report(progress);
	if (r)
		return r == CUDA_ERROR_OUT_OF_MEMORY ? TAKEN : 3;
	ordered(orders, true);
	return 0;
}

static int trap(int number)
{
	(void)number;
	driver_open();
	ck_cuda(launch("crash_trap", 1, 1, NULL, NULL));
	return cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED ? 0 : 2;
}

/*
 * Orders and what is to be seen
 */

/* @command: may have " now" behind it. Return: whether the service did it; ret_text: why not */
static bool order_number(const char *command, long long session, char *ret_text, size_t size)
{
	bool now = strstr(command, " now");
	char number[24];
	const char *words[] = {number, "now"};
	const struct wire_names arguments = {words, now ? 2 : 1};

	command = now ? "suspend" : command;
	snprintf(number, sizeof(number), "%lld", session);
	return !ask_with(service.socket, command, &arguments, ASK_LONG, NULL, ret_text, size);
}

/* What the program has just given to the service may not be on the device yet: then it has work. */
static void order(const char *command, const struct child *child)
{
	long long session = status_session(&service, child->pid);
	char text[400] = "";
	bool done = false;

	for (int i = 0; i < 1000 && !done; i++) {
		done = order_number(command, session, text, sizeof(text));
		ck_assert_msg(done || strstr(text, "it has work"), "%s", text);
	}
	ck_assert(done);
}

/* A program can be at work before the daemon knows that its executor serves it. */
static void expect_refusal(const struct child *child, const char *why)
{
	long long session = status_session(&service, child->pid);
	char text[400] = "try again";

	for (int i = 0; i < 1000 && strstr(text, "try again"); i++)
		ck_assert(!order_number("suspend", session, text, sizeof(text)));
	ck_assert_msg(strstr(text, why), "%s", text);
}

static long long figure(const struct child *child, const char *name)
{
	return status_number(&service, child->pid, name);
}

static bool is_in_state(const struct child *child, const char *state)
{
	return status_is_in(&service, child->pid, state);
}

static long long swapped_by_all(void)
{
	json_t *status = status_of(&service);
	long long bytes = json_integer_value(json_object_get(json_object_get(status, "swap"), "bytes"));

	json_decref(status);
	return bytes;
}

static struct child start_keeper(int times)
{
	struct child child;

	belongings_rounds = times;
	child = child_start(belongings_keeper);
	child_wait(&child, 1);
	return child;
}

static void see_it_suspended(const struct child *child)
{
	ck_assert(is_in_state(child, "suspended"));
	ck_assert_int_eq(figure(child, "memory_bytes"), 0);
	ck_assert_int_ge(figure(child, "swapped_bytes"), (long long)ALL_MIB << 20 >> 1);
	ck_assert_int_eq(swapped_by_all(), figure(child, "swapped_bytes"));
}

static void see_it_end_well(struct child *child)
{
	ck_assert_int_eq(child_end(child), 0);
	status_await_no_sessions(&service);
	ck_assert_int_eq(swapped_by_all(), 0);
}

TEST(suspend, it_comes_back_with_its_next_call)
{
	struct child child;
	long long had;

	start();
	child = start_keeper(3);
	had = figure(&child, "memory_bytes");
	for (int i = 0; i < 2; i++) {
		order("suspend", &child);
		see_it_suspended(&child);
		ck_assert_int_eq(figure(&child, "swapped_bytes"), had);
		see_it_work(&child);
		ck_assert(is_in_state(&child, "running"));
		ck_assert_int_eq(figure(&child, "memory_bytes"), had);
		ck_assert_int_eq(swapped_by_all(), 0);
	}
	order("suspend", &child);
	order("resume", &child);
	ck_assert_int_eq(figure(&child, "memory_bytes"), had);
	see_it_work(&child);
	see_it_end_well(&child);
	ck_assert_int_eq(status_counter(&service, "sessions_suspended"), 3);
}

TEST(suspend_2, others_have_the_room_and_it_waits_for_it)
{
	struct child child, other;
	char text[400] = "";

	setenv("FRMPS_HOST_MEMORY", "240M", 1);
	start();
	child = start_keeper(1);
	other = child_start(taker);
	ck_assert_int_eq(child_end(&other), TAKEN);
	order("suspend", &child);
	other = child_start(taker);
	child_wait(&other, 1);
	/* Asked for by an operator, and by the program itself. */
	ck_assert(!order_number("resume", status_session(&service, child.pid), text, sizeof(text)));
	ck_assert_msg(strstr(text, "does not fit"), "%s", text);
	child_order(&child);
	pass_time(200);
	see_it_suspended(&child);
	ck_assert(child_runs(&other));
	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
	child_wait(&child, 1);
	see_it_end_well(&child);
}

TEST(suspend_3, what_the_host_has_no_room_for_goes_to_a_folder)
{
	struct child child;

	own_service_start(CONFIG "swap_host_bytes = 100M\nswap_directory = /var/tmp\n");
	child = start_keeper(2);
	for (int i = 0; i < 2; i++) {
		order("suspend", &child);
		ck_assert(is_in_state(&child, "suspended"));
		ck_assert_int_gt(figure(&child, "swap_directory_bytes"), 0);
		ck_assert_int_eq(figure(&child, "swap_directory_bytes"), figure(&child, "swapped_bytes"));
		ck_assert_int_eq(swapped_by_all(), 0);
		see_it_work(&child);
	}
	ck_assert_int_eq(service_log_count(&service, "its device memory in swap_directory"), 2);
	see_it_end_well(&child);
}

TEST(suspend_3, one_that_is_paused_stays_until_it_is_resumed)
{
	struct child child;

	start();
	child = start_keeper(1);
	order("pause", &child);
	order("suspend", &child);
	child_order(&child);
	pass_time(100);
	see_it_suspended(&child);
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
	see_it_suspended(&child);
	order("resume", &child);
	child_wait(&child, 1);
	see_it_end_well(&child);
}

TEST(suspend_3, its_end_frees_everything)
{
	int fds[2], threads[2];
	struct child child;
	time_t begin;

	start();
	child = start_keeper(1);
	order("suspend", &child);
	ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&child), 1000 + SIGKILL);
	status_await_no_memory(&service);
	ck_assert_int_eq(swapped_by_all(), 0);
	status_footprint(&service, &fds[0], &threads[0]);
	for (int i = 0; i < 3; i++) {
		child = start_keeper(1);
		order("suspend", &child);
		order(i % 2 ? "terminate" : "resume", &child);
		child_order(&child);
		ck_assert_int_eq(child_end(&child), i % 2 ? TAKEN : 0);
		status_await_no_memory(&service);
	}
	/* What is closed last, by another process, may be closed a little later. */
	begin = time(NULL);
	do
		status_footprint(&service, &fds[1], &threads[1]);
	while (fds[1] > fds[0] && time(NULL) - begin < LATER_S);
	ck_assert_int_le(fds[1], fds[0]);
}

TEST(suspend_3, faults_and_losses_meanwhile_harm_nothing)
{
	struct child child;

	start();
	child = start_keeper(3);
	order("suspend", &child);
	ck_assert_int_eq(exit_status(spawn(trap, 0)), 0);
	status_await_faults(&service, 1);
	see_it_suspended(&child);
	see_it_work(&child);
	order("suspend", &child);
	status_replace_active(&service, 1);
	see_it_suspended(&child);
	see_it_work(&child);
	/* Its next executor is one that was told of it while it was away. */
	order("suspend", &child);
	status_replace_active(&service, 2);
	status_await_executors(&service);
	order("resume", &child);
	status_await_executors(&service);
	status_replace_active(&service, 3);
	see_it_work(&child);
	see_it_end_well(&child);
}

TEST(suspend_3, daemons_meanwhile_harm_nothing)
{
	struct child child;

	start();
	child = start_keeper(2);
	for (int i = 0; i < 2; i++) {
		order("suspend", &child);
		ck_assert_int_eq(kill(status_daemon(&service), SIGKILL), 0);
		ck_assert(service_log_wait(&service, "the daemon is back", i + 1, 60));
		see_it_suspended(&child);
		status_await_executors(&service);
		see_it_work(&child);
	}
	see_it_end_well(&child);
	status_await_no_memory(&service);
}

/* Writes a constant and, at an order, lets a kernel read it. */
static int with_constant(int progress, int orders)
{
	uint32_t words[SETTINGS], seen[SETTINGS];
	CUdeviceptr settings, out;
	size_t bytes;
	CUresult r;

	if (getenv("FRMPS_TEST_MOVED_KERNELS"))
		setenv("FRMPS_TEST_KERNELS", getenv("FRMPS_TEST_MOVED_KERNELS"), 1);
	driver_open();
	ck_cuda(cuModuleGetGlobal_v2(&settings, &bytes, kernels(), "settings"));
	out = device_words(SETTINGS, 0);
	for (uint32_t i = 0; i < SETTINGS; i++)
		words[i] = belongings_word(i);
	ck_cuda(cuMemcpyHtoD_v2(settings, words, sizeof(words)));
	report(progress);
	ordered(orders, true);
	r = launch("read_settings", 1, 1, NULL, (void *[]){&out});
	r = r ? r : cuMemcpyDtoH_v2(seen, out, sizeof(seen));
	if (r)
		return 3;
	return memcmp(seen, words, sizeof(words)) ? 2 : 0;
}

static void expect_kept(child_function *program, bool in_another_executor)
{
	struct child child;

	start();
	child = child_start(program);
	child_wait(&child, 1);
	order("suspend", &child);
	if (in_another_executor)
		status_replace_active(&service, 1);
	ck_assert(is_in_state(&child, "suspended"));
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(service_stop(&service), 0);
}

TEST(suspend_3, variables_and_constants_come_along)
{
	expect_kept(rememberer, false);
	expect_kept(moved_tallier, false);
	expect_kept(moved_tallier, true);
	expect_kept(with_constant, false);
	expect_kept(with_constant, true);
}

/*
 * What cannot be suspended
 */

static int idler(int progress, int orders)
{
	driver_attach();
	report(progress);
	ordered(orders, true);
	return 0;
}

static CUmemAllocationProp shareable(void)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
}

static int with_unmapped(int progress, int orders)
{
	const CUmemAllocationProp prop = shareable();
	CUmemGenericAllocationHandle handle;

	driver_open();
	ck_cuda(cuMemCreate(&handle, UINT64_C(2) << 20, &prop, 0));
	report(progress);
	ordered(orders, true);
	return cuMemRelease(handle) ? 2 : 0;
}

/* A kernel of it runs until it is ordered. */
static int with_kernel(int progress, int orders)
{
	uint32_t *word;

	driver_open();
	belongings_filled(1000);
	word = shared_word();
	ck_cuda(launch_spin(word, 1, NULL));
	report(progress);
	ordered(orders, true);
	*(volatile uint32_t *)word = 1;
	return cuCtxSynchronize() ? 2 : 0;
}

static void expect_refused(child_function *program, const char *why)
{
	struct child child = child_start(program);

	child_wait(&child, 1);
	status_await_commands(&service, child.pid, program == with_kernel ? 2 : 0);
	expect_refusal(&child, why);
	ck_assert(is_in_state(&child, "running"));
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(suspend_3, what_cannot_move_is_refused_by_name)
{
	struct child child;

	own_service_start(CONFIG "swap_host_bytes = 100M\n");
	expect_refused(idler, "no device memory");
	expect_refused(array_keeper, "CUDA arrays");
	expect_refused(with_unmapped, "mapped nowhere");
	child = start_keeper(1);
	expect_refusal(&child, "swap_host_bytes");
	see_it_work(&child);
	see_it_end_well(&child);
	ck_assert_int_eq(status_counter(&service, "sessions_suspended"), 0);
}

TEST(suspend_3, one_that_works_is_not_suspended)
{
	start();
	expect_refused(with_kernel, "does not end");
}

TEST(suspend_3, one_that_works_goes_at_once_if_it_must)
{
	struct child child;

	start();
	child = child_start(belongings_busy);
	for (int i = 0; i < 3; i++) {
		child_wait(&child, 1);
		/* At the first try. */
		ck_assert(order_number(
			"suspend now", status_session(&service, child.pid), (char[400]){""}, 400));
		see_it_suspended(&child);
		child_drain(&child);
		pass_time(200);
		ck_assert(child_stands_still(&child));
		see_it_suspended(&child);
		order("resume", &child);
	}
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	status_await_no_sessions(&service);
	ck_assert_int_eq(swapped_by_all(), 0);
}

/* Asks for memory when told to, beside memory that stays. */
static int latecomer(int progress, int orders)
{
	CUdeviceptr kept, more;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&kept, (size_t)ALL_MIB << 20));
	report(progress);
	ordered(orders, true);
	ck_cuda(cuMemAlloc_v2(&more, 64 << 20));
	report(progress);
	ordered(orders, true);
	return 0;
}

static void *suspend_now(void *child)
{
	static char text[400];
	long long session = status_session(&service, ((struct child *)child)->pid);

	*text = '\0';
	order_number("suspend now", session, text, sizeof(text));
	return text;
}

/* Its memory comes from a process that stands still. */
TEST(suspend_3, one_whose_request_is_under_way_goes_behind_it)
{
	struct child child;
	pthread_t orderer;
	int64_t before;
	void *text;
	pid_t keeper;

	start();
	child = child_start(latecomer);
	child_wait(&child, 1);
	keeper = status_keeper(&service);
	before = status_counter(&service, "requests");
	ck_assert_int_eq(kill(keeper, SIGSTOP), 0);
	child_order(&child);
	while (status_counter(&service, "requests") == before)
		;
	ck_assert_int_eq(pthread_create(&orderer, NULL, suspend_now, &child), 0);
	pass_time(100);
	ck_assert_int_eq(kill(keeper, SIGCONT), 0);
	ck_assert_int_eq(pthread_join(orderer, &text), 0);
	ck_assert_str_eq(text, "");
	see_it_suspended(&child);
	order("resume", &child);
	child_wait(&child, 1);
	child_order(&child);
	see_it_end_well(&child);
}

TEST(suspend_3, what_does_not_end_is_left_alone_at_once_too)
{
	struct child child;
	char text[400] = "";

	start();
	child = child_start(with_kernel);
	child_wait(&child, 1);
	status_await_commands(&service, child.pid, 2);
	ck_assert(!order_number("suspend now", status_session(&service, child.pid), text, sizeof(text)));
	ck_assert_msg(strstr(text, "does not end"), "%s", text);
	/* It is not paused either. */
	ck_assert(is_in_state(&child, "running"));
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/*
 * Kills
 */

static void kill_something(unsigned number)
{
	pid_t pid = number % 3 == 0   ? status_daemon(&service)
		    : number % 3 == 1 ? status_active(&service)
				      : status_keeper(&service);

	kill(pid, SIGKILL);
}

static long long asked_for;
static const char *asked_what;

/* Its answer may not come. */
static int asker(int number)
{
	char text[400];

	(void)number;
	order_number(asked_what, asked_for, text, sizeof(text));
	return 0;
}

static void await_service(long long daemons)
{
	ck_assert(service_log_wait(&service, "the daemon is back", (int)daemons, 60));
	status_keeper(&service);
	status_await_executors(&service);
}

TEST(suspend_3, kills_at_any_moment_harm_nothing)
{
	const char *text = getenv("FRMPS_TEST_SUSPEND_KILLS");
	int kills = text ? atoi(text) : 12, daemons = 0;
	struct child child;
	struct timespec delay = {0};

	start();
	child = start_keeper(kills);
	asked_for = status_session(&service, child.pid);
	srand(23);
	for (int i = 0; i < kills; i++) {
		pid_t pid;

		/* On its way out, or back. */
		if (i % 2)
			order("suspend", &child);
		asked_what = i % 2 ? "resume" : "suspend";
		pid = spawn(asker, 0);
		delay.tv_nsec = rand() % 120 * 1000000L;
		nanosleep(&delay, NULL);
		daemons += i % 3 == 0;
		kill_something((unsigned)i);
		exit_status(pid);
		if (daemons)
			await_service(daemons);
		see_it_work(&child);
	}
	see_it_end_well(&child);
	status_await_no_memory(&service);
}

/*
 * Programs that share
 */

/* Whether the status says that a program is suspended together with another one alone. */
static bool is_suspended_with(const struct child *child, const struct child *other)
{
	const long long number = status_session(&service, other->pid);
	json_t *status = status_of(&service), *domain, *client, *with;
	bool is = false;
	size_t i, j;

	json_array_foreach (json_object_get(status, "domains"), i, domain) {
		json_array_foreach (json_object_get(domain, "clients"), j, client) {
			with = json_object_get(client, "suspended_with");
			is |= json_integer_value(json_object_get(client, "pid")) == child->pid &&
			      json_array_size(with) == 1 &&
			      json_integer_value(json_array_get(with, 0)) == number;
		}
	}
	json_decref(status);
	return is;
}

/* Whether frmpsctl status prints it. */
static bool says_together(const struct child *other)
{
	char command[256], line[512], text[96];
	bool says = false;
	FILE *output;

	snprintf(command, sizeof(command), "%s --socket %s status", getenv("FRMPS_TEST_CTL"), service.socket);
	snprintf(text, sizeof(text), "suspended together with session %lld\n",
		status_session(&service, other->pid));
	output = popen(command, "r");
	ck_assert_ptr_nonnull(output);
	while (fgets(line, sizeof(line), output))
		says |= strstr(line, text) != NULL;
	ck_assert_int_eq(pclose(output), 0);
	return says;
}

TEST(suspend_4, one_goes_with_those_that_share_with_it)
{
	struct family family;
	struct child other;

	start();
	other = start_keeper(1);
	family = family_begin(4);
	for (int i = 0; i < 4; i++) {
		order("suspend", &family.members[i % 2]);
		ck_assert(family_is_in(&service, &family, "suspended"));
		ck_assert(is_in_state(&other, "running"));
		ck_assert(is_suspended_with(&family.members[0], &family.members[1]));
		ck_assert(is_suspended_with(&family.members[1], &family.members[0]));
		ck_assert(says_together(&family.members[0]) && says_together(&family.members[1]));
		ck_assert_int_eq(figure(&family.members[0], "memory_bytes"), 0);
		ck_assert_int_eq(figure(&family.members[1], "memory_bytes"), 0);
		ck_assert_int_eq(swapped_by_all(), figure(&family.members[0], "swapped_bytes") +
							   figure(&family.members[1], "swapped_bytes"));
		see_it_work(&family.members[i / 2]);
		ck_assert(family_is_in(&service, &family, "running"));
		ck_assert(!is_suspended_with(&family.members[0], &family.members[1]));
		see_it_work(&family.members[!(i / 2)]);
		ck_assert_int_eq(swapped_by_all(), 0);
	}
	see_it_work(&other);
	family_end(&family);
	see_it_end_well(&other);
	status_await_no_memory(&service);
}

/* What an operator wants off the device stays off, however the other one works. */
TEST(suspend_4, who_is_to_stay_away_holds_up_those_that_share)
{
	struct family family;
	char text[400] = "";

	start();
	family = family_begin_busy();
	for (int i = 0; i < 3; i++) {
		const struct child *one = &family.members[i % 2], *other = &family.members[!(i % 2)];

		/* One of them may ask the service for something at that moment. */
		while (!order_number("suspend now", status_session(&service, one->pid), text, sizeof(text)))
			ck_assert_msg(strstr(text, "try again"), "%s", text);
		ck_assert(family_is_in(&service, &family, "suspended"));
		child_drain(one);
		child_drain(other);
		ck_assert(!order_number("resume", status_session(&service, other->pid), text, sizeof(text)));
		ck_assert_msg(strstr(text, "until it is resumed"), "%s", text);
		pass_time(200);
		ck_assert(child_stands_still(one) && child_stands_still(other));
		ck_assert(family_is_in(&service, &family, "suspended"));
		order("resume", one);
		child_wait(one, 2);
		child_wait(other, 2);
	}
	family_end(&family);
	status_await_no_memory(&service);
}

TEST(suspend_4, who_held_others_up_and_ends_lets_them_go_on)
{
	struct family family;

	start();
	family = family_begin(1);
	ck_assert(order_number(
		"suspend now", status_session(&service, family.members[0].pid), (char[400]){""}, 400));
	child_order(&family.members[1]);
	ck_assert_int_eq(kill(family.members[0].pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&family.members[0]), 1000 + SIGKILL);
	child_wait(&family.members[1], 1);
	child_order(&family.members[1]);
	see_it_end_well(&family.members[1]);
	status_await_no_memory(&service);
}

TEST(suspend_4, kills_at_any_moment_harm_no_program_that_shares)
{
	const char *text = getenv("FRMPS_TEST_SUSPEND_KILLS");
	int kills = text ? atoi(text) : 12, daemons = 0;
	struct family family;

	start();
	family = family_begin(kills);
	srand(37);
	for (int i = 0; i < kills; i++) {
		const struct child *one = &family.members[i / 2 % 2];
		pid_t pid;

		if (i % 2)
			order("suspend", one);
		asked_for = status_session(&service, one->pid);
		asked_what = i % 2 ? "resume" : "suspend";
		pid = spawn(asker, 0);
		pass_time(1 + rand() % 120);
		daemons += i % 3 == 0;
		kill_something((unsigned)i);
		exit_status(pid);
		if (daemons)
			await_service(daemons);
		family_see_it_work(&family);
	}
	family_end(&family);
	status_await_no_memory(&service);
}

int main(void)
{
	Suite *suite = suite_create("suspend");
	TCase *tests = tcase_create("suspend");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, own_service_stop);
	suite_add(tests, "suspend");
	/* A small device is one of the host backend. */
	if (strcmp(getenv("FRMPS_TEST_BACKEND"), "cuda") != 0)
		suite_add(tests, "suspend_2");
	suite_add(tests, "suspend_3");
	suite_add(tests, "suspend_4");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
