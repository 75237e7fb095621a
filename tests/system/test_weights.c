// Programs with weights and classes: who comes first, that it can change while they run, and that
// nobody waits for ever. What matters is who is ready first, not how fast. Two programs that the
// service can tell apart are copies of this one, "first" and "second".

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

/* Side by side the second one would be ready before the first, which has more to do and begins
 * later. */
#define FIRST_LAUNCHES	300
#define SECOND_LAUNCHES 200
#define KERNEL_NS	UINT64_C(1000000)
#define RELOAD_SECONDS	60

static struct service service;
static char folder[] = "/tmp/frmps-weights-XXXXXX";

static void copy_itself(const char *name)
{
	char path[96], line[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	snprintf(line, sizeof(line), "cp /proc/%d/exe %s", (int)getpid(), path);
	ck_assert_int_eq(system(line), 0);
}

static void reload(const char *config)
{
	const struct wire_names none = {0};
	char text[400];
	FILE *file = fopen(service.config, "a");

	ck_assert_ptr_nonnull(file);
	fputs(config, file);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_msg(!ask_with(service.socket, "reload", &none, RELOAD_SECONDS, NULL, text, sizeof(text)),
		"%s", text);
}

static void start(const char *config)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	copy_itself("first");
	copy_itself("second");
	ck_assert(service_start_configured(&service, config));
}

static void stop(void)
{
	char line[96];

	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
	snprintf(line, sizeof(line), "rm -r %s", folder);
	ck_assert_int_eq(system(line), 0);
}

/*
 * Programs
 */

/* Each kernel takes its time; says when all are on their way, and when they are done. */
static int work(int progress, int orders, int launches)
{
	uint64_t ns = KERNEL_NS;
	void *arguments[] = {&ns};

	driver_open();
	ck_cuda(launch("spin_ns", 1, 1, NULL, arguments));
	ck_cuda(cuCtxSynchronize());
	report(progress);
	ordered(orders, true);
	for (int i = 0; i < launches; i++)
		ck_cuda(launch("spin_ns", 1, 1, NULL, arguments));
	report(progress);
	ck_cuda(cuCtxSynchronize());
	report(progress);
	return 0;
}

/* Its kernel does not end before it is ordered to. */
static int occupy_all(int progress, int orders)
{
	uint32_t *words;
	void *arguments[] = {&words};

	driver_open();
	words = shared_word();
	kernel("occupy");
	report(progress);
	ordered(orders, true);
	ck_cuda(launch("occupy", 1, 1, NULL, arguments));
	while (!__atomic_load_n(&words[0], __ATOMIC_ACQUIRE))
		pass_time(1);
	report(progress);
	ordered(orders, true);
	__atomic_store_n(&words[1], 1, __ATOMIC_RELEASE);
	ck_cuda(cuCtxSynchronize());
	return 0;
}

static void on_host(void *data)
{
	__atomic_add_fetch((int *)data, 1, __ATOMIC_RELEASE);
}

/* Streams that wait for each other by events and for a function of the host. */
static void work_across_streams(void)
{
	uint32_t by = 1, seen = 0;
	CUdeviceptr word = device_words(1, 0);
	void *arguments[] = {&word, &by};
	CUstream streams[2];
	CUevent event;
	int called = 0;

	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < 2; i++)
		ck_cuda(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 6; i++) {
		ck_cuda(launch("count_up", 1, 1, streams[i % 2], arguments));
		ck_cuda(cuEventRecord(event, streams[i % 2]));
		ck_cuda(cuStreamWaitEvent(streams[(i + 1) % 2], event, 0));
		ck_cuda(cuLaunchHostFunc(streams[i % 2], on_host, &called));
	}
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cuMemcpyDtoH_v2(&seen, word, 4));
	ck_assert_uint_eq(seen, 6);
	ck_assert_int_eq(__atomic_load_n(&called, __ATOMIC_ACQUIRE), 6);
}

/* A kernel waits for another one, which it cannot know to be held back. */
static void wait_for_itself(void)
{
	uint32_t *word = shared_word(), value = 7;
	uint64_t count = 1;
	void *arguments[] = {&word, &value, &count};
	CUstream streams[2];

	for (int i = 0; i < 2; i++)
		ck_cuda(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, value, streams[0]));
	ck_cuda(launch("fill", 1, 1, streams[1], arguments));
	ck_cuda(cuCtxSynchronize());
}

static int be_entangled(int progress, int orders)
{
	driver_open();
	kernel("count_up");
	kernel("fill");
	kernel("spin_until");
	report(progress);
	ordered(orders, true);
	work_across_streams();
	wait_for_itself();
	report(progress);
	return 0;
}

/* The program again, as what its arguments say. */
static int be(const char *name, const char *role, int progress, int orders)
{
	char path[96], numbers[2][16];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	snprintf(numbers[0], sizeof(numbers[0]), "%d", progress);
	snprintf(numbers[1], sizeof(numbers[1]), "%d", orders);
	fcntl(progress, F_SETFD, 0);
	fcntl(orders, F_SETFD, 0);
	execl(path, path, role, numbers[0], numbers[1], (char *)NULL);
	return 100;
}

