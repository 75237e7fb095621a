// A fault that nobody can be proved guilty of, and suspects that are tried alone: what becomes of them, of
// the others, and of everybody when somebody else dies meanwhile.
//
// The host backend is silent (FRMPS_HOST_SILENT): after a kernel of the culprit has faulted nothing begins
// any more, while a kernel of the suspect runs until it is told to end. So the executor is given up for a
// canary that does not come, with the work of both on it.
//
// Or it says later whose kernel it was, off the device (FRMPS_HOST_READS): then nobody is tried.

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define CONFIG                                                                                               \
	"on_fault = fast\ncanary_patience_ms = 1500\norphan_seconds = 1\nquarantine_faults = 0\n"            \
	"probation_ms = 600000\n"
#define ALL	 "probation = all\n"
#define YOUNGEST "probation = youngest\n"

#define CLEARED	    "ran alone to its end"
#define CONVICTED   "found on probation: its commands, run alone, faulted; told an error beside it: nobody"
#define INTERRUPTED "ran alone when that executor was ended"
#define UNDECIDED   "longer than probation_ms"
#define READ	    "named by the executor; found out off the device"

/* Of a program that strays, one after the other. */
#define STRAYS 32u

/* Ends: 0 exact, 2 wrong, 3 told an error, 4 told and what it ran was run again. */
enum { EXACT = 0, WRONG = 2, TOLD = 3, TOLD_AND_REPEATED = 4 };

static struct service service;
static struct child suspect, second_suspect, culprit, bystander;
/* NULL, or what all programs see: memory of the suspect that has begun last. */
static CUdeviceptr *memory_of_suspect;

static void start_with(const char *backend, const char *value, const char *config)
{
	char text[600];

	setenv(backend, value, 1);
	snprintf(text, sizeof(text), CONFIG "%s", config);
	ck_assert(service_start_configured(&service, text));
}

static void start(const char *config)
{
	start_with("FRMPS_HOST_SILENT", "1", config);
}

