// Moves of one session into a domain of its own, and what may happen in the middle of them. The
// test is keeper, executors and clients.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/sink_make.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/session/window.h"
#include "server/standby/move.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* How far a move is. */
enum { STARTING, TELLING, LETTING_GO, STAGES };

static struct fake *fake;
static struct fake_child *first, *second, *third;
static struct fake_client other, newcomer;
static struct session *session;
static struct domain *crowd;
static uint64_t asked, window;
static bool over;
static int32_t over_code;

static void load_module(void)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = 64}};
	const uint64_t stateful = 0;
	int fd = fake_memfd(64, SEALS);

	fake_request(fake, &newcomer, &load, fd);
	close(fd);
	fake_expect(fake, first->socket, WIRE_LOAD_MODULE);
	fake_reply(fake, first->socket, fake->message.id, 0, &stateful, 1);
	fake_expect(fake, newcomer.socket, WIRE_REPLY);
	fake_serve(fake, second, WIRE_LOAD_MODULE);
}

static void boot(void)
{
	fake = fake_new(1);
	fake_boot(fake);
	first = &fake->children[1];
	second = &fake->children[2];
	third = &fake->children[3];
	fake_join(fake, &other, first, second);
	fake_join(fake, &newcomer, first, second);
	crowd = TAILQ_FIRST(&fake->daemon.domains);
	session = TAILQ_NEXT(TAILQ_FIRST(&crowd->sessions), domain_link);
	window = session->window;
	load_module();
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	fake_leave(fake, &other);
	fake_leave(fake, &newcomer);
	fake_free(fake);
}

static void ask_for_function(void)
{
	struct wire_message find = {
		.type = WIRE_FIND_FUNCTION, .symbol = {.module = 1, .function = 7, .name = "k"}};

	asked = fake_request(fake, &newcomer, &find, -1);
}

static void order_move(void)
{
	ck_assert_ptr_null(move_begin(session, MOVE_ORDER, "the test wants it", 60000, NULL, NULL));
}

static void answer_let_go(struct fake_child *child, uint64_t gone)
{
	fake_expect(fake, child->socket, WIRE_DETACH_SESSION);
	ck_assert_uint_eq(fake->message.session, session->number);
	fake_reply(fake, child->socket, fake->message.id, 0, &gone, 1);
}

static void tell(struct fake_child *child)
{
	fake_serve(fake, child, WIRE_OPEN_SESSION);
	fake_serve(fake, child, WIRE_LOAD_MODULE);
}

/* On the way, as far as it shall be. */
static void begin(int stage)
{
	boot();
	order_move();
	ck_assert_uint_eq(fake->child_count, 4);
	ck_assert_ptr_nonnull(session->move);
	ck_assert_ptr_eq(third->worker->domain->arrival, session->move);
	if (stage == STARTING)
		return;
	fake_warm(fake, third);
	fake_serve(fake, third, WIRE_ACTIVATE);
	if (stage == TELLING)
		return;
	tell(third);
}

static void expect_answer(struct fake_child *child)
{
	fake_expect(fake, child->socket, WIRE_FIND_FUNCTION);
	ck_assert_uint_eq(fake->message.session, session->number);
	fake_reply(fake, child->socket, fake->message.id, 0, (uint64_t[17]){0}, 17);
	fake_expect(fake, newcomer.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.id, asked);
	ck_assert_int_eq(fake->message.reply.code, CUDA_SUCCESS);
}

/* It is served there. */
static void expect_found(struct fake_child *child)
{
	ask_for_function();
	expect_answer(child);
}

/* Its executor serves it from now on. */
static void expect_attached(struct fake_child *child)
{
	fake_expect(fake, child->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(fake->message.activate.sessions.at[0], session->number);
	ck_assert_uint_eq(fake->message.activate.generation, child->worker->generation);
	/* Its generations only grow. */
	ck_assert_uint_gt(child->worker->generation, first->worker->generation);
	fake_reply(fake, child->socket, fake->message.id, 0, (uint64_t[]){0}, 1);
}

static void close_in_crowd(void)
{
	ck_assert_uint_ge(window_users(&crowd->windows, window), 1);
	fake_serve(fake, first, WIRE_CLOSE_SESSION);
	ck_assert_uint_ge(window_users(&crowd->windows, window), 1);
	fake_serve(fake, second, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(window_users(&crowd->windows, window), 0);
}

/* Its main thread is in the driver for good. That is a sign of trouble, and nobody's fault. */
TEST_LOOP(move, an_executor_that_does_not_say_whether_it_let_go_is_replaced, 0, 2)
{
	struct shm_view *view;

	begin(LETTING_GO);
	fake_expect(fake, first->socket, WIRE_DETACH_SESSION);
	view = &TAILQ_FIRST(&crowd->sessions)->view;
	word_set(&view->server->active, timer_now_us() * 1000);
	fake_issue(view, 5);
	FAKE_SKIP_WHILE(fake, session->move);
	ck_assert(third->killed);
	/* It was silent for so long that it was asked whether it lives. */
	fake_expect(fake, first->socket, WIRE_PING);
	fake_expect(fake, first->socket, WIRE_HALT);
	FAKE_RUN_WHILE(fake, !first->killed);
	fake_reap(fake, first, SIGKILL);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 2);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){0, 0}, 2);
	expect_found(second);
	fake_reap(fake, third, SIGKILL);
	end();
}

