// Programs that hold more device memory together than there is (memory_policy = swap): they have
// all of it, byte for byte, and take turns; nobody goes who has work, or has just come.
//
// The device is one of the host backend, of 120 MiB.

#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/own_service.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define MIB	(UINT64_C(1) << 20)
#define CONFIG	"quarantine_faults = 0\nguard = off\nmemory_policy = swap\n"
#define MOST	12
#define LATER_S 60
#define OTHER	4711 /* a user */
#define REFUSED 4    /* exit status: no memory */

/* Of the next program, set before it starts. */
static uint64_t mib;
static int rounds;
static uid_t user;

/* What has 120 MiB: the GPU, or a device that is a part of it. */
enum limit { WHOLE, PART, LIMITS };

static void start_with(enum limit limit, const char *more)
{
	char text[400];

	if (limit == WHOLE)
		setenv("FRMPS_HOST_MEMORY", "120M", 1);
	snprintf(text, sizeof(text), CONFIG "%s%s", limit == PART ? "device_memory = 120M\n" : "", more);
	ck_assert(service_start_configured(&service, text));
	ck_assert_int_eq(chmod(service.folder, 0711), 0);
}

static void start(const char *more)
{
	start_with(WHOLE, more);
}

/*
 * Programs
 */

static void fill(uint32_t *words, uint32_t seed)
{
	for (uint64_t i = 0; i < mib * MIB / 4; i++)
		words[i] = (uint32_t)((i + seed) * UINT64_C(2654435761) >> 7);
}

static CUresult attach(uint32_t **ret_words, CUdeviceptr *ret_memory)
{
	if (user)
		ck_assert_int_eq(setresuid(user, user, user), 0);
	*ret_words = malloc(2 * mib * MIB);
	ck_assert_ptr_nonnull(*ret_words);
	driver_attach();
	return cuMemAlloc_v2(ret_memory, mib * MIB);
}

/* Looks at each byte and writes it anew. Return: 0 all is as it was, 2 it is not, 3 told an
 * error */
static int use(CUdeviceptr memory, uint32_t *words, uint32_t round)
{
	uint32_t *seen = words + mib * MIB / 4;
	CUresult r = cuMemcpyDtoH_v2(seen, memory, mib * MIB);
	bool whole;

	fill(words, round);
	whole = !memcmp(words, seen, mib * MIB);
	fill(words, round + 1);
	r = r ? r : cuMemcpyHtoD_v2(memory, words, mib * MIB);
	r = r ? r : cuCtxSynchronize();
	return r ? 3 : whole ? 0 : 2;
}

/* Until the others rest: on a busy machine their last command may be a moment ago. */
static CUresult insist(uint32_t **ret_words, CUdeviceptr *ret_memory)
{
	time_t since = time(NULL);
	CUresult r = attach(ret_words, ret_memory);

	while (r == CUDA_ERROR_OUT_OF_MEMORY && time(NULL) - since < LATER_S) {
		pass_time(10);
		r = cuMemAlloc_v2(ret_memory, mib * MIB);
	}
	return r;
}

static int live(int progress, int orders, bool waits)
{
	CUdeviceptr memory;
	uint32_t *words;
	CUresult r = insist(&words, &memory);
	int end = r == CUDA_ERROR_OUT_OF_MEMORY ? REFUSED : r ? 3 : 0;

	if (!end) {
		fill(words, 0);
		end = cuMemcpyHtoD_v2(memory, words, mib * MIB) ? 3 : 0;
	}
	report(progress);
	for (uint32_t i = 0; !end && i < (uint32_t)rounds; i++) {
		/* At work all the time, until the second order. */
		if (ordered(orders, waits || !i) && !waits && i)
			break;
		end = use(memory, words, i);
		if (!end)
			report(progress);
	}
	free(words);
	return end;
}

/* Uses its memory at each order. */
static int holder(int progress, int orders)
{
	return live(progress, orders, true);
}

/* All the time, from one order to the next. */
static int worker(int progress, int orders)
{
	return live(progress, orders, false);
}

/* Is connected, and allocates at the order. */
static int latecomer(int progress, int orders)
{
	CUdeviceptr memory;
	CUresult r;

	driver_attach();
	report(progress);
	ordered(orders, true);
	r = cuMemAlloc_v2(&memory, mib * MIB);
	return r == CUDA_ERROR_OUT_OF_MEMORY ? REFUSED : r ? 3 : 0;
}

