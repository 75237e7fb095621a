// Children that hang: how long they are waited for, and what becomes of them. The test is keeper,
// executors and programs, and looks as often as it likes.

#include "server/fault/overdue.h"

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/control/status.h"
#include "server/fault/promote.h"
#include "server/loop/timer.h"
#include "server/loop/turn_end.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/vitals.h"
#include "tests/unit/server/session/fixture.h"

static void look(unsigned times)
{
	while (times--)
		overdue_look(&fake->daemon.crew);
	turn_end_now(fake->daemon.turn_end);
}

/*
 * Executors
 */

TEST(executors, standby_that_hangs_is_replaced)
{
	boot();
	/* Nothing is expected of it. */
	look(OVERDUE_LOOKS + 1);
	standby->seen = true;
	fake_join(fake, &client, active, NULL);
	look(OVERDUE_LOOKS - 1);
	ck_assert(!standby->killed);
	/* It is only slow. */
	fake_serve(fake, standby, WIRE_OPEN_SESSION);
	fake_leave(fake, &client);
	fake_serve(fake, active, WIRE_CLOSE_SESSION);
	look(OVERDUE_LOOKS - 1);
	ck_assert(!standby->killed);
	look(1);
	ck_assert(standby->killed);
	ck_assert(!active->killed);
	fake_reap(fake, standby, SIGKILL);
	ck_assert_uint_eq(fake->child_count, 4);
	/* The same at its start. */
	look(OVERDUE_LOOKS - 1);
	ck_assert(!fake->children[3].killed);
	look(1);
	ck_assert(fake->children[3].killed);
	end();
}

TEST(executors, executor_that_hangs_while_it_takes_over_is_replaced)
{
	boot();
	fake_reap(fake, active, SIGKILL);
	ck_assert(incident_is_activating(fake_domain(fake)->promotion.state));
	look(OVERDUE_LOOKS_ACTIVATING - 1);
	ck_assert(!standby->killed);
	look(1);
	ck_assert(standby->killed);
	fake_turn(fake);
	ck_assert_int_eq(fake_domain(fake)->promotion.state, INCIDENT_FENCING);
	end();
}

/* It may wait for a kernel that runs for hours, as long as it says that it lives. */
TEST(executors, executor_that_serves_and_does_not_answer_is_replaced)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	join();
	look(OVERDUE_LOOKS + 1);
	ck_assert(!active->killed);
	fake_request(fake, &client, &query, -1);
	fake_expect(fake, active->socket, WIRE_QUERY_MEMORY);
	for (unsigned i = 0; i < 3 * OVERDUE_LOOKS; i++) {
		look(1);
		fake_serve(fake, active, WIRE_PING);
	}
	ck_assert(!active->killed);
	look(OVERDUE_LOOKS - 1);
	fake_expect(fake, active->socket, WIRE_PING);
	fake_expect_nothing(fake, active->socket);
	ck_assert(!active->killed);
	look(1);
	ck_assert(active->killed);
	fake_reap(fake, active, SIGKILL);
	fake_take_all_over(fake, standby);
	fake_serve(fake, standby, WIRE_QUERY_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	part();
}

/* A client that nobody serves: the standby has not answered, and the third executor is starting. */
static struct fake_child *lose_active(void)
{
	boot();
	fake_join(fake, &client, active, NULL);
	fake_reap(fake, active, SIGKILL);
	ck_assert(incident_is_waiting(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(fake->child_count, 4);
	return &fake->children[3];
}

TEST(executors, executors_that_everybody_waits_for_are_replaced_where_they_stand_still)
{
	struct fake_child *third = lose_active();

	standby->seen = third->seen = true;
	look(OVERDUE_LOOKS_STILL);
	ck_assert(!standby->killed && !third->killed);
	/* What does not compute is not hung as long as it answers. */
	fake_serve(fake, standby, WIRE_OPEN_SESSION);
	fake_expect(fake, standby->socket, WIRE_ACTIVATE);
	look(1);
	ck_assert(!standby->killed && !third->killed);
	fake_reap(fake, standby, SIGKILL);
	ck_assert(incident_is_waiting(fake_domain(fake)->promotion.state));
	look(OVERDUE_LOOKS_STILL);
	ck_assert(!third->killed);
	look(1);
	ck_assert(third->killed);
	fake_reap(fake, third, SIGKILL);
	timer_start(fake_domain(fake)->respawn, 0);
	FAKE_RUN_WHILE(fake, fake->child_count == 4);
	fake_warm_with(fake, &fake->children[4], 1);
	fake_serve(fake, &fake->children[4], WIRE_ACTIVATE);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), fake->children[4].worker);
	part();
}