TEST(move, a_newcomer_moves)
{
	begin(LETTING_GO);
	ck_assert_str_eq(third->worker->domain->reason, "the test wants it");
	ask_for_function();
	fake_expect_nothing(fake, newcomer.socket);
	answer_let_go(first, 1);
	ck_assert_ptr_eq(session->domain, third->worker->domain);
	ck_assert(domain_is_alone(session->domain));
	expect_attached(third);
	expect_answer(third);
	close_in_crowd();
	ck_assert_uint_eq(window_users(&session->domain->windows, window), 1);
	ck_assert_uint_eq(fake->daemon.counters.sessions_moved, 1);
	/* Nobody else heard of anything. */
	ck_assert_ptr_eq(domain_serving(crowd), first->worker);
	fake_expect_nothing(fake, other.socket);
	fake_expect_nothing(fake, first->socket);
	fake_expect_nothing(fake, second->socket);
	end();
}

static uint64_t reserve_window(void)
{
	const uint64_t all_free[] = {~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)};
	struct wire_message reserve = {.type = WIRE_RESERVE_WINDOW,
		.window = {.bytes = UINT64_C(160) << 30, .free_windows = {all_free, 3}}};
	struct fake_child *both[] = {first, second};
	uint64_t at[2];

	fake_request(fake, &newcomer, &reserve, -1);
	for (int i = 0; i < 2; i++) {
		fake_expect(fake, both[i]->socket, WIRE_RESERVE_WINDOW);
		at[0] = fake->message.window.address;
		at[1] = fake->message.window.bytes;
		fake_reply(fake, both[i]->socket, fake->message.id, 0, at, 2);
	}
	fake_expect(fake, newcomer.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	return at[0];
}

/* Also over the end of a daemon. */
TEST(another_life, all_its_windows_are_held_where_it_was)
{
	enum { MANY = 20 };
	uint64_t at[MANY];

	fake_with_records = true;
	boot();
	for (int i = 0; i < MANY; i++)
		at[i] = reserve_window();
	order_move();
	fake_warm(fake, third);
	fake_serve(fake, third, WIRE_ACTIVATE);
	tell(third);
	for (int i = 0; i < MANY; i++) {
		fake_expect(fake, third->socket, WIRE_RESERVE_WINDOW);
		ck_assert_uint_eq(fake->message.window.address, at[i]);
		fake_reply(fake, third->socket, fake->message.id, 0, NULL, 0);
	}
	answer_let_go(first, 1);
	expect_attached(third);
	ck_assert_int_eq(fake_come_back(fake), 0);
	session = daemon_find_session(&fake->daemon, fake->daemon.next_session);
	crowd = TAILQ_FIRST(&fake->daemon.domains);
	ck_assert_ptr_ne(session->domain, crowd);
	for (int i = 0; i < MANY; i++) {
		ck_assert_uint_eq(window_users(&crowd->windows, at[i]), 2);
		ck_assert_uint_eq(window_users(&session->domain->windows, at[i]), 1);
	}
	close_in_crowd();
	for (int i = 0; i < MANY; i++)
		ck_assert_uint_eq(window_users(&crowd->windows, at[i]), 0);
	ck_assert_uint_eq(session->domain->windows.count, 1 + MANY);
	end();
}

