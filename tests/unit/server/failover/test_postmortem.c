// What an executor that is off the device says about the fault, with on_fault = fast: who waits for it, and what it means
// for suspects. The test is keeper, executors and clients.

#include <signal.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/failover/move.h"
#include "server/failover/probation.h"
#include "server/failover/worker.h"
#include "server/loop/timer.h"
#include "server/session/client.h"
#include "server/session/domain.h"
#include "server/session/window.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

/* Whatever the time is, that was within the last second. */
#define LATER_NS (timer_now_us() * 1000 + UINT64_C(60000000000))

/* Two are in doubt, the younger one first. Nothing of the third is, but it has just run something. */
enum { YOUNG, OLD, LATENT, CLIENTS };

static struct fake *fake;
static struct fake_child *first, *second;
static struct fake_client clients[CLIENTS];
static struct client *sessions[CLIENTS];
static struct domain *crowd;

static void boot_idle(unsigned standbys, enum config_recovery recovery)
{
	fake = fake_new(standbys);
	fake->daemon.rules.general.recovery = recovery;
	fake->config.probation_ms = 600000;
	fake->config.probation = CONFIG_PROBATION_ALL;
	fake_boot(fake);
	first = &fake->children[1];
	second = standbys ? &fake->children[2] : NULL;
	first->worker->reads = true;
	crowd = TAILQ_FIRST(&fake->daemon.domains);
	for (unsigned i = CLIENTS; i-- > 0;) {
		fake_join(fake, &clients[i], first, second);
		sessions[i] = daemon_find_client(&fake->daemon, fake->daemon.next_session);
	}
}

static void issue_all(void)
{
	fake_issue(&sessions[YOUNG]->view, 5);
	fake_issue(&sessions[OLD]->view, 5);
	word_set(&sessions[LATENT]->view.server->active, LATER_NS);
}

static void boot(enum config_recovery recovery)
{
	boot_idle(1, recovery);
	issue_all();
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (clients[i].socket >= 0)
			fake_leave(fake, &clients[i]);
	fake_free(fake);
}

static uint32_t state_of(unsigned index)
{
	return word_acquire(&clients[index].view.server->state);
}

/* What was in doubt of it. */
static void finish_work(unsigned index)
{
	const struct shm_view *view = &sessions[index]->view;

	word_release(&shm_view_timeline(view, word_acquire(&view->server->generation))->stream[3].done, 5);
}

/* At the first sign. */
static void leave_device(void)
{
	struct wire_message lost = {.type = WIRE_LOST, .trouble = {.code = 719, .text = "a sign"}};

	fake_send(fake, first->socket, &lost, NULL, 0);
	ck_assert(fake_expect(fake, first->socket, WIRE_HALT)->halt.fence);
	fake_reply(fake, first->socket, fake->message.id, 0, NULL, 0);
	ck_assert(!first->killed);
}

/* The next one serves all but those that are held. */
static void take_over(void)
{
	fake_take_all_over(fake, second);
	ck_assert_ptr_eq(domain_serving(crowd), second->worker);
}

static void name(uint64_t session)
{
	struct wire_message fault = {.type = WIRE_FAULT,
		.session = session,
		.trouble = {.code = CUDA_ERROR_MISALIGNED_ADDRESS,
			.text = "bad_kernel",
			.instruction = 0x40,
			.number = 1}};

	fake_send(fake, first->socket, &fault, NULL, 0);
}

static void expect_told(unsigned index)
{
	ck_assert_uint_eq(state_of(index), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_relaxed(&clients[index].view.server->error), CUDA_ERROR_MISALIGNED_ADDRESS);
	ck_assert_str_eq(
		clients[index].view.server->reason, "a fault in kernel bad_kernel, instruction at 0x40");
	ck_assert_ptr_nonnull(strstr(crowd->promotion.verdict_text, "culprit is process"));
	ck_assert_ptr_nonnull(strstr(crowd->promotion.verdict_text, "kernel bad_kernel, code 716"));
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
}

/* Beside the others, at once. */
static void expect_repeated(unsigned index)
{
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(fake->message.activate.sessions.at[0], sessions[index]->number);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], CLIENT_RECOVER_BY_POLICY);
	ck_assert_ptr_null(probation_text(sessions[index]));
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){1}, 1);
}

