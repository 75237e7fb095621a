// Faults beside programs whose kernels cannot be repeated: each one counts, so that one too many or
// too few shows. Where faults are contained such programs go on exactly; where they are not, who
// had work then is told.
//
// FRMPS_TEST_FAULTS (5) is how many faults of a class follow one another; system/matrix_soak has
// many in a row.

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define STREAMS	      2
#define SURVIVORS_MAX 7
/* How long a busy machine may keep the processes of the service from running. */
#define PATIENT "fault_stall_ms = 5000\nfault_patience_ms = 20000\nquarantine_faults = 0\n"

static struct service service;

/* @faults: what becomes of them (tests/host/faults.c) */
static void start(const char *config, const char *faults)
{
	setenv("FRMPS_HOST_FAULTS", faults, 1);
	ck_assert(service_start_configured(&service, config));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

static int faults(void)
{
	const char *value = getenv("FRMPS_TEST_FAULTS");

	return value ? atoi(value) : 5;
}

/*
 * Programs
 */

/* Ends: 0 exact, 2 wrong, 3 told an error. */
enum { EXACT = 0, WRONG = 2, TOLD = 3 };

struct counter {
	CUstream stream;
	CUdeviceptr word;
	uint32_t *seen, launched;
};

static void counter_open(struct counter *counter)
{
	counter->word = device_words(1, 0);
	counter->launched = 0;
	ck_cuda(cuMemHostAlloc((void **)&counter->seen, 4, 0));
	ck_cuda(cuStreamCreate(&counter->stream, CU_STREAM_NON_BLOCKING));
}

static CUresult count(struct counter *counter, CUfunction count_up, CUfunction spin, uint32_t times)
{
	uint32_t one = 1;
	uint64_t ns = 100000;
	void *up[] = {&counter->word, &one}, *wait[] = {&ns};
	CUresult error = CUDA_SUCCESS;

	for (uint32_t i = 0; i < times && !error; i++) {
		error = cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, counter->stream, up, NULL);
		counter->launched += !error;
		if (!error && i % 4 == 3)
			error = cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, counter->stream, wait, NULL);
	}
	if (!error)
		error = cuMemcpyDtoHAsync_v2(counter->seen, counter->word, 4, counter->stream);
	return error;
}

static int verdict(const struct counter *counters, CUresult error)
{
	if (error)
		return TOLD;
	for (int i = 0; i < STREAMS; i++)
		if (*counters[i].seen != counters[i].launched) {
			fprintf(stderr, "%u counted, %u launched\n", *counters[i].seen, counters[i].launched);
			return WRONG;
		}
	return EXACT;
}

static int turn(struct counter *counters, CUfunction count_up, CUfunction spin, uint32_t times)
{
	CUresult error = CUDA_SUCCESS, one;

	for (int i = 0; i < STREAMS && !error; i++)
		error = count(&counters[i], count_up, spin, times);
	for (int i = 0; i < STREAMS; i++) {
		one = cuStreamSynchronize(counters[i].stream);
		error = error ? error : one;
	}
	return verdict(counters, error);
}

static int counting(int progress, int orders, bool busy)
{
	struct counter counters[STREAMS];
	CUfunction count_up, spin;
	int end;

	setenv("FRMPS_RECOVERY", "fail", 1);
	driver_open();
	count_up = kernel("count_up");
	spin = kernel("spin_ns");
	for (int i = 0; i < STREAMS; i++)
		counter_open(&counters[i]);
	end = turn(counters, count_up, spin, 8);
	report(progress);
	for (uint32_t round = 1; !end && !ordered(orders, !busy); round++) {
		end = turn(counters, count_up, spin, round % 23 + 1);
		report(progress);
	}
	return end ? end : turn(counters, count_up, spin, 8);
}

static int busy(int progress, int orders)
{
	return counting(progress, orders, true);
}

static int idle(int progress, int orders)
{
	return counting(progress, orders, false);
}

/* Faults when it is ordered to. Any error will do: where nobody is proved guilty it is that of
 * being in the way. */
static int asserter(int progress, int orders)
{
	driver_open();
	kernel("crash_assert");
	report(progress);
	ordered(orders, true);
	ck_cuda(launch("crash_assert", 1, 1, NULL, NULL));
	return cuCtxSynchronize() ? 0 : 2;
}