static void start_reading(const char *value)
{
	start_with("FRMPS_HOST_READS", value, ALL);
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/*
 * Programs
 */

static bool mixes_well(CUdeviceptr out, CUdeviceptr in, uint32_t *result, uint32_t round)
{
	uint64_t count = 1000;
	void *arguments[] = {&out, &in, &round, &count};

	if (launch("mix", 16, 64, NULL, arguments) || cuMemcpyDtoHAsync_v2(result, out, count * 4, NULL) ||
		cuStreamSynchronize(NULL))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (result[i] != mixed(i * 3, round, i))
			return false;
	return true;
}

/*
 * When it is ordered to, it occupies the device until it is ordered to end; reports each time that its kernel
 * runs. After that it computes. @runs: of its kernel that there are to be; 0: any number
 */
static int occupant(const char *recovery, uint32_t runs, int progress, int orders)
{
	uint32_t *words, *result;
	void *arguments[] = {&words};
	CUdeviceptr in, out;
	CUresult error;

	setenv("FRMPS_RECOVERY", recovery, 1);
	driver_open();
	in = device_words(1000, 3);
	out = device_words(1000, 0);
	words = shared_word();
	ck_cuda(cuMemHostAlloc((void **)&result, 4000, 0));
	if (memory_of_suspect)
		*memory_of_suspect = out;
	/* Code is not loaded beside a kernel that runs. */
	kernel("mix");
	kernel("occupy");
	report(progress);
	ordered(orders, true);
	ck_cuda(launch("occupy", 1, 1, NULL, arguments));
	while (!ordered(orders, false)) {
		if (__atomic_exchange_n(&words[0], 0, __ATOMIC_ACQ_REL))
			report(progress);
		pass_time(1);
	}
	__atomic_store_n(&words[1], 1, __ATOMIC_RELEASE);
	error = cuCtxSynchronize();
	if (error)
		return words[2] > runs ? TOLD_AND_REPEATED : TOLD;
	report(progress);
	for (uint32_t round = 0; !ordered(orders, false); round++)
		if (!mixes_well(out, in, result, round))
			return WRONG;
	return !runs || words[2] == runs ? EXACT : WRONG;
}

/* What it had in doubt ran twice: when somebody else faulted, and once more. */
static int vouching(int progress, int orders)
{
	return occupant("replay", 2, progress, orders);
}

/* And once more when the first guess was wrong. */
static int vouching_twice(int progress, int orders)
{
	return occupant("replay", 3, progress, orders);
}

static int unrepeatable(int progress, int orders)
{
	return occupant("fail", 1, progress, orders);
}

/* Faults when it is ordered to. @turns: runs that are each ordered to; 0: all do with the first order */
static void have_faults(const char *recovery, uint32_t turns, int progress, int orders)
{
	uint64_t nowhere = UINT64_C(0x10);
	uint32_t *words;
	void *arguments[] = {&words, &nowhere};

	setenv("FRMPS_RECOVERY", recovery, 1);
	driver_open();
	words = shared_word();
	kernel("crash_when_told");
	report(progress);
	ordered(orders, true);
	__atomic_store_n(&words[1], turns ? 1 : UINT32_MAX, __ATOMIC_RELEASE);
	ck_cuda(launch("crash_when_told", 1, 1, NULL, arguments));
	for (uint32_t turn = 2; turn <= turns; turn++) {
		ordered(orders, true);
		__atomic_store_n(&words[1], turn, __ATOMIC_RELEASE);
	}
}

/* It alone is told, and what its own kernel did. */
static int fault(uint32_t turns, int progress, int orders)
{
	CUdeviceptr p;

	have_faults("replay", turns, progress, orders);
	if (cuCtxSynchronize() != CUDA_ERROR_ILLEGAL_ADDRESS)
		return WRONG;
	if (cuMemAlloc_v2(&p, 4096) != CUDA_ERROR_ILLEGAL_ADDRESS)
		return WRONG;
	ordered(orders, true);
	return EXACT;
}

static int faulting(int progress, int orders)
{
	return fault(0, progress, orders);
}

/* The kernel may look finished before its program is told. */
static CUresult fault_and_wait(const char *recovery, int progress, int orders)
{
	CUresult error;

	have_faults(recovery, 0, progress, orders);
	while (!(error = cuCtxSynchronize()) && !ordered(orders, false))
		pass_time(1);
	ordered(orders, true);
	return error;
}

static int faulting_unseen(int progress, int orders)
{
	return fault_and_wait("replay", progress, orders) == CUDA_ERROR_ILLEGAL_ADDRESS ? EXACT : WRONG;
}

/* If it does not look finished its program is told at once, before it is known what it was. */
static int faulting_unrepeatable(int progress, int orders)
{
	CUresult error = fault_and_wait("fail", progress, orders);

	return error == CUDA_ERROR_ILLEGAL_ADDRESS || error == CUDA_ERROR_LAUNCH_FAILED ? EXACT : WRONG;
}

static int faulting_twice(int progress, int orders)
{
	return fault(2, progress, orders);
}

static int faulting_thrice(int progress, int orders)
{
	return fault(3, progress, orders);
}

/* Idle at the fault; must not notice it. Counts whenever it is ordered to, until the parent is gone. */
static int idle(int progress, int orders)
{
	uint32_t one = 1, counted = 0, seen = 0;
	CUdeviceptr word;
	void *up[] = {&word, &one};
	bool last = false;

	setenv("FRMPS_RECOVERY", "fail", 1);
	driver_open();
	word = device_words(1, 0);
	while (!last) {
		ck_cuda(launch("count_up", 1, 1, NULL, up));
		counted++;
		if (cuMemcpyDtoH_v2(&seen, word, 4))
			return TOLD;
		if (seen != counted)
			return WRONG;
		report(progress);
		last = ordered(orders, true) && counted == 2;
	}
	return EXACT;
}

/* When it is ordered to, has kernels on the device. With each order from then on the next of them strays to what the
 * suspects have shown; an order of another letter is the last, and all do. */
static int straying(int progress, int orders)
{
	uint32_t *words;
	uint64_t address;
	void *arguments[] = {&words, &address};
	char order = 'o';

	driver_open();
	words = shared_word();
	kernel("crash_when_told");
	report(progress);
	ordered(orders, true);
	address = *memory_of_suspect;
	for (uint32_t i = 0; i < STRAYS; i++)
		ck_cuda(launch("crash_when_told", 1, 1, NULL, arguments));
	for (uint32_t run = 1; run < STRAYS && order == 'o'; run++) {
		while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) < run)
			pass_time(1);
		report(progress);
		order = read(orders, &order, 1) == 1 ? order : 'e';
		__atomic_store_n(&words[1], run, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&words[1], STRAYS, __ATOMIC_RELEASE);
	return cuCtxSynchronize() == CUDA_SUCCESS ? EXACT : WRONG;
}