static void reach_waiting(void)
{
	boot(CONFIG_RECOVERY_REPLAY);
	leave_device();
	take_over();
	ck_assert_str_eq(probation_text(sessions[YOUNG]), "waiting");
	ck_assert_str_eq(probation_text(sessions[OLD]), "waiting");
	ck_assert_uint_eq(state_of(LATENT), SHM_SESSION_RUNNING);
	ck_assert(!first->killed);
}

START_TEST(the_culprit_is_told_and_nobody_is_tried)
{
	unsigned culprit = _i ? OLD : YOUNG;

	reach_waiting();
	name(sessions[culprit]->number);
	expect_told(culprit);
	expect_repeated(_i ? YOUNG : OLD);
	ck_assert_uint_eq(sessions[LATENT]->latent, 0);
	ck_assert_uint_eq(state_of(LATENT), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(fake->daemon.counters.probations, 0);
	end();
}
END_TEST

/* It is left alone for a moment, and then ended. */
START_TEST(who_has_said_it_is_ended)
{
	reach_waiting();
	name(sessions[YOUNG]->number);
	expect_repeated(OLD);
	ck_assert(!first->killed);
	FAKE_RUN_WHILE(fake, !first->killed);
	end();
}
END_TEST

START_TEST(a_culprit_whose_kernel_looked_finished_is_told)
{
	reach_waiting();
	name(sessions[LATENT]->number);
	expect_told(LATENT);
	expect_repeated(OLD);
	expect_repeated(YOUNG);
	end();
}
END_TEST

START_TEST(a_culprit_that_is_gone_explains_the_fault)
{
	reach_waiting();
	name(4711);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	expect_repeated(OLD);
	expect_repeated(YOUNG);
	ck_assert_uint_eq(sessions[LATENT]->latent, 0);
	end();
}
END_TEST

/* Kernels of two faulted before the device was left. */
START_TEST(all_that_are_named_are_told)
{
	reach_waiting();
	name(sessions[YOUNG]->number);
	name(sessions[LATENT]->number);
	ck_assert_uint_eq(state_of(YOUNG), SHM_SESSION_FAULTED);
	FAKE_RUN_WHILE(fake, state_of(LATENT) != SHM_SESSION_FAULTED);
	end();
}
END_TEST

/* It says that nobody can be named, or ends before it says anything. */
START_TEST(otherwise_suspects_are_tried)
{
	struct wire_message suspect = {.type = WIRE_SUSPECT, .trouble.text = "nobody can be named"};

	reach_waiting();
	if (_i)
		fake_send(fake, first->socket, &suspect, NULL, 0);
	else
		fake_reap(fake, first, SIGSEGV);
	ck_assert_str_eq(probation_text(sessions[YOUNG]), "starting");
	ck_assert_str_eq(probation_text(sessions[OLD]), "waiting");
	ck_assert_uint_ne(sessions[LATENT]->latent, 0);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	end();
}
END_TEST

/* There is no executor that serves yet. */
START_TEST(what_is_found_out_early_is_kept)
{
	boot(CONFIG_RECOVERY_REPLAY);
	leave_device();
	name(sessions[YOUNG]->number);
	ck_assert_uint_ne(state_of(YOUNG), SHM_SESSION_FAULTED);
	take_over();
	expect_told(YOUNG);
	expect_repeated(OLD);
	end();
}
END_TEST

/* What is in doubt of those who do not vouch is told at once, but nobody is told who is only suspected. */
START_TEST(who_is_only_suspected_goes_on)
{
	struct wire_message suspect = {.type = WIRE_SUSPECT, .trouble.text = "nobody can be named"};

	boot(CONFIG_RECOVERY_FAIL);
	leave_device();
	take_over();
	ck_assert_uint_eq(state_of(LATENT), SHM_SESSION_RUNNING);
	ck_assert_uint_ne(sessions[LATENT]->latent, 0);
	if (_i) {
		name(4711);
		ck_assert_uint_eq(sessions[LATENT]->latent, 0);
		ck_assert_uint_eq(state_of(LATENT), SHM_SESSION_RUNNING);
	} else {
		fake_send(fake, first->socket, &suspect, NULL, 0);
		/* What the next executor would tell them. */
		for (unsigned i = YOUNG; i <= OLD; i++)
			word_release(&sessions[i]->view.server->state, SHM_SESSION_FAULTED);
		FAKE_RUN_WHILE(fake, sessions[LATENT]->latent);
		ck_assert_uint_eq(state_of(LATENT), SHM_SESSION_FAULTED);
	}
	end();
}
END_TEST

/* It is known whose fault it was. */
START_TEST(nobody_waits_for_what_is_known)
{
	boot(CONFIG_RECOVERY_REPLAY);
	*first->words = (struct last_words){.code = CUDA_ERROR_MISALIGNED_ADDRESS,
		.session = sessions[YOUNG]->number,
		.magic = LAST_WORDS_MAGIC};
	leave_device();
	take_over();
	ck_assert_ptr_null(probation_text(sessions[OLD]));
	ck_assert_uint_eq(first->worker->fault, 0);
	end();
}
END_TEST

/* Its call has waited for its turn. */
START_TEST(a_culprit_gets_its_answers)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};

	reach_waiting();
	map.range = (struct wire_range){clients[YOUNG].window_base + WINDOW_DEVICE_BYTES, 4096, 0};
	fake_request(fake, &clients[YOUNG], &map, -1);
	fake_expect_nothing(fake, second->socket);
	name(sessions[YOUNG]->number);
	expect_told(YOUNG);
	expect_repeated(OLD);
	fake_serve(fake, second, WIRE_MAP_HOST);
	fake_expect(fake, clients[YOUNG].socket, WIRE_REPLY);
	end();
}
END_TEST