/* A kernel that ends when it is ordered to. */
static int occupant(int progress, int orders)
{
	uint32_t *words;
	void *arguments[] = {&words};

	setenv("FRMPS_RECOVERY", "fail", 1);
	driver_open();
	words = shared_word();
	ck_cuda(launch("occupy", 1, 1, NULL, arguments));
	while (!__atomic_load_n(&words[0], __ATOMIC_ACQUIRE))
		sched_yield();
	report(progress);
	ordered(orders, true);
	__atomic_store_n(&words[1], 1, __ATOMIC_RELEASE);
	return cuCtxSynchronize() ? TOLD : EXACT;
}

static const struct {
	const char *kernel;
	CUresult code;
} classes[] = {
	{"crash_write", CUDA_ERROR_ILLEGAL_ADDRESS},
	{"crash_trap", CUDA_ERROR_LAUNCH_FAILED},
	{"crash_assert", CUDA_ERROR_ASSERT},
	{"crash_illegal", CUDA_ERROR_ILLEGAL_INSTRUCTION},
	{"crash_divide", CUDA_ERROR_LAUNCH_FAILED},
};

static CUresult work_on(void)
{
	CUdeviceptr p;
	CUresult error = cuMemAlloc_v2(&p, 4096);

	return error ? error : cuMemFree_v2(p);
}

/* A program whose kernel faults: the error is its own and sticky, whatever its marks said. */
static int culprit(int class)
{
	uint64_t nowhere = UINT64_C(0x10);
	void *arguments[] = {&nowhere};
	CUresult error = CUDA_SUCCESS;
	CUdeviceptr p;

	driver_open();
	ck_cuda(launch(classes[class].kernel, 1, 1, NULL, arguments));
	/* The kernel that faulted may look finished for a while. */
	while (!error)
		error = work_on();
	if (error != classes[class].code)
		return 2;
	return cuCtxSynchronize() == error && cuMemAlloc_v2(&p, 4096) == error ? 0 : 3;
}

/*
 * Tests
 */

struct company {
	child_function *program;
	int count;
};

static const struct company companies[] = {{idle, 1}, {busy, 1}, {busy, SURVIVORS_MAX}};

static void gather(const struct company *company, struct child *survivors)
{
	for (int i = 0; i < company->count; i++)
		survivors[i] = child_start(company->program);
	for (int i = 0; i < company->count; i++)
		child_wait(&survivors[i], 1);
}

/* Return: how many ended in that way. */
static int dismiss(const struct company *company, struct child *survivors, int end)
{
	int found = 0;

	for (int i = 0; i < company->count; i++)
		child_order(&survivors[i]);
	for (int i = 0; i < company->count; i++)
		found += child_end(&survivors[i]) == end;
	return found;
}

static void see_them_go_on(const struct company *company, struct child *survivors)
{
	if (company->program != busy)
		return;
	for (int i = 0; i < company->count; i++) {
		child_drain(&survivors[i]);
		child_wait(&survivors[i], 3);
	}
}

TEST_LOOP(faults, kernels_that_count_are_exact_beside_faults, 0, 3)
{
	const struct company *company = &companies[_i];
	struct child survivors[SURVIVORS_MAX];
	int classes_count = (int)(sizeof(classes) / sizeof(*classes));

	start(PATIENT, "named");
	gather(company, survivors);
	for (int kind = 0; kind < classes_count; kind++) {
		for (int i = 0; i < faults(); i++) {
			ck_assert_int_eq(exit_status(spawn(culprit, kind)), 0);
			see_them_go_on(company, survivors);
		}
	}
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
	/* Everybody may know before it is written. */
	ck_assert(service_log_wait(&service, "verdict: culprit is process", classes_count * faults(), 60));
	ck_assert_int_eq(
		service_log_count(&service, "verdict: culprit is process"), classes_count * faults());
	ck_assert_int_eq(
		service_log_count(&service, "told an error beside it: nobody"), classes_count * faults());
}

/* The service does not know the driver: who had work on the device is told, nobody else, and nobody
 * is blamed. */