/* When it is ordered to, looks a kernel up, which waits for those of others. */
static int looking_up(int progress, int orders)
{
	driver_open();
	report(progress);
	ordered(orders, true);
	report(progress);
	kernel("mix");
	report(progress);
	ordered(orders, true);
	return EXACT;
}

/*
 * The service
 */

/* The executor of the domain for one program alone, with the program in it or without; 0: there is none. */
static pid_t executor_for_one(bool occupied)
{
	json_t *root = status_of(&service), *domain;
	pid_t pid = 0;
	size_t i;

	json_array_foreach (json_object_get(root, "domains"), i, domain)
		if (json_is_string(json_object_get(domain, "alone")) &&
			!strcmp(json_string_value(json_object_get(domain, "state")), "steady") &&
			(json_array_size(json_object_get(domain, "clients")) != 0) == occupied)
			pid = (pid_t)json_integer_value(json_object_get(
				json_array_get(json_object_get(domain, "executors"), 0), "pid"));
	json_decref(root);
	return pid;
}

/* The executor that is there for the next trial; 0: there is none. */
static pid_t reserve(void)
{
	return executor_for_one(false);
}

/* Waits until there is another one of that kind, or none. @pid: 0: until there is one */
static pid_t await_other(pid_t (*find)(void), pid_t pid)
{
	pid_t found = pid;

	for (int i = 0; i < 600 && (found = find()) == pid; i++)
		pass_time(50);
	ck_assert_int_ne(found, pid);
	return found;
}

static pid_t daemon_pid(void)
{
	json_t *root = status_of(&service);
	pid_t pid = (pid_t)json_integer_value(json_object_get(root, "pid"));

	json_decref(root);
	return pid;
}

static pid_t standby(void)
{
	json_t *root = status_of(&service), *executor;
	pid_t pid = 0;
	size_t i;

	json_array_foreach (json_object_get(json_array_get(json_object_get(root, "domains"), 0), "executors"),
		i, executor)
		if (!strcmp(json_string_value(json_object_get(executor, "role")), "standby"))
			pid = (pid_t)json_integer_value(json_object_get(executor, "pid"));
	json_decref(root);
	return pid;
}

/* What status says of the probation of a program's session; "": it is on none. */
static void probation_of(pid_t program, char *text, size_t size)
{
	json_t *root = status_of(&service), *domain, *client;
	size_t i, j;

	*text = '\0';
	json_array_foreach (json_object_get(root, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "clients"), j, client)
			if (json_integer_value(json_object_get(client, "pid")) == program &&
				json_is_string(json_object_get(client, "probation")))
				snprintf(text, size, "%s",
					json_string_value(json_object_get(client, "probation")));
	json_decref(root);
}

static void expect_probation(const struct child *child, const char *wanted)
{
	char text[32];

	probation_of(child->pid, text, sizeof(text));
	ck_assert_str_eq(text, wanted);
}

static void expect_log(const char *text)
{
	ck_assert_msg(service_log_wait(&service, text, 1, 120), "the log does not say: %s", text);
}

/*
 * Steps
 */

/* Until it reports for the first time. */
static void enlist(struct child *child, child_function *program)
{
	*child = child_start(program);
	child_wait(child, 1);
}

/* The youngest is tried first. */
static void assemble(child_function *program, bool culprit_first)
{
	struct child *older = culprit_first ? &suspect : &culprit;
	struct child *younger = culprit_first ? &culprit : &suspect;

	enlist(&bystander, idle);
	enlist(older, culprit_first ? program : faulting);
	enlist(younger, culprit_first ? faulting : program);
}

static void begin(void)
{
	child_order(&suspect);
	child_wait(&suspect, 1);
	child_order(&culprit);
}