/* Has memory, and a kernel that runs until the order. */
static int with_kernel(int progress, int orders)
{
	CUdeviceptr memory;
	uint32_t *word;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&memory, mib * MIB));
	word = shared_word();
	ck_cuda(launch_spin(word, 1, NULL));
	report(progress);
	ordered(orders, true);
	*(volatile uint32_t *)word = 1;
	return cuCtxSynchronize() ? 2 : 0;
}

/* Says how much memory is free: more than a third at last, within so many rounds, or less. */
static int asker(int progress, int orders)
{
	size_t free_bytes, total;

	driver_attach();
	report(progress);
	ordered(orders, true);
	for (int i = 0; i < rounds; i++) {
		ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
		if (free_bytes > total / 3)
			return free_bytes > total ? 2 : 0;
		pass_time(10);
	}
	return REFUSED;
}

/*
 * What is to be seen
 */

static struct child begin(child_function *function, uint64_t program_mib, int program_rounds)
{
	struct child child;

	mib = program_mib;
	rounds = program_rounds;
	child = child_start(function);
	child_wait(&child, 1);
	return child;
}

static bool has_state(const struct child *child, const char *state)
{
	return status_is_in(&service, child->pid, state);
}

static void await_state(const struct child *child, const char *state)
{
	time_t since = time(NULL);

	while (!has_state(child, state))
		ck_assert_int_lt(time(NULL) - since, LATER_S);
}

static int64_t displaced(void)
{
	return status_counter(&service, "sessions_displaced");
}

static double seconds_since(const struct timespec *begin)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - begin->tv_sec) + (double)(now.tv_nsec - begin->tv_nsec) / 1e9;
}

TEST(swap, three_times_the_memory_is_there_for_all)
{
	struct child children[MOST];

	start("");
	for (int i = 0; i < MOST; i++)
		children[i] = begin(holder, 30, 3);
	ck_assert_int_ge(displaced(), MOST - 4);
	/* One after the other, then all at once. */
	for (int i = 0; i < MOST; i++)
		see_it_work(&children[i]);
	for (int i = 0; i < 2 * MOST; i++)
		child_order(&children[i % MOST]);
	for (int i = 0; i < MOST; i++) {
		child_wait(&children[i], 2);
		ck_assert_int_eq(child_end(&children[i]), 0);
	}
	status_await_no_memory(&service);
}

TEST(swap, nobody_goes_who_has_work)
{
	struct child busy, other;

	start("");
	busy = begin(with_kernel, 75, 0);
	status_await_commands(&service, busy.pid, 1);
	other = begin(latecomer, 75, 0);
	child_order(&other);
	ck_assert_int_eq(child_end(&other), REFUSED);
	ck_assert(has_state(&busy, "running"));
	ck_assert_int_eq(displaced(), 0);
	child_order(&busy);
	ck_assert_int_eq(child_end(&busy), 0);
}

/* Each has work all the time, and they do not fit together. */
TEST_LOOP(swap, two_at_work_take_turns, 0, LIMITS)
{
	struct timespec begun;
	struct child one, other;

	start_with((enum limit)_i, "");
	one = begin(worker, 65, INT_MAX);
	other = begin(worker, 65, INT_MAX);
	await_state(&one, "suspended");
	ck_assert_int_eq(displaced(), 1);
	clock_gettime(CLOCK_MONOTONIC, &begun);
	child_order(&one);
	child_order(&other);
	while (displaced() < 5)
		ck_assert_int_lt((int)seconds_since(&begun), LATER_S);
	child_wait(&one, 2);
	child_wait(&other, 2);
	/* Who has come stays a fifth of a second at least. */
	ck_assert_int_le(displaced(), (int64_t)(seconds_since(&begun) * 5) + 3);
	child_order(&one);
	child_order(&other);
	ck_assert_int_eq(child_end(&one), 0);
	ck_assert_int_eq(child_end(&other), 0);
}