TEST(executors, executor_that_computes_is_waited_for)
{
	struct fake_child *third = lose_active();

	standby->seen = third->seen = true;
	for (unsigned i = 1; i < OVERDUE_LOOKS; i++) {
		standby->vitals.processor_ms += OVERDUE_PROCESSOR_MS;
		third->vitals.processor_ms += OVERDUE_PROCESSOR_MS;
		look(1);
	}
	ck_assert(!standby->killed && !third->killed);
	look(1);
	ck_assert(standby->killed && third->killed);
	part();
}

TEST(executors, executor_that_may_be_next_in_the_driver_is_waited_for)
{
	struct fake_child *third = lose_active();

	standby->seen = true;
	look(OVERDUE_LOOKS_STILL);
	fake_ready(fake, third);
	look(OVERDUE_LOOKS_STILL);
	ck_assert(!standby->killed);
	look(1);
	ck_assert(standby->killed);
	part();
}

TEST(executors, executors_of_others_excuse_one_that_hangs_a_few_times_only)
{
	lose_active();
	standby->seen = true;
	for (unsigned i = 0; i < OVERDUE_EXCUSES_MAX; i++) {
		look(OVERDUE_LOOKS_STILL);
		ck_assert(!standby->killed);
		overdue_came_up(&fake->daemon.crew);
	}
	look(OVERDUE_LOOKS_STILL);
	ck_assert(!standby->killed);
	overdue_came_up(&fake->daemon.crew);
	look(1);
	ck_assert(standby->killed);
	part();
}

/* Kernels of the former executor may be in the way until it is gone. */
TEST(executors, executor_that_may_have_to_wait_is_waited_for)
{
	struct wire_message sign = {.type = WIRE_SUSPECT, .trouble = {.text = "a sign"}};

	boot();
	fake_join(fake, &client, active, NULL);
	standby->seen = true;
	fake_send(fake, active->socket, &sign, NULL, 0);
	fake_serve(fake, active, WIRE_HALT);
	FAKE_RUN_WHILE(fake, !active->killed);
	ck_assert(incident_is_waiting(fake_domain(fake)->promotion.state));
	look(OVERDUE_LOOKS / 2);
	ck_assert(!standby->killed);
	fake_reap(fake, active, SIGKILL);
	look(OVERDUE_LOOKS_STILL);
	ck_assert(!standby->killed);
	look(1);
	ck_assert(standby->killed);
	part();
}

/* The device itself may not be up. */
TEST(executors, first_executors_are_waited_for)
{
	fake = fake_new(1);
	fake->children[1].seen = fake->children[2].seen = true;
	fake_hello(fake, &client);
	look(OVERDUE_LOOKS - 1);
	ck_assert(!fake->children[1].killed && !fake->children[2].killed);
	fake_leave(fake, &client);
	end();
}

/*
 * The keeper
 */

static void ask_for_memory(struct fake_client *who)
{
	struct wire_message map = {
		.type = WIRE_MAP_MEMORY, .range = {.address = who->window_base, .bytes = 2 * MIB}};

	fake_request(fake, who, &map, -1);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
}