static void gather(child_function *program, bool culprit_first)
{
	assemble(program, culprit_first);
	begin();
}

/* The innocent one is the youngest: its kernel runs for the second time, and so does the culprit's beside the
 * others. */
static void gather_wrong(child_function *guilty)
{
	enlist(&bystander, idle);
	enlist(&culprit, guilty);
	enlist(&suspect, vouching);
	begin();
	child_wait(&suspect, 1);
	ck_assert(service_log_wait(&service, "verdict: ", 1, 120));
}

/* The suspect's kernel runs alone, for the second time. */
static void reach_trial(const char *config)
{
	start(config);
	gather(vouching, false);
	child_wait(&suspect, 1);
	ck_assert_int_eq(status_counter(&service, "probations"), 1);
	expect_probation(&suspect, "running");
	ck_assert_int_eq(service_log_count(&service, CONVICTED), 0);
}

static void let_suspect_end(void)
{
	child_order(&suspect);
	child_wait(&suspect, 1);
}

static void expect_end(struct child *child, int end)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), end);
}

/* The guilty one was found by its own trial. */
static void expect_guilty_told(void)
{
	expect_log(CONVICTED);
	expect_log("kernel crash_when_told, code 700");
	expect_end(&culprit, EXACT);
}

/* The same, and nobody else was hurt. */
static void expect_conviction(void)
{
	expect_guilty_told();
	ck_assert_int_eq(status_counter(&service, "culprits"), 1);
}

/* It was idle when the executor was lost, and serves on. */
static void expect_bystander(void)
{
	child_order(&bystander);
	child_wait(&bystander, 1);
	expect_end(&bystander, EXACT);
}

/* Only the guilty one was tried. */
static void expect_suspect_released(void)
{
	expect_log("goes on with the others");
	child_wait(&suspect, 1);
	let_suspect_end();
	expect_end(&suspect, EXACT);
	expect_bystander();
	ck_assert_int_eq(status_counter(&service, "probations"), 1);
}

/*
 * Tests
 */

START_TEST(an_innocent_suspect_is_exact_and_the_guilty_one_is_found)
{
	reach_trial(ALL);
	expect_probation(&culprit, "waiting");
	/* The others do not wait for it. */
	expect_bystander();
	let_suspect_end();
	expect_log(CLEARED);
	expect_conviction();
	expect_probation(&suspect, "");
	expect_end(&suspect, EXACT);
	ck_assert_int_eq(status_counter(&service, "probations"), 2);
	/* That was the only loss that anybody but the suspects saw. */
	ck_assert_int_eq(status_counter(&service, "promotions"), 1);
	wait_closed(&service);
}
END_TEST

START_TEST(once_the_guilty_one_is_found_nobody_else_is_tried)
{
	start(ALL);
	gather(vouching, true);
	expect_conviction();
	expect_suspect_released();
	ck_assert_int_eq(status_counter(&service, "promotions"), 1);
	wait_closed(&service);
}
END_TEST

/* The executor of the trial outlasts the fault, and says whose it was. */
START_TEST(a_trial_ends_with_a_contained_fault)
{
	setenv("FRMPS_HOST_CONTAIN", "1", 1);
	setenv("FRMPS_HOST_DUMP_MS", "30", 1);
	start(ALL);
	gather(vouching, true);
	expect_log("has faulted in its trial: nobody else is a suspect");
	expect_log("kernel crash_when_told, code 700");
	expect_end(&culprit, EXACT);
	expect_suspect_released();
	ck_assert_int_eq(status_counter(&service, "culprits"), 1);
	wait_closed(&service);
}
END_TEST

/* Nobody waits until a context is made; and the next trial need not either. */
START_TEST(an_executor_is_ready_for_a_trial)
{
	pid_t ready;

	start(ALL);
	assemble(vouching, false);
	ready = await_other(reserve, 0);
	begin();
	child_wait(&suspect, 1);
	ck_assert_int_eq(executor_for_one(true), ready);
	ck_assert_int_ne(await_other(reserve, 0), ready);
	let_suspect_end();
	expect_conviction();
	expect_end(&suspect, EXACT);
	expect_bystander();
	wait_closed(&service);
	/* Nobody vouches any more. */
	for (int i = 0; i < 600 && reserve(); i++)
		pass_time(50);
	ck_assert_int_eq(reserve(), 0);
}
END_TEST