TEST(swap, guarantees_and_limits_hold)
{
	struct child sure, late;
	char text[200];

	/* Nobody displaces what is guaranteed. */
	start("memory_guarantee = 55M\nmemory_limit = 80M\n");
	sure = begin(holder, 50, 1);
	late = begin(latecomer, 75, 0);
	child_order(&late);
	ck_assert_int_eq(child_end(&late), REFUSED);
	late = begin(latecomer, 85, 0);
	child_order(&late);
	ck_assert_int_eq(child_end(&late), REFUSED);
	ck_assert_int_eq(displaced(), 0);
	see_it_work(&sure);
	ck_assert_int_eq(child_end(&sure), 0);
	ck_assert_int_eq(service_stop(&service), 0);
	/* Nor does he who has another policy, or has no room on the host. */
	snprintf(text, sizeof(text), "swap_host_bytes = 50M\n");
	for (int i = 0; i < 2; i++) {
		start(text);
		sure = begin(holder, 75, 1);
		late = begin(latecomer, 75, 0);
		child_order(&late);
		ck_assert_int_eq(child_end(&late), REFUSED);
		see_it_work(&sure);
		ck_assert_int_eq(child_end(&sure), 0);
		ck_assert_int_eq(service_stop(&service), 0);
		snprintf(text, sizeof(text), "memory_policy = evict\n");
	}
	service.pid = 0;
}

TEST(swap, free_memory_is_what_can_be_had)
{
	struct child one, two;

	start("");
	one = begin(holder, 100, 1);
	two = begin(asker, 0, 1000);
	child_order(&two);
	ck_assert_int_eq(child_end(&two), 0);
	ck_assert_int_eq(displaced(), 0);
	see_it_work(&one);
	/* What works stays. */
	two = begin(asker, 0, 30);
	ck_assert_int_eq(child_end(&one), 0);
	one = begin(with_kernel, 100, 0);
	child_order(&two);
	ck_assert_int_eq(child_end(&two), REFUSED);
	child_order(&one);
	ck_assert_int_eq(child_end(&one), 0);
}

TEST(swap, offline_programs_go_first)
{
	struct child online, offline, third;

	start("");
	setenv("CUDA_MPS_CLIENT_PRIORITY", "1", 1);
	offline = begin(holder, 50, 2);
	unsetenv("CUDA_MPS_CLIENT_PRIORITY");
	online = begin(holder, 50, 2);
	/* The offline one has worked last. */
	see_it_work(&online);
	see_it_work(&offline);
	pass_time(500);
	third = begin(holder, 50, 1);
	ck_assert(has_state(&offline, "suspended"));
	ck_assert(has_state(&online, "running"));
	see_it_work(&online);
	see_it_work(&offline);
	see_it_work(&third);
	ck_assert_int_eq(child_end(&online), 0);
	ck_assert_int_eq(child_end(&offline), 0);
	ck_assert_int_eq(child_end(&third), 0);
}

TEST_LOOP(swap, newcomers_have_a_guard, 0, LIMITS)
{
	struct child children[6];

	start_with((enum limit)_i, "guard = error\n");
	for (int i = 0; i < 6; i++)
		children[i] = begin(holder, 30, 1);
	ck_assert_int_ge(displaced(), 3);
	for (int i = 0; i < 6; i++) {
		see_it_work(&children[i]);
		ck_assert_int_eq(child_end(&children[i]), 0);
	}
	ck_assert_int_eq(service_log_count(&service, "gets no guard"), 0);
	status_await_no_memory(&service);
}

TEST(swap_2, users_displace_each_other)
{
	struct child mine, his;

	start("");
	mine = begin(holder, 75, 2);
	user = OTHER;
	his = begin(holder, 75, 2);
	user = 0;
	await_state(&mine, "suspended");
	for (int i = 0; i < 2; i++) {
		see_it_work(&mine);
		see_it_work(&his);
	}
	ck_assert_int_eq(child_end(&mine), 0);
	ck_assert_int_eq(child_end(&his), 0);
	status_await_no_memory(&service);
}

static bool suspend(const struct child *child, char *ret_text, size_t size)
{
	char number[24];
	const char *words[] = {number};
	const struct wire_names arguments = {words, 1};
	bool done;

	snprintf(number, sizeof(number), "%lld", status_session(&service, child->pid));
	/* What the program has just given to the service may not be on the device yet. */
	do
		done = !ask_with(service.socket, "suspend", &arguments, LATER_S, NULL, ret_text, size);
	while (!done && strstr(ret_text, "it has work"));
	return done;
}

static void expect_suspended(const struct child *child)
{
	char text[400] = "";

	ck_assert_msg(suspend(child, text, sizeof(text)), "%s", text);
}

static void expect_refused(const struct child *child, const char *why)
{
	char text[400] = "";

	ck_assert(!suspend(child, text, sizeof(text)));
	ck_assert_msg(strstr(text, why), "%s", text);
}

static struct child begin_as(uid_t uid, uint64_t program_mib)
{
	struct child child;

	user = uid;
	child = begin(holder, program_mib, 1);
	user = 0;
	return child;
}