TEST(faults, a_fault_of_nobody_knows_whom_is_told)
{
	struct child survivors[SURVIVORS_MAX], culprit, other;
	const struct company *company = &companies[0];

	start("quarantine_faults = 0\n", "unknown");
	ck_assert(service_log_wait(&service, "faults of kernels cannot be contained", 1, 60));
	gather(company, survivors);
	culprit = child_start(asserter);
	child_wait(&culprit, 1);
	other = child_start(occupant);
	child_wait(&other, 1);
	/* The idle one had something on the device a moment ago. */
	pass_time(1500);
	child_order(&culprit);
	ck_assert_int_eq(child_end(&culprit), 0);
	ck_assert(service_log_wait(&service, "verdict: nobody is proved guilty", 1, 60));
	child_order(&other);
	ck_assert_int_eq(child_end(&other), TOLD);
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
	ck_assert_int_eq(status_counter(&service, "culprits"), 0);
}

TEST(faults, two_at_once_are_both_culprits)
{
	struct child survivors[SURVIVORS_MAX];
	const struct company *company = &companies[1];
	pid_t pids[2];

	setenv("FRMPS_HOST_FAULT_MS", "1000", 1);
	start(PATIENT, "named");
	gather(company, survivors);
	for (int i = 0; i < 2; i++)
		pids[i] = spawn(culprit, i);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(exit_status(pids[i]), 0);
	see_them_go_on(company, survivors);
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
	ck_assert(service_log_wait(&service, "verdict: culprit is process", 2, 60));
}

/* A program whose kernel does not end: it is told so, and nothing else happens. */
static int endless(int unused)
{
	(void)unused;
	driver_open();
	ck_cuda(launch("endless", 1, 1, NULL, NULL));
	return cuCtxSynchronize() == CUDA_ERROR_LAUNCH_TIMEOUT ? 0 : 2;
}

TEST(limit, a_kernel_over_its_limit_ends_its_program_alone)
{
	struct child survivors[SURVIVORS_MAX];
	const struct company *company = &companies[1];
	pid_t active;

	start("max_kernel_seconds = 1\n", "named");
	gather(company, survivors);
	active = status_active(&service);
	ck_assert_int_eq(exit_status(spawn(endless, 0)), 0);
	ck_assert(service_log_wait(&service,
		"kernel endless, code 702 CUDA_ERROR_LAUNCH_TIMEOUT, over the limit of time", 1, 60));
	see_them_go_on(company, survivors);
	ck_assert_int_eq(status_active(&service), active);
	ck_assert_int_eq(status_counter(&service, "promotions"), 0);
	ck_assert_int_eq(status_counter(&service, "kernels_ended"), 1);
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
}

static const char *const ways_not_to_end[] = {"none", "vain"};

/* It costs the others a pause, and nothing else. */
TEST_LOOP(limit_2, a_kernel_that_cannot_be_ended_costs_an_executor, 0, 2)
{
	struct child survivors[SURVIVORS_MAX];
	const struct company *company = &companies[1];

	setenv("FRMPS_HOST_END", ways_not_to_end[_i], 1);
	start("max_kernel_seconds = 1\n", "named");
	gather(company, survivors);
	ck_assert_int_eq(exit_status(spawn(endless, 0)), 0);
	ck_assert(service_log_wait(&service, "promotion: ", 1, 60));
	ck_assert_int_eq(
		service_log_count(&service,
			"kernel endless, code 702 CUDA_ERROR_LAUNCH_TIMEOUT, over the limit of time"),
		1);
	see_them_go_on(company, survivors);
	ck_assert_int_eq(status_counter(&service, "promotions"), 1);
	ck_assert_int_eq(status_counter(&service, "kernels_ended"), 0);
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
}

/*
 * An assertion that fails, and nobody says so while anything runs
 */

/* The driver itself says so then, and the canary is not needed. */
TEST(assert, an_assert_is_found_when_nothing_runs_any_more)
{
	struct child culprit, other;

	start("canary_patience_ms = 0\n", "silent");
	culprit = child_start(asserter);
	child_wait(&culprit, 1);
	other = child_start(occupant);
	child_wait(&other, 1);
	child_order(&culprit);
	pass_time(1000);
	ck_assert_int_eq(service_log_count(&service, "is ended by the daemon"), 0);
	ck_assert(child_runs(&culprit));
	child_order(&other);
	ck_assert_int_eq(child_end(&culprit), 0);
	ck_assert_int_eq(child_end(&other), TOLD);
	ck_assert(service_log_wait(&service, "code 710 CUDA_ERROR_ASSERT", 1, 60));
}