/* It is replaced where it dies, and its end is nobody's fault. */
START_TEST(the_executor_that_is_ready_dies)
{
	pid_t ready;

	start(ALL);
	assemble(vouching, false);
	ready = await_other(reserve, 0);
	kill(ready, SIGKILL);
	await_other(reserve, ready);
	ck_assert_int_ne(await_other(reserve, 0), ready);
	begin();
	child_wait(&suspect, 1);
	let_suspect_end();
	expect_conviction();
	expect_end(&suspect, EXACT);
	expect_bystander();
}
END_TEST

START_TEST(what_may_not_be_repeated_is_told_and_not_run_again)
{
	start(ALL);
	gather(unrepeatable, false);
	expect_conviction();
	expect_end(&suspect, TOLD);
	expect_bystander();
	ck_assert_int_eq(status_counter(&service, "probations"), 1);
}
END_TEST

/* The second loss finds the guilty one by elimination, or not at all; everybody pauses for it. */
START_TEST(without_probation_all_are_repeated_side_by_side)
{
	start("probation = off\n");
	gather_wrong(faulting_twice);
	child_order(&culprit);
	ck_assert(service_log_wait(&service, "verdict: ", 2, 120));
	ck_assert_int_eq(status_counter(&service, "probations"), 0);
	ck_assert_int_ge(status_counter(&service, "promotions"), 2);
	kill(suspect.pid, SIGKILL);
	kill(culprit.pid, SIGKILL);
	kill(bystander.pid, SIGKILL);
	child_end(&suspect);
	child_end(&culprit);
	child_end(&bystander);
}
END_TEST

/* Only the youngest is tried; the other one is repeated at once. */
START_TEST(a_right_guess_spares_the_others_their_trial)
{
	start(YOUNGEST);
	gather(vouching, true);
	child_wait(&suspect, 1);
	expect_conviction();
	let_suspect_end();
	expect_end(&suspect, EXACT);
	expect_bystander();
	ck_assert_int_eq(status_counter(&service, "probations"), 1);
	ck_assert_int_eq(status_counter(&service, "promotions"), 1);
	ck_assert_int_eq(service_log_count(&service, "goes on with the others"), 0);
	wait_closed(&service);
}
END_TEST

/* The others pause once more; then the guilty one is alone with the fault. */
START_TEST(a_wrong_guess_costs_a_second_pause)
{
	start(YOUNGEST);
	gather_wrong(faulting_twice);
	child_order(&culprit);
	expect_log("verdict: culprit is process");
	let_suspect_end();
	expect_log(CLEARED);
	expect_end(&suspect, EXACT);
	expect_bystander();
	ck_assert_int_eq(status_counter(&service, "culprits"), 1);
	ck_assert_int_eq(status_counter(&service, "probations"), 1);
	ck_assert_int_eq(status_counter(&service, "promotions"), 2);
	expect_end(&culprit, EXACT);
}
END_TEST

/* Two suspects: both run beside the culprit, and for the second time side by side. */
static void begin_with_two(child_function *second)
{
	enlist(&second_suspect, second);
	enlist(&suspect, vouching);
	child_order(&second_suspect);
	child_wait(&second_suspect, 1);
	begin();
	child_wait(&suspect, 1);
	child_wait(&second_suspect, 1);
}

START_TEST(behind_a_wrong_guess_all_are_tried)
{
	pid_t ready;

	start(YOUNGEST);
	enlist(&bystander, idle);
	enlist(&culprit, faulting_thrice);
	/* Repeated, the one of them runs, and the other one faults once more. */
	begin_with_two(vouching_twice);
	child_order(&culprit);
	ck_assert(service_log_wait(&service, "nobody is proved guilty", 2, 120));
	expect_probation(&second_suspect, "waiting");
	expect_probation(&culprit, "waiting");
	expect_bystander();
	ready = await_other(reserve, 0);
	let_suspect_end();
	ck_assert(service_log_wait(&service, "gets its trial", 2, 120));
	child_wait(&second_suspect, 1);
	/* One executor was ready for it, and one is for the culprit, who still waits. */
	ck_assert_int_ne(await_other(reserve, 0), ready);
	child_order(&second_suspect);
	child_wait(&second_suspect, 1);
	child_order(&culprit);
	expect_conviction();
	expect_end(&suspect, EXACT);
	expect_end(&second_suspect, EXACT);
	ck_assert_int_eq(status_counter(&service, "probations"), 3);
	ck_assert_int_eq(status_counter(&service, "promotions"), 2);
}
END_TEST