TEST(move, pinned_memory_holds_the_window_longer)
{
	begin(LETTING_GO);
	answer_let_go(first, 1);
	expect_attached(third);
	expect_found(third);
	fake_serve(fake, second, WIRE_CLOSE_SESSION);
	fake_expect(fake, first->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, first->socket, fake->message.id, 0, (uint64_t[]){1, 4096}, 2);
	ck_assert_uint_eq(window_users(&crowd->windows, window), 1);
	fake_serve(fake, first, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(window_users(&crowd->windows, window), 0);
	end();
}

TEST(move, one_whose_own_work_does_not_end_stays)
{
	begin(LETTING_GO);
	answer_let_go(first, 0);
	ck_assert_ptr_eq(session->domain, crowd);
	ck_assert(third->killed);
	expect_found(first);
	fake_reap(fake, third, SIGKILL);
	ck_assert_ptr_null(TAILQ_NEXT(crowd, link));
	end();
}

/* Each try would cost an executor: there is none before what was in the way has ended. */
TEST(move, own_work_must_end_before_it_is_moved_again)
{
	begin(LETTING_GO);
	fake_issue(&session->view, 5);
	answer_let_go(first, 0);
	for (int i = 0; i < 3; i++)
		ck_assert_ptr_nonnull(
			strstr(move_begin(session, MOVE_LIMIT, "why", 60000, NULL, NULL), "own work"));
	ck_assert_uint_eq(fake->child_count, 4);
	word_release(&shm_view_timeline(&session->view, first->worker->generation)->stream[3].done, 5);
	ck_assert_ptr_null(move_begin(session, MOVE_LIMIT, "why", 60000, NULL, NULL));
	ck_assert_uint_eq(fake->child_count, 5);
	fake_reap(fake, third, SIGKILL);
	third = &fake->children[4];
	fake_warm(fake, third);
	fake_serve(fake, third, WIRE_ACTIVATE);
	tell(third);
	answer_let_go(first, 1);
	expect_attached(third);
	expect_found(third);
	close_in_crowd();
	end();
}

/* The move is off; the session is promoted as all are. */
TEST_LOOP(move, trouble_of_the_old_executor_comes_first, STARTING, STAGES)
{
	begin(_i);
	if (_i == LETTING_GO)
		fake_expect(fake, first->socket, WIRE_DETACH_SESSION);
	fake_reap(fake, first, SIGKILL);
	ck_assert_ptr_null(session->move);
	ck_assert(third->killed);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 2);
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){0, 0}, 2);
	expect_found(second);
	fake_reap(fake, third, SIGKILL);
	end();
}

/* The first executor is halted for a sign of a fault, and has not ended when the second one
 * serves. */
static void replace_first(void)
{
	struct wire_message fault = {.type = WIRE_FAULT,
		.session = TAILQ_FIRST(&crowd->sessions)->number,
		.trouble = {.code = 700, .text = "bad_kernel", .number = 1}};
	struct wire_message sign = {.type = WIRE_SUSPECT, .trouble.text = "it shows one"};

	fake_send(fake, first->socket, &sign, NULL, 0);
	fake_serve(fake, first, WIRE_HALT);
	*first->words = (struct last_words){.code = 700,
		.session = fault.session,
		.fault = 1,
		.kernel = "bad_kernel",
		.magic = LAST_WORDS_MAGIC};
	word_release(&TAILQ_FIRST(&crowd->sessions)->view.server->state, SHM_SESSION_FAULTED);
	fake_send(fake, first->socket, &fault, NULL, 0);
	FAKE_RUN_WHILE(fake, !first->killed);
	fake_serve(fake, second, WIRE_ACTIVATE);
}

/* That of an executor which was asked to let it go before, was replaced, and has ended only now. */
TEST(move, the_end_of_a_former_executor_is_no_answer)
{
	struct fake_child *fourth;
	uint64_t asked_to_go;

	begin(LETTING_GO);
	first->worker->contains = second->worker->contains = true;
	fake_expect(fake, first->socket, WIRE_DETACH_SESSION);
	replace_first();
	ck_assert_ptr_null(session->move);
	order_move();
	fourth = &fake->children[4];
	fake_warm(fake, fourth);
	fake_serve(fake, fourth, WIRE_ACTIVATE);
	tell(fourth);
	fake_expect(fake, second->socket, WIRE_DETACH_SESSION);
	asked_to_go = fake->message.id;
	fake_reap(fake, first, SIGKILL);
	ck_assert_ptr_nonnull(session->move);
	ck_assert_uint_eq(session->let_go.worker, second->worker->number);
	fake_reply(fake, second->socket, asked_to_go, 0, (uint64_t[]){1}, 1);
	ck_assert_ptr_eq(session->domain, fourth->worker->domain);
	fake_serve(fake, fourth, WIRE_ACTIVATE);
	expect_found(fourth);
	fake_reap(fake, third, SIGKILL);
	end();
}