/* Where the driver does not let go of the process. */
START_TEST(nobody_waits_for_the_end_of_who_is_killed)
{
	reach_waiting();
	FAKE_RUN_WHILE(fake, !first->killed);
	ck_assert_str_eq(probation_text(sessions[YOUNG]), "starting");
	end();
}
END_TEST

/* It may end before there is one that serves. */
START_TEST(what_was_found_out_outlives_who_said_it)
{
	boot(CONFIG_RECOVERY_REPLAY);
	leave_device();
	name(sessions[YOUNG]->number);
	fake_reap(fake, first, SIGKILL);
	take_over();
	expect_told(YOUNG);
	expect_repeated(OLD);
	end();
}
END_TEST

/* What is in doubt of it runs to its end beside the others: it was a kernel before that. */
START_TEST(who_is_named_while_it_is_repeated_is_told)
{
	boot(CONFIG_RECOVERY_REPLAY);
	fake->config.probation = CONFIG_PROBATION_YOUNGEST;
	leave_device();
	take_over();
	ck_assert_str_eq(probation_text(sessions[YOUNG]), "waiting");
	ck_assert_ptr_null(probation_text(sessions[OLD]));
	name(sessions[OLD]->number);
	ck_assert_uint_eq(state_of(OLD), SHM_SESSION_RUNNING);
	finish_work(OLD);
	FAKE_RUN_WHILE(fake, state_of(OLD) != SHM_SESSION_FAULTED);
	end();
}
END_TEST

/* What is in doubt of the other one runs to its end when it is repeated: it was a kernel before that. */
START_TEST(whoever_is_named_beside_another_is_told)
{
	reach_waiting();
	name(sessions[YOUNG]->number);
	name(sessions[OLD]->number);
	ck_assert_uint_eq(state_of(YOUNG), SHM_SESSION_FAULTED);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	fake_take_over(sessions[OLD], fake->message.activate.generation);
	finish_work(OLD);
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){1}, 1);
	FAKE_RUN_WHILE(fake, state_of(OLD) != SHM_SESSION_FAULTED);
	end();
}
END_TEST