START_TEST(a_trial_without_end_is_no_proof)
{
	start(ALL "probation_ms = 2000\n");
	gather(vouching, false);
	child_wait(&suspect, 1);
	expect_log(UNDECIDED);
	/* The next one had its turn. */
	expect_conviction();
	expect_probation(&suspect, "undecided");
	let_suspect_end();
	expect_log(CLEARED);
	expect_end(&suspect, EXACT);
	expect_bystander();
}
END_TEST

/* It has said that it is about to wait for an answer. */
static void await_sleep(pid_t pid)
{
	char path[64], line[512] = "";
	const char *rest = NULL;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	for (int i = 0; i < 6000; i++) {
		file = fopen(path, "r");
		ck_assert_ptr_nonnull(file);
		rest = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
		fclose(file);
		ck_assert_ptr_nonnull(rest);
		if (rest[2] == 'S')
			return;
		pass_time(5);
	}
	ck_abort_msg("it does not wait");
}

/* Until a stray is noticed: one that comes before the sinks are filled is not. */
static void stray_until_noticed(const struct child *stray)
{
	for (unsigned i = 2; i < STRAYS; i++) {
		child_order(stray);
		child_wait(stray, 1);
		pass_time(50);
		if (status_counter(&service, "guard_hits") || status_counter(&service, "guard_hits_unproved"))
			return;
	}
	ck_abort_msg("nobody notices the strays");
}

static void show_memory(void)
{
	memory_of_suspect = mmap(
		NULL, sizeof(*memory_of_suspect), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory_of_suspect, MAP_FAILED);
}

/* The executor that it comes from has its guard yet: what would take it down there waits behind a lookup, and that for
 * the very kernels that stray into it. */
START_TEST(who_is_tried_is_not_blamed_for_strays_of_those_it_has_left)
{
	struct child stray, newcomer;
	CUdeviceptr memory;

	show_memory();
	start(ALL "log_level = debug\nguard_interval_ms = 5\nguard_bytes = 64M\nload_patience_ms = 600000\n");
	enlist(&stray, straying);
	enlist(&newcomer, looking_up);
	enlist(&bystander, idle);
	enlist(&culprit, faulting);
	enlist(&second_suspect, vouching);
	memory = *memory_of_suspect;
	enlist(&suspect, vouching);
	/* Of each that has device memory, in both executors. */
	ck_assert(service_log_wait(&service, "the guard is complete", 6, 60));
	child_order(&second_suspect);
	child_wait(&second_suspect, 1);
	begin();
	child_wait(&suspect, 1);
	*memory_of_suspect = memory + (8u << 20);
	child_order(&stray);
	child_wait(&stray, 1);
	child_order(&newcomer);
	child_wait(&newcomer, 1);
	await_sleep(newcomer.pid);
	let_suspect_end();
	child_wait(&second_suspect, 1);
	stray_until_noticed(&stray);
	ck_assert_int_eq(status_counter(&service, "guard_hits"), 0);
	expect_probation(&second_suspect, "running");
	ck_assert_int_eq(write(stray.orders, "e", 1), 1);
	ck_assert_int_eq(child_end(&stray), EXACT);
	child_wait(&newcomer, 1);
	child_order(&second_suspect);
	child_wait(&second_suspect, 1);
	expect_conviction();
	expect_end(&second_suspect, EXACT);
	expect_end(&suspect, EXACT);
	expect_end(&newcomer, EXACT);
	expect_bystander();
	ck_assert_int_eq(status_counter(&service, "guard_hits"), 0);
}
END_TEST

/*
 * Somebody dies meanwhile
 */

