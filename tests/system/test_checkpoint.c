// The driver's cuCheckpointProcess*: what a tool may expect of a program's states, and the
// service's own orders beside it. The case "states" runs against NVIDIA's library as well
// (FRMPS_TEST_NATIVE).
//
// The test is the tool. It opens the driver when all programs have started: a process that has the
// driver open forks none.

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/family.h"
#include "tests/system/own_service.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define CONFIG	  "quarantine_faults = 0\norphan_seconds = 1\nstop_seconds = 1\n"
#define WORDS	  (UINT64_C(70) << 18) /* 70 MiB */
#define MIB	  (UINT64_C(1) << 20)
#define ASK_LONG  60
#define PATIENT	  60000 /* ms */
#define IMPATIENT 200	/* ms */

enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };

static void start(void)
{
	if (!is_native())
		ck_assert(service_start_configured(&service, CONFIG));
}

/*
 * Programs
 */

static int rounds; /* of `counter`, set before it starts */

/* Has much memory that it looks at, counts in a word, and allocates, at each order.
 * Its end: 0 all was right, 2 it was not, 3 told an error */
static int counter(int progress, int orders)
{
	static uint32_t one = 1;
	uint32_t *words = malloc(WORDS * 4), counted = 0;
	CUdeviceptr memory, word, more;
	void *arguments[] = {&word, &one};
	bool whole = true;
	CUresult r = CUDA_SUCCESS;

	driver_open();
	memory = device_words(WORDS, 7);
	word = device_words(1, 0);
	ck_cuda(cuCtxSynchronize());
	report(progress);
	for (uint32_t round = 1; !r && whole && (int)round <= rounds; round++) {
		ordered(orders, true);
		r = launch("count_up", 1, 1, NULL, arguments);
		r = r ? r : cuMemAlloc_v2(&more, MIB);
		r = r ? r : cuMemcpyDtoH_v2(words, memory, WORDS * 4);
		r = r ? r : cuMemcpyDtoH_v2(&counted, word, 4);
		r = r ? r : cuMemFree_v2(more);
		whole = counted == round;
		for (uint64_t i = 0; !r && i < WORDS; i++)
			whole &= words[i] == (uint32_t)i * 7;
		report(progress);
	}
	return r ? 3 : whole ? 0 : 2;
}

/* Has a kernel on the device that ends at the first order; the second one ends the program. */
static int spinner(int progress, int orders)
{
	uint32_t *word;

	driver_open();
	word = shared_word();
	ck_cuda(launch_spin(word, 1, NULL));
	report(progress);
	ordered(orders, true);
	*(volatile uint32_t *)word = 1;
	ordered(orders, true);
	return cuCtxSynchronize() ? 3 : 0;
}

/* Has memory that stays on the device. */
static int artist(int progress, int orders)
{
	const CUDA_ARRAY_DESCRIPTOR shape = {
		.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
	CUarray array;

	driver_open();
	ck_cuda(cuArrayCreate_v2(&array, &shape));
	report(progress);
	ordered(orders, true);
	return 0;
}

/* Has opened the driver, and has no memory. */
static int pauper(int progress, int orders)
{
	driver_open();
	report(progress);
	ordered(orders, true);
	return cuCtxSynchronize() ? 3 : 0;
}

/* Has taken the room of `counter`. */
static int taker(int progress, int orders)
{
	CUdeviceptr memory;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&memory, 120 * MIB));
	report(progress);
	ordered(orders, true);
	return 0;
}

static int trapped(int progress, int orders)
{
	driver_open();
	ck_cuda(launch("crash_trap", 1, 1, NULL, NULL));
	if (cuCtxSynchronize() != CUDA_ERROR_LAUNCH_FAILED)
		return 2;
	report(progress);
	ordered(orders, true);
	return 0;
}

static int bystander(int progress, int orders)
{
	report(progress);
	ordered(orders, true);
	return 0;
}

static int told[2]; /* a pipe: what `measurer` says */

/* Says how much memory is free, at each order. */
static int measurer(int progress, int orders)
{
	size_t bytes, total;

	driver_attach();
	report(progress);
	for (int i = 0; i < 3; i++) {
		ordered(orders, true);
		ck_cuda(cuMemGetInfo_v2(&bytes, &total));
		if (write(told[1], &bytes, sizeof(bytes)) != sizeof(bytes))
			return 1;
	}
	return 0;
}