TEST(assert, an_assert_beside_a_kernel_without_end_is_found)
{
	struct child culprit, other, survivors[1];
	const struct company *company = &companies[0];

	start("canary_patience_ms = 1500\nfault_patience_ms = 500\n", "silent");
	gather(company, survivors);
	culprit = child_start(asserter);
	child_wait(&culprit, 1);
	other = child_start(occupant);
	child_wait(&other, 1);
	pass_time(2000);
	ck_assert_int_eq(service_log_count(&service, "the device has begun nothing"), 0);
	child_order(&culprit);
	ck_assert_int_eq(child_end(&culprit), 0);
	ck_assert(service_log_wait(&service, "verdict: nobody is proved guilty", 1, 60));
	ck_assert_int_ge(service_log_count(&service, "the device has begun nothing"), 1);
	child_order(&other);
	ck_assert_int_eq(child_end(&other), TOLD);
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
}

TEST(assert, a_long_kernel_is_no_sign_of_a_fault)
{
	struct child other, survivors[1];
	const struct company *company = &companies[1];

	/* The device is threads of a process here, which a busy machine lets stand still as
	 * well. */
	start("canary_patience_ms = 1500\n", "silent");
	gather(company, survivors);
	other = child_start(occupant);
	child_wait(&other, 1);
	pass_time(4000);
	see_them_go_on(company, survivors);
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
	pass_time(1000);
	child_order(&other);
	ck_assert_int_eq(child_end(&other), EXACT);
	ck_assert_int_eq(service_log_count(&service, "the device has begun nothing"), 0);
}

/*
 * NVML
 */

/* It does not say whose the fault was. If it was one of this service's, its executor says so. */
TEST(nvml, a_word_of_nvml_alone_costs_nothing)
{
	struct child survivors[SURVIVORS_MAX];
	const struct company *company = &companies[1];
	const unsigned char number = 43;
	char path[64] = "/tmp/frmps-nvml-XXXXXX";
	int fifo;

	ck_assert_ptr_nonnull(mkdtemp(path));
	strcat(path, "/events");
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	fifo = open(path, O_RDWR | O_CLOEXEC);
	setenv("FRMPS_NVML", getenv("FRMPS_TEST_NVML_LIBRARY"), 1);
	setenv("FRMPS_TEST_NVML", path, 1);
	start(PATIENT, "named");
	ck_assert(service_log_wait(&service, "is a witness of faults", 1, 60));
	gather(company, survivors);
	ck_assert_int_eq(write(fifo, &number, 1), 1);
	ck_assert(
		service_log_wait(&service, "Xid 43, by NVML: some process on the device has a fault", 1, 60));
	see_them_go_on(company, survivors);
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
	ck_assert_int_eq(status_counter(&service, "promotions"), 0);
	close(fifo);
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

/* What `frmpsctl quarantine` is told, and what is said to it. */
static json_t *quarantine(const struct wire_names *arguments)
{
	char text[400], *answer = NULL;
	json_t *root;

	ck_assert_msg(!ask_with(service.socket, "quarantine", arguments, 60, &answer, text, sizeof(text)),
		"%s", text);
	root = json_loads(answer, 0, NULL);
	ck_assert_ptr_nonnull(root);
	free(answer);
	return root;
}

/* The one program in quarantine is this executable, and shares its executor again from now on. */
static void lift_quarantine(int faults)
{
	json_t *root = quarantine(&(struct wire_names){0}), *one;
	const char *arguments[] = {"lift", "1"};
	char path[4096] = "";

	ck_assert_int_gt(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "programs")), 1);
	one = json_array_get(json_object_get(root, "programs"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(one, "program")), path);
	ck_assert_int_eq(json_integer_value(json_object_get(one, "faults")), faults);
	ck_assert(json_is_true(json_object_get(one, "quarantined")));
	json_decref(root);
	json_decref(quarantine(&(struct wire_names){arguments, 2}));
}