TEST_LOOP(move, a_new_executor_that_dies_has_a_successor, STARTING, LETTING_GO)
{
	struct fake_child *fourth;

	begin(_i);
	fake_reap(fake, third, SIGKILL);
	if (!third->worker && _i == STARTING)
		FAKE_RUN_WHILE(fake, fake->child_count < 5);
	ck_assert_uint_eq(fake->child_count, 5);
	fourth = &fake->children[4];
	ck_assert_ptr_nonnull(session->move);
	fake_warm(fake, fourth);
	fake_serve(fake, fourth, WIRE_ACTIVATE);
	tell(fourth);
	answer_let_go(first, 1);
	expect_attached(fourth);
	expect_found(fourth);
	close_in_crowd();
	end();
}

TEST(move, one_that_was_let_go_waits_for_the_next_executor)
{
	struct fake_child *fourth;

	begin(LETTING_GO);
	fake_reap(fake, third, SIGKILL);
	answer_let_go(first, 1);
	ck_assert_uint_eq(word_acquire(&newcomer.view.server->state), SHM_SESSION_HELD);
	fourth = &fake->children[4];
	fake_ready(fake, fourth);
	tell(fourth);
	fake_serve(fake, fourth, WIRE_PING);
	expect_attached(fourth);
	expect_found(fourth);
	close_in_crowd();
	end();
}

/* At each stage. */
TEST_LOOP(move, a_client_that_ends_takes_its_domain_along, STARTING, STAGES)
{
	begin(_i);
	close(newcomer.socket);
	fake_turn(fake);
	ck_assert(third->killed);
	if (_i == LETTING_GO)
		answer_let_go(first, 1);
	fake_serve(fake, first, WIRE_CLOSE_SESSION);
	fake_serve(fake, second, WIRE_CLOSE_SESSION);
	fake_reap(fake, third, SIGKILL);
	ck_assert_ptr_null(TAILQ_NEXT(crowd, link));
	ck_assert_uint_eq(fake->daemon.session_count, 1);
	shm_view_unmap(&newcomer.view);
	packet_close_fds(&fake->packet);
	fake_leave(fake, &other);
	fake_free(fake);
}

static void on_over(void *context, int32_t code, const char *text)
{
	(void)context;
	(void)text;
	over = true;
	over_code = code;
}

/* Kernels of a module with variables have been looked up. */
TEST(move, one_that_may_have_left_something_behind_stays)
{
	boot();
	expect_found(first);
	fake_serve(fake, second, WIRE_FIND_FUNCTION);
	ck_assert_ptr_nonnull(
		strstr(move_begin(session, MOVE_ORDER, "why", 1000, on_over, NULL), "variables"));
	ck_assert_uint_eq(fake->child_count, 3);
	ck_assert(!over);
	end();
}

TEST(move, requests_go_on_until_it_is_let_go)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};

	boot();
	ck_assert_ptr_null(move_begin(session, MOVE_ORDER, "why", 60000, on_over, NULL));
	fake_warm(fake, third);
	fake_serve(fake, third, WIRE_ACTIVATE);
	map.range = (struct wire_range){.address = newcomer.window_base + WINDOW_DEVICE_BYTES, .bytes = 4096};
	fake_request(fake, &newcomer, &map, -1);
	tell(third);
	/* It is with the old executor: nothing else happens before it is answered. */
	fake_expect(fake, first->socket, WIRE_MAP_HOST);
	fake_reply(fake, first->socket, fake->message.id, 0, NULL, 0);
	fake_expect(fake, newcomer.socket, WIRE_REPLY);
	fake_serve(fake, second, WIRE_MAP_HOST);
	fake_serve(fake, third, WIRE_MAP_HOST);
	ask_for_function();
	answer_let_go(first, 1);
	expect_attached(third);
	expect_answer(third);
	close_in_crowd();
	ck_assert(over && !over_code);
	end();
}

TEST(move, the_limit_ends_it)
{
	boot();
	ck_assert_ptr_null(move_begin(session, MOVE_ORDER, "why", 1, on_over, NULL));
	FAKE_RUN_WHILE(fake, !over);
	ck_assert_int_eq(over_code, CUDA_ERROR_TIMEOUT);
	ck_assert(third->killed);
	fake_reap(fake, third, SIGKILL);
	end();
}

/*
 * Limits
 */

static void ask_for_limit(uint64_t value)
{
	struct wire_message limit = {.type = WIRE_SET_LIMIT, .limit = {CU_LIMIT_STACK_SIZE, value}};

	asked = fake_request(fake, &newcomer, &limit, -1);
}