/* The trial goes on, and the next one has its turn. */
static void expect_both_trials(void)
{
	let_suspect_end();
	expect_log(CLEARED);
	expect_conviction();
	expect_end(&suspect, EXACT);
}

START_TEST(its_executor_dies)
{
	reach_trial(ALL);
	kill(executor_for_one(true), SIGKILL);
	expect_log(INTERRUPTED);
	/* Neither tried again, nor beside the others: it would have run for a third time. */
	expect_end(&suspect, TOLD);
	expect_conviction();
	expect_bystander();
	ck_assert_int_eq(status_counter(&service, "probations"), 2);
}
END_TEST

START_TEST(the_active_executor_dies)
{
	reach_trial(ALL);
	ck_assert(service_kill_active(&service));
	ck_assert(service_log_wait(&service, "as generation 3", 1, 120));
	expect_probation(&culprit, "waiting");
	expect_bystander();
	expect_both_trials();
	ck_assert_int_eq(status_counter(&service, "promotions"), 2);
}
END_TEST

START_TEST(the_standby_dies)
{
	reach_trial(ALL);
	kill(await_other(standby, 0), SIGKILL);
	expect_bystander();
	let_suspect_end();
	expect_conviction();
	expect_end(&suspect, EXACT);
	ck_assert_int_eq(status_counter(&service, "promotions"), 1);
}
END_TEST

START_TEST(the_daemon_dies)
{
	reach_trial(ALL);
	kill(daemon_pid(), SIGKILL);
	expect_log("the daemon is back");
	expect_probation(&suspect, "running");
	expect_probation(&culprit, "waiting");
	expect_bystander();
	expect_both_trials();
	ck_assert_int_eq(status_counter(&service, "probations"), 2);
}
END_TEST

/* The daemon is gone while a fault shows who did it. */
START_TEST(the_daemon_dies_before_the_guilty_one_is_found)
{
	start(ALL);
	gather(vouching, true);
	expect_log("gets its trial");
	kill(daemon_pid(), SIGKILL);
	expect_log("the daemon is back");
	expect_guilty_told();
	/* What the old one had counted and not carried out is counted again. */
	ck_assert_int_ge(status_counter(&service, "culprits"), 1);
	ck_assert_int_le(status_counter(&service, "culprits"), 2);
	child_wait(&suspect, 1);
	let_suspect_end();
	expect_end(&suspect, EXACT);
	expect_bystander();
}
END_TEST

START_TEST(the_program_on_trial_dies)
{
	reach_trial(ALL);
	kill(suspect.pid, SIGKILL);
	ck_assert_int_eq(child_end(&suspect), 1000 + SIGKILL);
	expect_conviction();
	expect_bystander();
	wait_closed(&service);
}
END_TEST

/* Whose fault it was is never known, so who had work shortly before may be told, or not. */
START_TEST(a_program_that_waits_for_its_trial_dies)
{
	reach_trial(ALL);
	kill(culprit.pid, SIGKILL);
	ck_assert_int_eq(child_end(&culprit), 1000 + SIGKILL);
	child_order(&suspect);
	expect_log(CLEARED);
	kill(suspect.pid, SIGKILL);
	kill(bystander.pid, SIGKILL);
	child_end(&suspect);
	child_end(&bystander);
	ck_assert_int_eq(status_counter(&service, "probations"), 1);
	wait_closed(&service);
}
END_TEST

/*
 * It is found out off the device
 */

static void expect_culprit_read(void)
{
	char text[128];

	expect_log(READ);
	expect_log("kernel crash_when_told, code 700");
	snprintf(text, sizeof(text), "verdict: culprit is process %d ", (int)culprit.pid);
	expect_log(text);
	expect_end(&culprit, EXACT);
	ck_assert_int_eq(status_counter(&service, "culprits"), 1);
	ck_assert_int_eq(status_counter(&service, "promotions"), 1);
	ck_assert_int_eq(status_counter(&service, "probations"), 0);
	ck_assert_int_eq(service_log_count(&service, "gets its trial"), 0);
}

