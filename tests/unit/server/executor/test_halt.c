// Halt: nothing is issued any more, what was issued is marked, and the daemon hears of both. What
// the module thread is at is said if it takes long.

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/clock.h"
#include "server/executor/halt.h"
#include "server/executor/lost.h"
#include "server/executor/park.h"
#include "server/executor/retire.h"
#include "server/log.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fixture.h"

static struct serve_thread thread;

static void open_thread(void)
{
	fixture_open_default();
	thread = (struct serve_thread){.executor = &fixture.executor};
	TAILQ_INIT(&thread.tenants);
	TAILQ_INSERT_TAIL(&thread.tenants, fixture.tenant, served_link);
	fixture.executor.pool = (struct serve_pool){.threads = &thread, .count = 1};
}

static void close_thread(void)
{
	fixture.executor.pool = (struct serve_pool){0};
	fixture_close();
}

static void order(bool fence)
{
	struct job *job = job_new(&fixture.executor);

	job->message = (struct wire_message){.type = WIRE_HALT, .id = 9, .halt.fence = fence};
	ck_assert_int_eq(executor_handle(&fixture.executor, job), 0);
}

static void order_halt(void)
{
	order(false);
}

static void step(void)
{
	job_board_step(&fixture.executor.board, clock_now());
}

/* Return: whether a message of that type was there. */
static bool heard(enum wire_type type)
{
	static struct packet packet;
	struct wire_message message;

	if (packet_receive(fixture.control[1], &packet))
		return false;
	ck_assert_int_eq(wire_decode(packet.bytes, packet.length, &message), 0);
	ck_assert_int_eq(message.type, type);
	ck_assert_uint_eq(message.id, type == WIRE_REPLY ? 9 : 0);
	return true;
}

TEST(halt, nothing_is_issued_and_everything_is_marked)
{
	fixture_launch(3, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
	order_halt();
	step();
	ck_assert(!heard(WIRE_REPLY));
	fixture_launch(3, 0, 2);
	fixture_turn();
	halt_look(&thread);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	ck_assert_uint_eq(fake_call(FAKE_MARK, 0)->value, 1);
	step();
	ck_assert(heard(WIRE_REPLY));
	/* For good. */
	fixture_pass(1000000);
	halt_look(&thread);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	ck_assert_uint_eq(word_acquire(&fixture.client.states[3].issued), 1);
}

static word32 is_in_driver;
static int driver[2];

/* In a call that does not come back. */
static void *stay_in_the_driver(void *unused)
{
	char byte;

	park_enter(&thread);
	word_release(&is_in_driver, 1);
	if (read(driver[0], &byte, 1) == 1)
		word_release(&is_in_driver, 0);
	return unused;
}

TEST(halt, a_fence_does_not_wait_for_who_is_in_the_driver)
{
	uint64_t begin;

	ck_assert_int_eq(pipe(driver), 0);
	ck_assert_int_eq(pthread_create(&thread.thread, NULL, stay_in_the_driver, NULL), 0);
	while (!word_acquire(&is_in_driver))
		sched_yield();
	/* Whoever only halts waits, however long. */
	order_halt();
	for (begin = clock_now(); clock_now() - begin < 50 * CLOCK_MS;)
		step();
	ck_assert(!heard(WIRE_REPLY));
	ck_assert(!word_acquire(&thread.parked));
	order(true);
	while (!fake_count(FAKE_FENCE))
		step();
	ck_assert(heard(WIRE_REPLY));
	/* It is back, and does nothing. */
	ck_assert_int_eq(write(driver[1], "x", 1), 1);
	for (begin = clock_now(); clock_now() - begin < 50 * CLOCK_MS;)
		sched_yield();
	ck_assert(word_acquire(&is_in_driver));
}

TEST(halt, a_lost_context_gets_no_marks_and_is_halted_all_the_same)
{
	fixture_launch(3, 0, 1);
	fixture_turn();
	lost_report(&fixture.executor, CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert(heard(WIRE_LOST));
	order_halt();
	halt_look(&thread);
	step();
	ck_assert(heard(WIRE_REPLY));
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
}

TEST(halt, a_halted_executor_finds_out_that_its_context_is_lost)
{
	fixture_launch(3, 0, 1);
	fixture_turn();
	order_halt();
	halt_look(&thread);
	step();
	ck_assert(heard(WIRE_REPLY));
	fake.query = CUDA_ERROR_LAUNCH_FAILED;
	step();
	ck_assert(heard(WIRE_LOST));
	ck_assert_uint_eq(word_acquire(&fixture.executor.lost), CUDA_ERROR_LAUNCH_FAILED);
}

/* Otherwise a busy program would always have a command in doubt. */
TEST(halt, a_command_that_a_lost_context_refuses_was_not_issued)
{
	fixture_launch(3, 0, 1);
	fixture_turn();
	fake.fails[FAKE_LAUNCH] = CUDA_ERROR_LAUNCH_FAILED;
	fixture_launch(3, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&fixture.client.states[3].issued), 1);
	ck_assert(heard(WIRE_LOST));
}

TEST(halt, who_ran_beside_a_fault_that_is_not_explained_is_told_whatever_its_policy)
{
	fixture.tenant->replays = true;
	ck_assert_int_eq(fixture_take_over(TAKEOVER_UNSURE), TAKEOVER_FAULTED);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture.client.server->reason, "cannot be believed"));
}