/* What the keeper was asked for last. */
static void get_memory(struct fake_client *who)
{
	struct wire_message chunk = {.type = WIRE_REPLY, .id = fake->message.id};
	const uint64_t handle = 77;
	int fd = fake_memfd(4096, 0);

	chunk.reply.values = (struct wire_u64s){&handle, 1};
	fake_send(fake, keeper->socket, &chunk, &fd, 1);
	close(fd);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	fake_serve(fake, standby, WIRE_MAP_MEMORY);
	fake_expect(fake, who->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

/* What an operator is told. */
static long long overdue_seconds(void)
{
	char *text = status_json(&fake->daemon, 0);
	json_t *root = json_loads(text, 0, NULL);
	long long seconds =
		json_integer_value(json_object_get(json_object_get(root, "keeper"), "overdue_seconds"));

	json_decref(root);
	free(text);
	return seconds;
}

/* With memory of a program as without. */
TEST_LOOP(keeper, keeper_that_hangs_is_replaced, 0, 2)
{
	struct fake_client other;

	join();
	fake_join(fake, &other, active, standby);
	if (_i) {
		ask_for_memory(&client);
		get_memory(&client);
	}
	/* Nothing is expected of it. */
	look(OVERDUE_LOOKS_KEEPER);
	ck_assert_int_eq(overdue_seconds(), 0);
	ask_for_memory(&other);
	look(OVERDUE_LOOKS_KEEPER - 1);
	ck_assert_int_eq(overdue_seconds(), (OVERDUE_LOOKS_KEEPER - 1) * WORKER_LOOK_MS / 1000);
	ck_assert(!keeper->killed);
	look(1);
	ck_assert(keeper->killed);
	fake_reap(fake, keeper, SIGKILL);
	ck_assert_int_eq(fake->children[3].role, ROLE_KEEPER);
	keeper = &fake->children[3];
	fake_ready(fake, keeper);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	get_memory(&other);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert_int_eq(overdue_seconds(), 0);
	fake_leave(fake, &other);
	part();
}

TEST(keeper, keeper_that_answers_again_goes_on)
{
	join();
	ask_for_memory(&client);
	look(OVERDUE_LOOKS_KEEPER - 1);
	ck_assert_int_ne(overdue_seconds(), 0);
	get_memory(&client);
	ck_assert_int_eq(overdue_seconds(), 0);
	look(1);
	ck_assert(!keeper->killed);
	part();
}

TEST(keeper, keeper_that_hangs_at_its_start_is_replaced)
{
	join();
	fake_reap(fake, keeper, SIGKILL);
	keeper = &fake->children[3];
	look(OVERDUE_LOOKS - 1);
	ck_assert(!keeper->killed);
	ck_assert_int_eq(overdue_seconds(), 0);
	look(1);
	ck_assert(keeper->killed);
	fake_reap(fake, keeper, SIGKILL);
	ck_assert(timer_running(fake->daemon.keeper_timer));
	part();
}

/*
 * Vitals
 */

TEST(vitals, process_that_computes_is_seen_to)
{
	struct vitals before, now;

	ck_assert(vitals_read(getpid(), &before));
	do
		ck_assert(vitals_read(getpid(), &now));
	while (now.processor_ms < before.processor_ms + 20);
}

/* Says that it runs, and ends the process when the other end is closed. */
static void *outlive_the_first(void *descriptor)
{
	int end = *(int *)descriptor;
	char byte = 0;

	if (write(end, &byte, 1) != 1 || read(end, &byte, 1) != 0)
		_exit(1);
	_exit(0);
}

/* Its first thread has ended, and another one has not. Then that one ends as well. */
TEST(vitals, process_is_ending_when_all_its_threads_are)
{
	struct vitals vitals = {.is_ending = true};
	static int ends[2]; /* the first thread's stack is gone before they are read */
	pthread_t thread;
	pid_t child;
	int status;
	char byte;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	child = fork();
	if (!child) {
		close(ends[1]);
		if (pthread_create(&thread, NULL, outlive_the_first, &ends[0]))
			_exit(1);
		pthread_exit(NULL);
	}
	close(ends[0]);
	ck_assert_int_eq(read(ends[1], &byte, 1), 1);
	ck_assert(vitals_read(child, &vitals) && !vitals.is_ending);
	close(ends[1]);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	ck_assert(vitals_read(child, &vitals) && vitals.is_ending);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

TEST(vitals, process_that_is_gone_is_not_seen)
{
	struct vitals vitals;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert(!vitals_read(pid, &vitals));
}

int main(void)
{
	Suite *suite = suite_create("overdue");
	TCase *executors = suite_case(suite, "executors"), *keepers = suite_case(suite, "keeper"),
	      *processes = suite_case(suite, "vitals");

	fake_prepare();
	suite_add(executors, "executors");
	suite_add(keepers, "keeper");
	suite_add(processes, "vitals");
	return suite_run(suite);
}