static size_t measured(const struct child *child)
{
	size_t bytes = 0;

	child_order(child);
	ck_assert_int_eq(read(told[0], &bytes, sizeof(bytes)), sizeof(bytes));
	return bytes;
}

static struct child start_child(child_function *function)
{
	struct child child = child_start(function);

	child_wait(&child, 1);
	return child;
}

static struct child start_spinner(void)
{
	struct child child = start_child(spinner);

	/* Its kernel is on the device. */
	if (!is_native())
		status_await_commands(&service, child.pid, 1);
	return child;
}

static struct child start_counter(int times)
{
	rounds = times;
	return start_child(counter);
}

/* For programs that wait for the order to end. */
static void dismiss(struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), 0);
}

/*
 * The tool
 */

static CUresult lock_within(pid_t pid, unsigned ms)
{
	CUcheckpointLockArgs args = {.timeoutMs = ms};

	return cuCheckpointProcessLock(pid, &args);
}

static CUresult lock(pid_t pid)
{
	return lock_within(pid, PATIENT);
}

static CUresult checkpoint(pid_t pid)
{
	return cuCheckpointProcessCheckpoint(pid, NULL);
}

static CUresult restore(pid_t pid)
{
	return cuCheckpointProcessRestore(pid, NULL);
}

static CUresult unlock(pid_t pid)
{
	return cuCheckpointProcessUnlock(pid, NULL);
}

/* In the order of the states from which each is allowed, with the state behind it. */
static const struct step {
	CUresult (*take)(pid_t pid);
	int from, to;
} steps[] = {
	{lock, RUNNING, LOCKED},
	{checkpoint, LOCKED, CHECKPOINTED},
	{restore, CHECKPOINTED, LOCKED},
	{unlock, LOCKED, RUNNING},
};

#define STEPS (sizeof(steps) / sizeof(*steps))

static int state_of(pid_t pid)
{
	CUprocessState state = CU_PROCESS_STATE_FAILED;

	ck_cuda(cuCheckpointProcessGetState(pid, &state));
	return (int)state;
}

static void take(const struct step *step, pid_t pid)
{
	ck_cuda(step->take(pid));
	ck_assert_int_eq(state_of(pid), step->to);
}

static void be_tool(void)
{
	ck_cuda(cuInit(0));
}

/*
 * States
 */