static int first_works(int progress, int orders)
{
	return be("first", "first", progress, orders);
}

static int second_works(int progress, int orders)
{
	return be("second", "second", progress, orders);
}

static int first_occupies(int progress, int orders)
{
	return be("first", "occupy", progress, orders);
}

static int second_is_entangled(int progress, int orders)
{
	return be("second", "entangle", progress, orders);
}

static char **role;

static int play(int progress, int orders)
{
	if (!strcmp(role[1], "first"))
		return work(progress, orders, FIRST_LAUNCHES);
	if (!strcmp(role[1], "second"))
		return work(progress, orders, SECOND_LAUNCHES);
	if (!strcmp(role[1], "occupy"))
		return occupy_all(progress, orders);
	return be_entangled(progress, orders);
}

TEST(role, role_is_played)
{
	exit(play(atoi(role[2]), atoi(role[3])));
}

/* Assertions need a test around them. */
static int run_role(char **argv)
{
	Suite *suite = suite_create("role");
	TCase *tests = tcase_create("role");
	SRunner *runner;

	unsetenv("CK_RUN_CASE");
	role = argv;
	suite_add(tests, "role");
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	return 101;
}

/*
 * Tests
 */

static struct child start_one(child_function *function)
{
	struct child child = child_start(function);

	child_wait(&child, 1);
	return child;
}

static void begin(const struct child *child)
{
	child_order(child);
	child_wait(child, 1);
}

static bool has_reported(const struct child *child)
{
	struct pollfd poll_fd = {.fd = child->progress, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1;
}

static void expect_terms(const struct child *child, int weight, const char *class)
{
	json_t *status = status_of(&service);
	const json_t *one = status_client(status, child->pid);

	ck_assert_ptr_nonnull(one);
	ck_assert_int_eq(json_integer_value(json_object_get(one, "weight")), weight);
	ck_assert_str_eq(json_string_value(json_object_get(one, "class")), class);
	json_decref(status);
}

static long long counted(const struct child *child)
{
	long long ms = status_number(&service, child->pid, "device_ms");

	ck_assert_int_ge(ms, 0);
	return ms;
}

static void expect_first_to_be_ready_first(struct child *first, struct child *second)
{
	child_wait(first, 1);
	ck_assert(!has_reported(second));
	child_wait(second, 1);
	ck_assert_int_eq(child_end(first), 0);
	ck_assert_int_eq(child_end(second), 0);
}

static const char *const configs[] = {
	"[program */second]\nweight = 2\n",
	"[program */first]\nweight = 1000\n[program */second]\nweight = 20\n",
	"[program */second]\nclass = offline\n",
	"[program */second]\nclass = offline\nweight = 1000\n[program */first]\nweight = 1\n",
};

TEST_LOOP(weights, who_has_more_is_ready_first, 0, sizeof(configs) / sizeof(configs[0]))
{
	struct child first, second;

	start(configs[_i]);
	first = start_one(first_works);
	second = start_one(second_works);
	begin(&second);
	begin(&first);
	expect_first_to_be_ready_first(&first, &second);
}

TEST(weights, a_reload_changes_who_is_ready_first)
{
	struct child first, second;

	start("");
	first = start_one(first_works);
	second = start_one(second_works);
	expect_terms(&first, 100, "online");
	ck_assert_int_eq(counted(&second), 0);
	reload("[program */first]\nweight = 300\n[program */second]\nclass = offline\nweight = 7\n");
	expect_terms(&first, 300, "online");
	expect_terms(&second, 7, "offline");
	begin(&second);
	begin(&first);
	child_wait(&first, 1);
	ck_assert(!has_reported(&second));
	ck_assert_int_gt(counted(&second), 0);
	child_wait(&second, 1);
	ck_assert_int_eq(child_end(&first), 0);
	ck_assert_int_eq(child_end(&second), 0);
}

TEST(weights, a_next_executor_keeps_to_it)
{
	struct child first, second;

	start("[program */second]\nclass = offline\n");
	first = start_one(first_works);
	second = start_one(second_works);
	status_replace_active(&service, 1);
	expect_terms(&second, 100, "offline");
	begin(&second);
	begin(&first);
	expect_first_to_be_ready_first(&first, &second);
}

TEST(weights, who_is_held_back_goes_on)
{
	struct child first, second;

	start("[program */second]\nclass = offline\nweight = 1\n");
	second = start_one(second_is_entangled);
	first = start_one(first_occupies);
	begin(&first);
	begin(&second);
	ck_assert_int_eq(child_end(&second), 0);
	ck_assert(child_runs(&first));
	child_order(&first);
	ck_assert_int_eq(child_end(&first), 0);
}

int main(int argc, char **argv)
{
	Suite *suite = suite_create("weights");
	TCase *tests = tcase_create("weights");

	if (argc == 4)
		return run_role(argv);
	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "weights");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