static bool is_one_of(const json_t *client, const struct child *one, const struct child *other)
{
	json_int_t pid = json_integer_value(json_object_get(client, "pid"));

	return pid == one->pid || pid == other->pid;
}

static bool share_an_executor(const struct child *one, const struct child *other)
{
	json_t *root = status_of(&service), *domain, *client;
	size_t i, j, together, most = 0;

	json_array_foreach (json_object_get(root, "domains"), i, domain) {
		together = 0;
		json_array_foreach (json_object_get(domain, "clients"), j, client)
			together += is_one_of(client, one, other);
		most = together > most ? together : most;
	}
	json_decref(root);
	return most == 2;
}

static void expect_newcomer(const struct child *survivor, bool shares)
{
	struct child child = child_start(idle);

	child_wait(&child, 1);
	ck_assert_int_eq(share_an_executor(&child, survivor), shares);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), EXACT);
}

TEST(faults, a_program_that_faults_again_and_again_is_kept_alone)
{
	struct child survivors[SURVIVORS_MAX], apart;
	const struct company *company = &companies[0];

	start("quarantine_faults = 2\n", "named");
	gather(company, survivors);
	for (int i = 0; i < 4; i++) {
		expect_newcomer(&survivors[0], i < 2);
		ck_assert_int_eq(exit_status(spawn(culprit, 0)), 0);
		ck_assert(service_log_wait(&service, "verdict: culprit is process", i + 1, 60));
	}
	ck_assert_int_eq(service_log_count(&service, "gets executors of its own"), 1);
	apart = child_start(idle);
	child_wait(&apart, 1);
	lift_quarantine(4);
	ck_assert_int_eq(service_log_count(&service, "those that run stay as they are"), 1);
	expect_newcomer(&survivors[0], true);
	ck_assert(!share_an_executor(&apart, &survivors[0]));
	child_order(&apart);
	ck_assert_int_eq(child_end(&apart), EXACT);
	ck_assert_int_eq(exit_status(spawn(culprit, 0)), 0);
	ck_assert(service_log_wait(&service, "verdict: culprit is process", 5, 60));
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
}

/* The values are in the context of an executor that dies: told is who has written there, whoever
 * has only found the kernel is not. */
TEST(faults, what_only_kernels_know_is_not_lost_in_silence)
{
	child_function *const kinds[] = {tallier, graph_tallier, late_tallier};
	const int ends[] = {TOLD, TOLD, EXACT};
	struct child children[3];

	start(PATIENT, "named");
	for (int i = 0; i < 3; i++) {
		children[i] = child_start(kinds[i]);
		child_wait(&children[i], 1);
	}
	ck_assert_int_eq(kill(status_active(&service), SIGKILL), 0);
	ck_assert(service_log_wait(&service, "promotion: executor", 1, 60));
	for (int i = 0; i < 3; i++) {
		child_order(&children[i]);
		ck_assert_int_eq(child_end(&children[i]), ends[i]);
	}
	ck_assert_int_eq(service_log_count(&service, "in its modules' variables"), 2);
}

/* Ends well if it is told an error. */
static int loader_of_what_crashes(int number)
{
	CUmodule module;
	void *image;

	(void)number;
	driver_attach();
	image = read_file(getenv("FRMPS_TEST_CRASH"));
	return cuModuleLoadData(&module, image) ? 0 : 2;
}

/* A load that crashes the executor is asked for twice, and who has kernels then is not to blame. */
TEST(loads, what_crashes_executors_is_not_loaded_for_ever)
{
	struct child bystander;

	start(PATIENT, "named");
	bystander = child_start(survivor);
	child_wait(&bystander, 3);
	ck_assert_int_eq(exit_status(spawn(loader_of_what_crashes, 0)), 0);
	/* The program gets its error as soon as the second executor has crashed. */
	ck_assert(service_log_wait(&service, "promotion: executor", 2, 60));
	child_drain(&bystander);
	child_wait(&bystander, 3);
	ck_assert_int_eq(status_counter(&service, "sessions_rejected"), 1);
	ck_assert_int_eq(status_counter(&service, "promotions"), 2);
	ck_assert_int_eq(status_counter(&service, "culprits"), 0);
	ck_assert_int_eq(status_counter(&service, "faults"), 0);
	child_order(&bystander);
	ck_assert_int_eq(child_end(&bystander), 0);
}