/* ---- the module thread ---- */

#define LATER (UINT64_C(5000) * CLOCK_MS)

static int log_ends[2];
static _Atomic bool begun, may_end;

static void open_log(void)
{
	open_thread();
	begun = may_end = false;
	ck_assert_int_eq(pipe2(log_ends, O_CLOEXEC | O_NONBLOCK), 0);
	log_init(LOG_LEVEL_INFO, "frmps");
	log_set_descriptor(log_ends[1]);
}

static void close_log(void)
{
	log_set_descriptor(STDERR_FILENO);
	close(log_ends[0]);
	close(log_ends[1]);
	close_thread();
}

static const char *logged(void)
{
	static char text[8192];
	ssize_t length = read(log_ends[0], text, sizeof(text) - 1);

	text[length < 0 ? 0 : length] = '\0';
	return text;
}

static void expect_logged(const char *what)
{
	const char *text = logged();

	ck_assert_msg(strstr(text, what) != NULL, "'%s' is not in '%s'", what, text);
}

static void take_long(struct job *job)
{
	begun = true;
	while (!may_end)
		sched_yield();
	job_free(job);
}

static void want_gap(struct job *job)
{
	gate_enter(job->executor, NULL, clock_now());
	job_free(job);
}

static void begin_job(enum wire_type type, void (*run)(struct job *job))
{
	struct job *job = job_new(&fixture.executor);

	ck_assert_int_eq(module_worker_init(&fixture.executor), 0);
	job->message.type = type;
	job->tenant = tenant_ref(fixture.tenant);
	module_worker_queue(job, run);
}

TEST(modules, what_the_module_thread_is_at_for_long_is_said)
{
	begin_job(WIRE_FIND_FUNCTION, take_long);
	while (!begun)
		sched_yield();
	module_worker_tell(&fixture.executor, clock_now());
	ck_assert_str_eq(logged(), "");
	module_worker_tell(&fixture.executor, clock_now() + LATER);
	expect_logged("the module thread has been at FindFunction, session 77, for 5");
	ck_assert_uint_eq(fake_count(FAKE_THREAD_SHOW), 1);
	may_end = true;
	/* It looks at what was left behind before it rests; then there is nothing to say any
	 * more. */
	do
		module_worker_tell(&fixture.executor, clock_now() + LATER);
	while (*logged());
	module_worker_deinit(&fixture.executor);
}

/* Where a serving thread does not look at it. */
TEST(modules, that_the_module_thread_waits_at_the_gate_is_said)
{
	gate_init(&fixture.executor);
	begin_job(WIRE_HALT, want_gap);
	while (!gate_is_shut(&fixture.executor.gate))
		sched_yield();
	module_worker_tell(&fixture.executor, clock_now() + LATER);
	expect_logged("; the gate is shallow, where it has waited for 5");
	word_release(&thread.resting, 1);
	module_worker_deinit(&fixture.executor);
}

TEST(modules, work_that_nobody_begins_is_told_of)
{
	struct module_worker *worker = &fixture.executor.modules;
	struct job job = {.since = clock_now()};

	TAILQ_INIT(&worker->queue.jobs);
	worker->thread = pthread_self();
	worker->started = true;
	module_worker_tell(&fixture.executor, clock_now() + LATER);
	ck_assert_str_eq(logged(), "");
	TAILQ_INSERT_TAIL(&worker->queue.jobs, &job, link);
	module_worker_tell(&fixture.executor, clock_now());
	ck_assert_str_eq(logged(), "");
	module_worker_tell(&fixture.executor, clock_now() + LATER);
	expect_logged("the module thread is at nothing, and work has waited for it for 5");
	ck_assert_uint_eq(fake_count(FAKE_THREAD_SHOW), 1);
}

TEST(modules, whoever_has_to_be_halted_hard_says_what_its_module_thread_is_at)
{
	struct module_worker *worker = &fixture.executor.modules;

	TAILQ_INIT(&worker->queue.jobs);
	worker->thread = pthread_self();
	worker->started = true;
	worker->work.what = "a test";
	word_set(&worker->work.since, clock_now() - LATER);
	order_halt();
	expect_logged("the module thread has been at a test, session 0, for 5");
	halt_look(&thread);
	step();
	ck_assert(heard(WIRE_REPLY));
}

int main(void)
{
	Suite *suite = suite_create("halt");
	TCase *modules = tcase_create("modules");
	TCase *tests = tcase_create("halt");

	tcase_add_checked_fixture(tests, open_thread, close_thread);
	suite_add(tests, "halt");
	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(modules, open_log, close_log);
	suite_add(modules, "modules");
	suite_add_tcase(suite, modules);
	return suite_run(suite);
}