/* Of what `status` says of the user's memory, MiB; 0: nothing. */
static long long has(uid_t uid, const char *key)
{
	json_t *status = status_of(&service), *one;
	long long bytes = 0;
	size_t i;

	json_array_foreach (json_object_get(json_object_get(status, "swap"), "users"), i, one)
		if (json_integer_value(json_object_get(one, "uid")) == (json_int_t)uid)
			bytes = json_integer_value(json_object_get(one, key));
	json_decref(status);
	return bytes / (long long)MIB;
}

static bool status_says(const char *text)
{
	char command[200], line[1000];
	bool says = false;
	FILE *output;

	snprintf(command, sizeof(command), "%s --socket %s status", getenv("FRMPS_TEST_CTL"), service.socket);
	output = popen(command, "r");
	ck_assert_ptr_nonnull(output);
	while (fgets(line, sizeof(line), output))
		says |= strstr(line, text) != NULL;
	ck_assert_int_eq(pclose(output), 0);
	return says;
}

/* An operator gives the other user more. */
static void see_budgets(const char *directory)
{
	struct child mine[2], his[3];
	char text[200];

	snprintf(text, sizeof(text), "swap_host_bytes = 60M\n%s[user %d]\nswap_host_bytes = 100M\n",
		directory, OTHER);
	start(text);
	for (int i = 0; i < 2; i++) {
		mine[i] = begin_as(0, 40);
		if (!i || *directory)
			expect_suspended(&mine[i]);
		else
			expect_refused(&mine[i],
				"user 0 may have 60M of device memory in host memory (swap_host_bytes): 40M");
	}
	for (int i = 0; i < 3; i++) {
		his[i] = begin_as(OTHER, 40);
		if (i < 2 || *directory)
			expect_suspended(&his[i]);
		else
			expect_refused(&his[i],
				"user 4711 may have 100M of device memory in host memory (swap_host_bytes): "
				"80M");
	}
	ck_assert_int_eq(has(0, "bytes"), 40);
	ck_assert_int_eq(has(0, "most_bytes"), 60);
	ck_assert_int_eq(has(0, "directory_bytes"), *directory ? 40 : 0);
	ck_assert_int_eq(has(OTHER, "bytes"), 80);
	ck_assert_int_eq(has(OTHER, "most_bytes"), 100);
	ck_assert_int_eq(has(OTHER, "directory_bytes"), *directory ? 40 : 0);
	ck_assert(status_says(
		*directory ? "of user 4711: 80M of 100M, and 40M\n" : "of user 4711: 80M of 100M, and 0\n"));
	for (int i = 0; i < 5; i++) {
		struct child *child = i < 2 ? &mine[i] : &his[i - 2];

		see_it_work(child);
		ck_assert_int_eq(child_end(child), 0);
	}
	ck_assert_int_eq(has(0, "bytes") + has(OTHER, "bytes"), 0);
	status_await_no_memory(&service);
}

TEST(swap_2, each_user_has_a_budget_of_his_own)
{
	see_budgets("");
}

TEST(swap_2, what_a_users_budget_has_no_room_for_goes_to_a_folder)
{
	see_budgets("swap_directory = /var/tmp\n");
}

TEST(swap_3, kills_harm_nothing)
{
	struct child children[3];
	int daemons = 0;

	start("");
	for (int i = 0; i < 3; i++)
		children[i] = begin(holder, 45, 7);
	srand(5);
	for (int i = 0; i < 6; i++) {
		const struct timespec delay = {.tv_nsec = rand() % 300 * 1000000L};

		for (int k = 0; k < 3; k++)
			child_order(&children[k]);
		nanosleep(&delay, NULL);
		kill(i % 3 == 0	     ? status_daemon(&service)
			: i % 3 == 1 ? status_active(&service)
				     : status_keeper(&service),
			SIGKILL);
		daemons += i % 3 == 0;
		ck_assert(service_log_wait(&service, "the daemon is back", daemons, LATER_S));
		for (int k = 0; k < 3; k++)
			child_wait(&children[k], 1);
		status_keeper(&service);
		status_await_executors(&service);
	}
	for (int k = 0; k < 3; k++) {
		see_it_work(&children[k]);
		ck_assert_int_eq(child_end(&children[k]), 0);
	}
	status_await_no_memory(&service);
}

int main(void)
{
	Suite *suite = suite_create("swap");
	TCase *tests = tcase_create("swap");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, own_service_stop);
	suite_add(tests, "swap");
	if (!geteuid())
		suite_add(tests, "swap_2");
	suite_add(tests, "swap_3");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