START_TEST(who_is_named_off_the_device_is_told_and_nobody_is_tried)
{
	start_reading("1");
	enlist(&culprit, faulting_unseen);
	begin_with_two(vouching);
	expect_culprit_read();
	let_suspect_end();
	child_order(&second_suspect);
	child_wait(&second_suspect, 1);
	expect_end(&suspect, EXACT);
	expect_end(&second_suspect, EXACT);
	wait_closed(&service);
}
END_TEST

/* Nobody vouches. The idle one has run something within the last second. */
START_TEST(who_is_only_suspected_goes_on_until_it_is_known)
{
	start_reading("1");
	enlist(&culprit, faulting_unrepeatable);
	enlist(&bystander, idle);
	child_order(&culprit);
	expect_culprit_read();
	expect_bystander();
	wait_closed(&service);
}
END_TEST

/* What it says comes without anybody's help. */
START_TEST(the_executor_dies_before_it_says_whose_it_was)
{
	pid_t executor;

	start_reading("mute");
	assemble(vouching, false);
	executor = service_active(&service);
	begin();
	expect_log("verdict: ");
	/* It is off the device, and lives. */
	ck_assert_int_eq(service_log_count(&service, "gets its trial"), 0);
	ck_assert_int_eq(kill(executor, SIGKILL), 0);
	child_wait(&suspect, 1);
	expect_probation(&suspect, "running");
	expect_probation(&culprit, "waiting");
	expect_bystander();
	expect_both_trials();
	ck_assert_int_eq(status_counter(&service, "probations"), 2);
	ck_assert_int_eq(service_log_count(&service, READ), 0);
}
END_TEST

START_TEST(who_is_alone_is_told_what_it_was)
{
	start_reading("1");
	enlist(&culprit, faulting);
	child_order(&culprit);
	expect_log("kernel crash_when_told, code 700");
	expect_end(&culprit, EXACT);
	ck_assert_int_eq(status_counter(&service, "culprits"), 1);
	ck_assert_int_eq(status_counter(&service, "probations"), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("probation");
	TCase *tests = tcase_create("probation");

	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, NULL, stop);
	tcase_add_test(tests, an_innocent_suspect_is_exact_and_the_guilty_one_is_found);
	tcase_add_test(tests, a_trial_ends_with_a_contained_fault);
	tcase_add_test(tests, once_the_guilty_one_is_found_nobody_else_is_tried);
	tcase_add_test(tests, an_executor_is_ready_for_a_trial);
	tcase_add_test(tests, what_may_not_be_repeated_is_told_and_not_run_again);
	tcase_add_test(tests, without_probation_all_are_repeated_side_by_side);
	tcase_add_test(tests, a_trial_without_end_is_no_proof);
	suite_add_tcase(suite, tests);
	tests = tcase_create("guard");
	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, NULL, stop);
	tcase_add_test(tests, who_is_tried_is_not_blamed_for_strays_of_those_it_has_left);
	suite_add_tcase(suite, tests);
	tests = tcase_create("guess");
	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, NULL, stop);
	tcase_add_test(tests, a_right_guess_spares_the_others_their_trial);
	tcase_add_test(tests, a_wrong_guess_costs_a_second_pause);
	tcase_add_test(tests, behind_a_wrong_guess_all_are_tried);
	suite_add_tcase(suite, tests);
	tests = tcase_create("post-mortem");
	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, NULL, stop);
	tcase_add_test(tests, who_is_named_off_the_device_is_told_and_nobody_is_tried);
	tcase_add_test(tests, who_is_only_suspected_goes_on_until_it_is_known);
	tcase_add_test(tests, the_executor_dies_before_it_says_whose_it_was);
	tcase_add_test(tests, who_is_alone_is_told_what_it_was);
	suite_add_tcase(suite, tests);
	tests = tcase_create("second");
	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, NULL, stop);
	tcase_add_test(tests, the_executor_that_is_ready_dies);
	tcase_add_test(tests, its_executor_dies);
	tcase_add_test(tests, the_active_executor_dies);
	tcase_add_test(tests, the_standby_dies);
	tcase_add_test(tests, the_daemon_dies);
	tcase_add_test(tests, the_daemon_dies_before_the_guilty_one_is_found);
	tcase_add_test(tests, the_program_on_trial_dies);
	tcase_add_test(tests, a_program_that_waits_for_its_trial_dies);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