/* Its module crashes each executor but the first that loads it. Ends: 0 nothing is wrong, TOLD an
 * error. */
static int holder_of_what_crashes(int progress, int orders)
{
	CUmodule module;
	CUdeviceptr word;
	void *image;

	driver_attach();
	image = read_file(getenv("FRMPS_TEST_CRASH"));
	ck_cuda(cuModuleLoadData(&module, image));
	word = device_words(1, 0);
	ck_cuda(cuCtxSynchronize());
	report(progress);
	ordered(orders, true);
	/* It is served as long as its executor is there. */
	ck_cuda(cuMemsetD32_v2(word, 7, 1));
	ck_cuda(cuCtxSynchronize());
	report(progress);
	ordered(orders, true);
	return cuCtxSynchronize() ? TOLD : 0;
}

static long long immovable_sessions(void)
{
	json_t *root = status_of(&service), *domain, *executor;
	long long sum = 0;
	size_t i, j;

	json_array_foreach (json_object_get(root, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "executors"), j, executor)
			sum += json_integer_value(json_object_get(executor, "immovable"));
	json_decref(root);
	return sum;
}

/* What a session has crashes standbys: the others have one all the same. */
TEST(loads, what_crashes_standbys_is_left_out_of_them)
{
	char mark[] = "/tmp/frmps-crash-XXXXXX", line[256];
	struct child bystander, holder;

	ck_assert_ptr_nonnull(mkdtemp(mark));
	ck_assert_int_eq(rmdir(mark), 0);
	setenv("FRMPS_TEST_CRASH_MARK", mark, 1);
	start(PATIENT, "named");
	status_await_executors(&service);
	bystander = child_start(survivor);
	child_wait(&bystander, 3);
	holder = child_start(holder_of_what_crashes);
	child_wait(&holder, 1);
	snprintf(line, sizeof(line),
		"session %lld (process %d, %s) cannot be moved to any executor from now on: two in a row "
		"died at its LoadModule, the latest so: the executor process was ended by signal 11",
		status_session(&service, holder.pid), (int)holder.pid, program_invocation_short_name);
	ck_assert(service_log_wait(&service, line, 1, 60));
	status_await_executors(&service);
	ck_assert_int_eq(immovable_sessions(), 1);
	child_order(&holder);
	child_wait(&holder, 1);
	status_replace_active(&service, 1);
	child_drain(&bystander);
	child_wait(&bystander, 3);
	child_order(&holder);
	ck_assert_int_eq(child_end(&holder), TOLD);
	status_await_executors(&service);
	ck_assert_int_eq(service_log_count(&service, "cannot be moved to any executor from now on"), 1);
	ck_assert_int_eq(status_counter(&service, "culprits"), 0);
	child_order(&bystander);
	ck_assert_int_eq(child_end(&bystander), EXACT);
	unlink(mark);
}

TEST(faults, isolated_programs_do_not_see_each_others_faults)
{
	struct child survivors[SURVIVORS_MAX];
	const struct company *company = &companies[1];

	start("isolation = client\nquarantine_faults = 0\n", "named");
	gather(company, survivors);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(exit_status(spawn(culprit, i)), 0);
	see_them_go_on(company, survivors);
	ck_assert_int_eq(service_log_count(&service, "sessions that go on: 1"), 0);
	ck_assert_int_eq(dismiss(company, survivors, EXACT), company->count);
}

int main(void)
{
	Suite *suite = suite_create("faults");
	TCase *tests = tcase_create("faults");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "faults");
	suite_add_tcase(suite, tests);
	tests = tcase_create("limit");
	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "limit");
	if (strcmp(getenv("FRMPS_TEST_BACKEND"), "cuda") != 0)
		suite_add(tests, "limit_2");
	suite_add_tcase(suite, tests);
	tests = tcase_create("nvml");
	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "nvml");
	suite_add_tcase(suite, tests);
	tests = tcase_create("assert");
	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "assert");
	suite_add_tcase(suite, tests);
	tests = tcase_create("loads");
	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "loads");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