/* As far as TELLING is over. */
static void begin_for_limit(void)
{
	boot();
	ask_for_limit(8192);
	FAKE_RUN_WHILE(fake, fake->child_count < 4);
	ck_assert_ptr_nonnull(session->move);
	fake_warm(fake, third);
	fake_serve(fake, third, WIRE_ACTIVATE);
	tell(third);
}

static void expect_limit(struct fake_child *child, uint64_t value)
{
	fake_expect(fake, child->socket, WIRE_SET_LIMIT);
	ck_assert_uint_eq(fake->message.session, session->number);
	ck_assert_uint_eq(fake->message.limit.limit, CU_LIMIT_STACK_SIZE);
	ck_assert_uint_eq(fake->message.limit.value, value);
	fake_reply(fake, child->socket, fake->message.id, 0, &value, 1);
}

static void expect_limit_answer(CUresult code)
{
	fake_expect(fake, newcomer.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.id, asked);
	ck_assert_int_eq(fake->message.reply.code, code);
}

/* Only in an executor of its own, also for the next value, and in the one behind that before
 * anything is loaded. */
TEST(move, a_limit_is_set_where_nobody_else_is)
{
	begin_for_limit();
	answer_let_go(first, 1);
	expect_attached(third);
	expect_limit(third, 8192);
	expect_limit_answer(CUDA_SUCCESS);
	close_in_crowd();
	ask_for_limit(16384);
	expect_limit(third, 16384);
	expect_limit_answer(CUDA_SUCCESS);
	fake_expect_nothing(fake, first->socket);
	fake_expect_nothing(fake, second->socket);
	fake_reap(fake, third, SIGKILL);
	third = &fake->children[4];
	FAKE_RUN_WHILE(fake, fake->child_count < 5);
	fake_ready(fake, third);
	fake_serve(fake, third, WIRE_OPEN_SESSION);
	expect_limit(third, 16384);
	fake_serve(fake, third, WIRE_LOAD_MODULE);
	end();
}

TEST(move, a_limit_is_refused_to_who_stays)
{
	begin_for_limit();
	answer_let_go(first, 0);
	expect_limit_answer(CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_ptr_eq(session->domain, crowd);
	ck_assert(third->killed);
	fake_reap(fake, third, SIGKILL);
	fake_expect_nothing(fake, first->socket);
	end();
}

TEST(move, a_program_that_ends_does_not_wait_for_its_limit)
{
	begin_for_limit();
	close(newcomer.socket);
	fake_turn(fake);
	ck_assert(third->killed);
	answer_let_go(first, 1);
	fake_serve(fake, first, WIRE_CLOSE_SESSION);
	fake_serve(fake, second, WIRE_CLOSE_SESSION);
	fake_reap(fake, third, SIGKILL);
	ck_assert_uint_eq(fake->daemon.session_count, 1);
	shm_view_unmap(&newcomer.view);
	packet_close_fds(&fake->packet);
	fake_leave(fake, &other);
	fake_free(fake);
}

/* Its executor dies meanwhile: the limit is waited for, not refused. */
TEST(move, a_limit_waits_for_the_next_executor)
{
	begin_for_limit();
	fake_reap(fake, first, SIGKILL);
	ck_assert_ptr_null(session->move);
	fake_expect_nothing(fake, newcomer.socket);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){0, 0}, 2);
	FAKE_RUN_WHILE(fake, !session->move);
	fake_expect_nothing(fake, newcomer.socket);
	fake_reap(fake, third, SIGKILL);
	end();
}

/* Its executor would not answer a second time. */
TEST(another_life, the_next_daemon_does_not_ask_once_more_whether_it_is_let_go)
{
	fake_with_records = true;
	boot();
	order_move();
	fake_warm(fake, third);
	fake_serve(fake, third, WIRE_ACTIVATE);
	tell(third);
	answer_let_go(first, 0);
	ck_assert(third->killed);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert(TAILQ_EMPTY(&first->worker->pending));
	fake_reap(fake, third, SIGKILL);
	end();
}

int main(void)
{
	Suite *suite = suite_create("move");
	TCase *tests = suite_case(suite, "move");

	fake_prepare();
	suite_add(tests, "move");
	/* A daemon that died has not closed anything: descriptors are not counted. */
	tests = tcase_create("another life");
	suite_add_tcase(suite, tests);
	suite_add(tests, "another_life");
	return suite_run(suite);
}