TEST(states, a_program_passes_through_all_states)
{
	struct child child;
	int tid = 0;

	start();
	child = start_counter(3);
	be_tool();
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	ck_cuda(cuCheckpointProcessGetRestoreThreadId(child.pid, &tid));
	ck_assert_int_ne(tid, 0);
	see_it_work(&child);
	take(&steps[0], child.pid);
	/* Its calls wait in each state. */
	child_order(&child);
	for (unsigned next = 1; next < STEPS; next++) {
		pass_time(50);
		ck_assert(!child_progresses(&child));
		take(&steps[next], child.pid);
	}
	child_wait(&child, 1);
	take(&steps[0], child.pid);
	take(&steps[3], child.pid);
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(states, a_step_from_another_state_is_refused)
{
	struct child child;

	start();
	child = start_counter(1);
	be_tool();
	for (unsigned next = 0; next < STEPS; next++) {
		for (unsigned other = 0; other < STEPS; other++) {
			if (steps[other].from == steps[next].from)
				continue;
			ck_assert_int_eq(steps[other].take(child.pid), CUDA_ERROR_ILLEGAL_STATE);
			ck_assert_int_eq(state_of(child.pid), steps[next].from);
		}
		take(&steps[next], child.pid);
	}
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(states, arguments_are_checked)
{
	CUcheckpointLockArgs lock_args = {.reserved0 = 1}, lock_more = {.reserved1 = {[6] = 1}};
	CUcheckpointCheckpointArgs checkpoint_args = {{[0] = 0}};
	CUcheckpointRestoreArgs restore_args = {0};
	CUcheckpointUnlockArgs unlock_args = {{[7] = 1}};
	struct child child, other;
	CUprocessState state;
	int tid;

	start();
	child = start_counter(1);
	other = start_child(bystander);
	be_tool();
	ck_assert_int_eq(cuCheckpointProcessGetState(child.pid, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuCheckpointProcessGetState(other.pid, &state), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuCheckpointProcessGetRestoreThreadId(other.pid, &tid), CUDA_ERROR_INVALID_VALUE);
	for (unsigned i = 0; i < STEPS; i++)
		ck_assert_int_eq(steps[i].take(other.pid), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuCheckpointProcessLock(child.pid, &lock_args), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuCheckpointProcessLock(child.pid, &lock_more), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuCheckpointProcessUnlock(child.pid, &unlock_args), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	ck_cuda(cuCheckpointProcessLock(child.pid, NULL));
	ck_cuda(cuCheckpointProcessCheckpoint(child.pid, &checkpoint_args));
	ck_cuda(cuCheckpointProcessRestore(child.pid, &restore_args));
	unlock_args.reserved[7] = 0;
	ck_cuda(cuCheckpointProcessUnlock(child.pid, &unlock_args));
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
	dismiss(&other);
}

TEST(states, a_lock_waits_for_the_work_and_not_for_ever)
{
	struct child child;

	start();
	child = start_spinner();
	be_tool();
	ck_assert_int_eq(lock_within(child.pid, IMPATIENT), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	child_order(&child);
	ck_cuda(lock(child.pid));
	ck_assert_int_eq(state_of(child.pid), LOCKED);
	ck_cuda(unlock(child.pid));
	dismiss(&child);
}

TEST(states, others_have_the_room_of_a_checkpointed_program)
{
	struct child child, other;
	uint64_t before;

	start();
	ck_assert_int_eq(pipe(told), 0);
	child = start_counter(1);
	other = start_child(measurer);
	be_tool();
	before = measured(&other);
	ck_cuda(lock(child.pid));
	ck_cuda(checkpoint(child.pid));
	ck_assert_uint_ge(measured(&other), before + 60 * MIB);
	ck_cuda(restore(child.pid));
	ck_assert_uint_lt(measured(&other), before + MIB);
	ck_cuda(unlock(child.pid));
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(child_end(&other), 0);
}

static pid_t common_target; /* of tools that are children */

static int other_tool(int progress, int orders)
{
	CUresult r;

	be_tool();
	report(progress);
	for (unsigned i = 0; i < STEPS; i++) {
		ordered(orders, true);
		r = steps[i].take(common_target);
		if (write(progress,
			    r == CUDA_SUCCESS		    ? "y"
			    : r == CUDA_ERROR_ILLEGAL_STATE ? "n"
							    : "?",
			    1) != 1)
			return 1;
	}
	return 0;
}

static char answer_of(const struct child *tool)
{
	char answer = '?';

	ck_assert_int_eq(read(tool->progress, &answer, 1), 1);
	return answer;
}

TEST(states, of_two_tools_one_takes_each_step)
{
	struct child child, tools[2];
	char answers[2];

	start();
	child = start_counter(1);
	common_target = child.pid;
	for (int i = 0; i < 2; i++)
		tools[i] = start_child(other_tool);
	be_tool();
	for (unsigned i = 0; i < STEPS; i++) {
		child_order(&tools[0]);
		child_order(&tools[1]);
		for (int tool = 0; tool < 2; tool++)
			answers[tool] = answer_of(&tools[tool]);
		ck_assert_msg(answers[0] + answers[1] == 'y' + 'n', "%c %c", answers[0], answers[1]);
		ck_assert_int_eq(state_of(child.pid), steps[i].to);
	}
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(child_end(&tools[i]), 0);
}

/* @_i: steps before the end */
TEST_LOOP(states, a_program_may_end_in_any_state, 1, 3)
{
	CUprocessState state;
	struct child child;
	CUresult r = CUDA_SUCCESS;

	start();
	child = start_counter(1);
	be_tool();
	for (int i = 0; i < _i; i++)
		take(&steps[i], child.pid);
	ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&child), 1000 + SIGKILL);
	for (int i = 0; i < 6000 && r == CUDA_SUCCESS; i++) {
		r = cuCheckpointProcessGetState(child.pid, &state);
		pass_time(10);
	}
	ck_assert_int_eq(r, CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(unlock(child.pid), CUDA_ERROR_INVALID_VALUE);
}

static int tool_that_leaves(int progress, int orders)
{
	be_tool();
	ck_cuda(lock(common_target));
	ck_cuda(checkpoint(common_target));
	report(progress);
	ordered(orders, true);
	return 0;
}

TEST(states, another_tool_goes_on_behind_one_that_died)
{
	struct child child, tool;

	start();
	child = start_counter(1);
	common_target = child.pid;
	tool = start_child(tool_that_leaves);
	ck_assert_int_eq(kill(tool.pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&tool), 1000 + SIGKILL);
	be_tool();
	ck_assert_int_eq(state_of(child.pid), CHECKPOINTED);
	ck_cuda(restore(child.pid));
	ck_cuda(unlock(child.pid));
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/*
 * The service
 */

static bool operate(const char *command, pid_t pid, char *ret_text, size_t size)
{
	bool now = strstr(command, " now");
	char number[24];
	const char *words[] = {number, "now"};
	const struct wire_names arguments = {words, now ? 2 : 1};

	snprintf(number, sizeof(number), "%lld", status_session(&service, pid));
	return !ask_with(
		service.socket, now ? "suspend" : command, &arguments, ASK_LONG, NULL, ret_text, size);
}

static void order(const char *command, pid_t pid)
{
	char text[400] = "";

	ck_assert_msg(operate(command, pid, text, sizeof(text)), "%s: %s", command, text);
}

TEST(service, operators_and_tools_mean_the_same_states)
{
	struct child child;

	start();
	child = start_counter(1);
	order("pause", child.pid);
	ck_assert_int_eq(state_of(child.pid), LOCKED);
	ck_assert_int_eq(lock(child.pid), CUDA_ERROR_ILLEGAL_STATE);
	order("suspend", child.pid);
	ck_assert_int_eq(state_of(child.pid), CHECKPOINTED);
	ck_assert_int_eq(unlock(child.pid), CUDA_ERROR_ILLEGAL_STATE);
	ck_cuda(restore(child.pid));
	ck_assert(status_is_in(&service, child.pid, "paused"));
	order("resume", child.pid);
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	order("suspend now", child.pid);
	ck_assert_int_eq(state_of(child.pid), CHECKPOINTED);
	order("resume", child.pid);
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	/* What comes back by itself runs. */
	order("suspend", child.pid);
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	ck_cuda(lock(child.pid));
	ck_assert_int_eq(state_of(child.pid), LOCKED);
	ck_cuda(checkpoint(child.pid));
	ck_assert(status_is_in(&service, child.pid, "suspended"));
	order("resume", child.pid);
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

static void *lock_for_ever(void *pid)
{
	return (void *)(intptr_t)lock_within(*(pid_t *)pid, 0);
}

static void await_paused(pid_t pid)
{
	for (int i = 0; i < 6000 && !status_is_in(&service, pid, "paused"); i++)
		pass_time(10);
	ck_assert(status_is_in(&service, pid, "paused"));
}

static void await_running(pid_t pid)
{
	for (int i = 0; i < 6000 && !status_is_in(&service, pid, "running"); i++)
		pass_time(10);
	ck_assert(status_is_in(&service, pid, "running"));
}

static CUresult end_of(pthread_t tool)
{
	void *r;

	ck_assert_int_eq(pthread_join(tool, &r), 0);
	return (CUresult)(intptr_t)r;
}

TEST(service, an_operator_overtakes_a_lock_that_waits)
{
	struct child child;
	pthread_t tool;

	start();
	child = start_spinner();
	ck_assert_int_eq(pthread_create(&tool, NULL, lock_for_ever, &child.pid), 0);
	await_paused(child.pid);
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	ck_assert_int_eq(lock_within(child.pid, IMPATIENT), CUDA_ERROR_ILLEGAL_STATE);
	order("pause", child.pid);
	ck_assert_int_eq(end_of(tool), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_int_eq(state_of(child.pid), LOCKED);
	order("resume", child.pid);
	ck_assert_int_eq(pthread_create(&tool, NULL, lock_for_ever, &child.pid), 0);
	await_paused(child.pid);
	order("resume", child.pid);
	ck_assert_int_eq(end_of(tool), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	child_order(&child);
	dismiss(&child);
}

static int tool_that_waits(int progress, int orders)
{
	(void)orders;
	report(progress);
	return lock_within(common_target, 0) ? 1 : 0;
}

TEST(service, a_lock_is_undone_if_its_tool_dies)
{
	struct child child, tool;

	start();
	child = start_spinner();
	common_target = child.pid;
	tool = start_child(tool_that_waits);
	await_paused(child.pid);
	ck_assert_int_eq(kill(tool.pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&tool), 1000 + SIGKILL);
	await_running(child.pid);
	ck_assert_int_eq(state_of(child.pid), RUNNING);
	child_order(&child);
	dismiss(&child);
}

TEST(service, a_lock_ends_with_its_program)
{
	struct child child;
	pthread_t tool;

	start();
	child = start_spinner();
	ck_assert_int_eq(pthread_create(&tool, NULL, lock_for_ever, &child.pid), 0);
	await_paused(child.pid);
	ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&child), 1000 + SIGKILL);
	ck_assert_int_eq(end_of(tool), CUDA_ERROR_INVALID_VALUE);
	wait_closed(&service);
}

TEST(service, a_restore_without_room_may_be_repeated)
{
	struct child child, other;
	pid_t taker_pid;

	setenv("FRMPS_HOST_MEMORY", "192M", 1);
	start();
	child = start_counter(1);
	ck_cuda(lock(child.pid));
	ck_cuda(checkpoint(child.pid));
	other = start_child(taker);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(restore(child.pid), CUDA_ERROR_OUT_OF_MEMORY);
		ck_assert_int_eq(state_of(child.pid), CHECKPOINTED);
	}
	taker_pid = other.pid;
	dismiss(&other);
	for (int i = 0; i < 6000 && status_session(&service, taker_pid); i++)
		pass_time(10);
	/* What has become free does not bring it back. */
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
	ck_assert(status_is_in(&service, child.pid, "suspended"));
	ck_assert_int_eq(state_of(child.pid), CHECKPOINTED);
	ck_cuda(restore(child.pid));
	ck_cuda(unlock(child.pid));
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(service, what_cannot_be_saved_stays_locked)
{
	struct child child;

	start();
	child = start_child(artist);
	ck_cuda(lock(child.pid));
	ck_assert_int_eq(checkpoint(child.pid), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(state_of(child.pid), LOCKED);
	ck_cuda(unlock(child.pid));
	dismiss(&child);
}

TEST(service, a_program_without_memory_has_the_same_states)
{
	struct child child;

	start();
	child = start_child(pauper);
	for (unsigned i = 0; i < STEPS; i++)
		take(&steps[i], child.pid);
	dismiss(&child);
}

TEST(service, a_program_with_an_error_has_failed)
{
	struct child child;

	start();
	child = start_child(trapped);
	ck_assert_int_eq(state_of(child.pid), FAILED);
	for (unsigned i = 0; i < STEPS; i++)
		ck_assert_int_eq(steps[i].take(child.pid), CUDA_ERROR_ILLEGAL_STATE);
	dismiss(&child);
}

TEST(service, without_a_service_there_is_no_program)
{
	CUprocessState state;

	setenv("FRMPS_SOCKET", "/nonexistent/socket", 1);
	ck_assert_int_eq(cuCheckpointProcessGetState(getpid(), &state), CUDA_ERROR_MPS_CONNECTION_FAILED);
	ck_assert_int_eq(lock(getpid()), CUDA_ERROR_MPS_CONNECTION_FAILED);
}

static void kill_daemon(int times)
{
	ck_assert_int_eq(kill(status_daemon(&service), SIGKILL), 0);
	ck_assert(service_log_wait(&service, "the daemon is back", times, 60));
}

TEST(service, states_outlive_daemons_and_executors)
{
	struct child child;

	start();
	child = start_counter(2);
	status_await_executors(&service);
	for (unsigned i = 0; i < STEPS; i++) {
		kill_daemon(2 * (int)i + 1);
		take(&steps[i], child.pid);
		kill_daemon(2 * (int)i + 2);
		ck_assert_int_eq(state_of(child.pid), steps[i].to);
		status_replace_active(&service, (int)i + 1);
		ck_assert_int_eq(state_of(child.pid), steps[i].to);
		status_await_executors(&service);
	}
	see_it_work(&child);
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/* What dies in the middle of a step leaves the program in the state before the step, or behind it.
 * Return: the state */
/* Others that share its memory wait for it, and are in no other state. */
TEST(service, who_shares_with_a_checkpointed_program_waits)
{
	struct family family;

	start();
	family = family_begin_busy();
	be_tool();
	for (int i = 0; i < 2; i++) {
		const struct child *one = &family.members[i], *other = &family.members[!i];

		take(&steps[0], one->pid);
		take(&steps[1], one->pid);
		ck_assert_int_eq(state_of(other->pid), RUNNING);
		child_drain(other);
		pass_time(200);
		ck_assert(child_stands_still(other));
		take(&steps[2], one->pid);
		/* Only the second one waits for events of the other. */
		if (one == &family.members[1])
			child_wait(other, 1);
		take(&steps[3], one->pid);
		child_wait(one, 1);
		child_wait(other, 1);
	}
	family_end(&family);
}

static int state_behind(pid_t pid, const struct step *step, CUresult r)
{
	int state = state_of(pid);

	if (r == CUDA_SUCCESS) {
		ck_assert_int_eq(state, step->to);
	} else {
		ck_assert(r == CUDA_ERROR_MPS_RPC_FAILURE || r == CUDA_ERROR_NOT_READY);
		ck_assert(state == step->from || state == step->to);
	}
	return state;
}

static const struct step *step_from(int state, bool goes_on)
{
	for (unsigned i = 0; i < STEPS; i++)
		if (steps[i].from == state && (state != LOCKED || (steps[i].take == checkpoint) == goes_on))
			return &steps[i];
	return NULL;
}

static pid_t victim_of(int round)
{
	switch (round % 4) {
	case 0:
		return status_keeper(&service);
	case 1:
		return status_active(&service);
	default:
		return status_daemon(&service);
	}
}

/* Until the service is whole again. */
static void await_service(int round)
{
	static int daemons;

	daemons += round % 4 >= 2;
	ck_assert(service_log_wait(&service, "the daemon is back", daemons, 60));
	status_await_executors(&service);
	status_keeper(&service);
}

struct killer {
	pid_t victim;
	int us;
};

static void *kill_later(void *context)
{
	const struct killer *killer = context;

	usleep((useconds_t)killer->us);
	kill(killer->victim, SIGKILL);
	return NULL;
}

TEST(service, whatever_dies_in_the_middle_of_a_step)
{
	const int kills = 32;
	struct child child;
	int state = RUNNING;
	bool goes_on = true;

	start();
	child = start_counter(1);
	status_await_executors(&service);
	for (int i = 0; i < kills; i++) {
		const struct step *step = step_from(state, goes_on);
		struct killer killer = {victim_of(i), i * 7 % kills * 1000};
		pthread_t thread;
		CUresult r;

		ck_assert_int_eq(pthread_create(&thread, NULL, kill_later, &killer), 0);
		r = step->take(child.pid);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		await_service(i);
		state = state_behind(child.pid, step, r);
		goes_on = state == RUNNING || (state == LOCKED && step->from == RUNNING) ||
			  (goes_on && state == step->from);
	}
	while (state != RUNNING) {
		const struct step *step = step_from(state, false);

		take(step, child.pid);
		state = step->to;
	}
	see_it_work(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

int main(void)
{
	Suite *suite = suite_create("checkpoint");
	TCase *states = tcase_create("states"), *others;

	tcase_set_timeout(states, 600);
	tcase_add_checked_fixture(states, NULL, own_service_stop);
	suite_add(states, "states");
	suite_add_tcase(suite, states);
	if (is_native())
		return suite_run(suite);
	others = tcase_create("service");
	tcase_set_timeout(others, 600);
	tcase_add_checked_fixture(others, NULL, own_service_stop);
	suite_add(others, "service");
	suite_add_tcase(suite, others);
	return suite_run(suite);
}