/* Only one can have done it, so it waits for what its driver finds out, and is killed meanwhile. */
START_TEST(a_sign_before_its_word_counts)
{
	boot_idle(1, CONFIG_RECOVERY_REPLAY);
	word_set(&sessions[LATENT]->view.server->active, LATER_NS);
	for (unsigned i = 0; i < CLIENTS; i++)
		word_set(&sessions[i]->view.server->doubtful,
			SHM_DOUBT | SHM_DOUBT_FAULT | (i == LATENT ? SHM_DOUBT_WORKED : 0));
	fake_reap(fake, first, SIGKILL);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	for (uint32_t i = 0; i < CLIENTS; i++)
		ck_assert_uint_eq(fake->message.activate.recover.at[i],
			fake->message.activate.sessions.at[i] == sessions[LATENT]->number
				? CLIENT_RECOVER_CULPRIT
				: CLIENT_RECOVER_NOTHING);
	end();
}
END_TEST

/* There is no standby, and none is started before its end. */
START_TEST(nobody_waits_for_it_where_it_is_the_only_one)
{
	struct wire_message lost = {.type = WIRE_LOST, .trouble = {.code = 719, .text = "a sign"}};

	boot_idle(0, CONFIG_RECOVERY_REPLAY);
	issue_all();
	fake_send(fake, first->socket, &lost, NULL, 0);
	ck_assert(fake_expect(fake, first->socket, WIRE_HALT)->halt.fence);
	fake_reply(fake, first->socket, fake->message.id, 0, NULL, 0);
	ck_assert(first->killed);
	end();
}
END_TEST

/* It gets an executor of its own before it is known that it was it. */
static void move_away(unsigned index)
{
	struct fake_child *child = NULL;

	ck_assert_ptr_null(move_begin(sessions[index], MOVE_ORDER, "a test", 60000, NULL, NULL));
	for (unsigned i = 0; i < fake->child_count; i++) {
		struct worker *worker = fake->children[i].worker;

		if (worker && worker->domain && worker->domain->arrival == sessions[index]->move)
			child = &fake->children[i];
	}
	ck_assert_ptr_nonnull(child);
	fake_warm(fake, child);
	fake_serve(fake, child, WIRE_ACTIVATE);
	fake_serve(fake, child, WIRE_OPEN_SESSION);
	fake_expect(fake, second->socket, WIRE_DETACH_SESSION);
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){1}, 1);
	fake_expect(fake, child->socket, WIRE_ACTIVATE);
	fake_take_over(sessions[index], fake->message.activate.generation);
	fake_reply(fake, child->socket, fake->message.id, 0, (uint64_t[]){0}, 1);
	ck_assert_ptr_ne(sessions[index]->domain, crowd);
}

START_TEST(a_culprit_that_has_moved_is_told)
{
	boot(CONFIG_RECOVERY_FAIL);
	leave_device();
	take_over();
	move_away(LATENT);
	name(sessions[LATENT]->number);
	ck_assert_uint_eq(state_of(LATENT), SHM_SESSION_FAULTED);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("postmortem");
	TCase *tests = tcase_create("postmortem");

	fake_prepare();
	tcase_add_loop_test(tests, the_culprit_is_told_and_nobody_is_tried, 0, 2);
	tcase_add_test(tests, who_has_said_it_is_ended);
	tcase_add_test(tests, a_culprit_whose_kernel_looked_finished_is_told);
	tcase_add_test(tests, a_culprit_that_is_gone_explains_the_fault);
	tcase_add_loop_test(tests, otherwise_suspects_are_tried, 0, 2);
	tcase_add_test(tests, all_that_are_named_are_told);
	tcase_add_test(tests, what_is_found_out_early_is_kept);
	tcase_add_loop_test(tests, who_is_only_suspected_goes_on, 0, 2);
	tcase_add_test(tests, nobody_waits_for_what_is_known);
	tcase_add_test(tests, a_culprit_gets_its_answers);
	tcase_add_test(tests, nobody_waits_for_the_end_of_who_is_killed);
	tcase_add_test(tests, a_culprit_that_has_moved_is_told);
	tcase_add_test(tests, whoever_is_named_beside_another_is_told);
	tcase_add_test(tests, a_sign_before_its_word_counts);
	tcase_add_test(tests, nobody_waits_for_it_where_it_is_the_only_one);
	tcase_add_test(tests, what_was_found_out_outlives_who_said_it);
	tcase_add_test(tests, who_is_named_while_it_is_repeated_is_told);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
