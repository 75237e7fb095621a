// Suspects that are tried alone: who goes on probation, in which order, how each trial can end, and what may
// happen meanwhile. The test is keeper, executors and clients.

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/failover/probation.h"
#include "server/failover/promote.h"
#include "server/failover/worker.h"
#include "server/loop/timer.h"
#include "server/session/client.h"
#include "server/session/domain.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define SUSPECTS 2
/* Whatever the time is, that was within the last second. */
#define LATER_NS (timer_now_us() * 1000 + UINT64_C(60000000000))
#define CLIENTS	 3

static struct fake *fake;
static struct fake_child *first, *second;
static struct fake_client clients[CLIENTS];
static struct client *sessions[CLIENTS];
static struct domain *crowd;

static void boot(enum config_recovery recovery)
{
	fake = fake_new(1);
	fake->daemon.rules.general.recovery = recovery;
	fake->config.probation_ms = 600000;
	fake->config.probation = CONFIG_PROBATION_ALL;
	fake_boot(fake);
	first = &fake->children[1];
	second = &fake->children[2];
	crowd = TAILQ_FIRST(&fake->daemon.domains);
	/* The youngest is the first. */
	for (unsigned i = CLIENTS; i-- > 0;) {
		fake_join(fake, &clients[i], first, second);
		sessions[i] = daemon_find_client(&fake->daemon, fake->daemon.next_session);
	}
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (clients[i].socket >= 0)
			fake_leave(fake, &clients[i]);
	fake_free(fake);
}

/* What an executor would note: commands issued on stream 3. */
static void issue(unsigned index, uint64_t issued)
{
	fake_issue(&sessions[index]->view, issued);
}

static void write_done(unsigned index, uint64_t done)
{
	const struct shm_view *view = &sessions[index]->view;
	uint32_t generation = word_acquire(&view->server->generation);

	word_release(&shm_view_timeline(view, generation)->stream[3].done, done);
}

static void finish(unsigned index)
{
	write_done(index, 5);
}

static uint32_t state_of(unsigned index)
{
	return word_acquire(&clients[index].view.server->state);
}

static uint32_t order_of(unsigned index)
{
	for (uint32_t i = 0; i < fake->message.activate.sessions.count; i++)
		if (fake->message.activate.sessions.at[i] == sessions[index]->number)
			return fake->message.activate.recover.at[i];
	return UINT32_MAX;
}

/* The executor of the crowd dies of a fault of which nobody knows whose it was. */
static void lose(struct fake_child *child)
{
	struct wire_message lost = {.type = WIRE_LOST, .trouble = {.code = 700, .text = "it broke"}};

	fake_send(fake, child->socket, &lost, NULL, 0);
	fake_reap(fake, child, SIGKILL);
}

/* Two suspects are held, the first one has its turn, and everybody else is served. */
static void reach_placing(void)
{
	boot(CONFIG_RECOVERY_REPLAY);
	for (unsigned i = 0; i < SUSPECTS; i++)
		issue(i, 5);
	lose(first);
	fake_take_all_over(fake, second);
	ck_assert_ptr_eq(domain_serving(crowd), second->worker);
	ck_assert_str_eq(probation_text(sessions[0]), "starting");
	ck_assert_str_eq(probation_text(sessions[1]), "waiting");
	ck_assert_ptr_null(probation_text(sessions[2]));
	ck_assert_uint_eq(state_of(0), SHM_SESSION_HELD);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_RUNNING);
}

/* The executor of the domain that a session is to go to. */
static struct fake_child *executor_for(unsigned index)
{
	for (unsigned i = 0; i < fake->child_count; i++) {
		struct worker *worker = fake->children[i].worker;

		if (worker && worker->domain && !fake->children[i].killed &&
			(worker->domain == sessions[index]->domain ||
				(worker->domain->arrival &&
					worker->domain->arrival == sessions[index]->move)) &&
			worker->domain != crowd)
			return &fake->children[i];
	}
	ck_abort_msg("there is no executor for session %u", index);
	return NULL;
}

/* It is ready and told everything; the session is its. */
static struct fake_child *place(unsigned index)
{
	struct fake_child *child = executor_for(index);

	fake_warm(fake, child);
	fake_serve(fake, child, WIRE_ACTIVATE);
	fake_serve(fake, child, WIRE_OPEN_SESSION);
	ck_assert_str_eq(probation_text(sessions[index]), "running");
	return child;
}

static void expect_attached(unsigned index, struct fake_child *child)
{
	fake_expect(fake, child->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(order_of(index), CLIENT_RECOVER_BY_POLICY);
	fake_take_over(sessions[index], fake->message.activate.generation);
	fake_reply(fake, child->socket, fake->message.id, 0, (uint64_t[]){1}, 1);
}

static struct fake_child *reach_trial(unsigned index)
{
	struct fake_child *child = place(index);

	expect_attached(index, child);
	return child;
}

static void run_until_over(unsigned index)
{
	while (probation_text(sessions[index]))
		uv_run(&fake->loop, UV_RUN_ONCE);
}

static void expect_verdict(const char *part)
{
	ck_assert_msg(strstr(crowd->promotion.verdict_text, part), "no \"%s\" in \"%s\"", part,
		crowd->promotion.verdict_text);
}

/* Two executors of the crowd let go of who left it. */
static void close_in_crowd(void)
{
	fake_serve(fake, second, WIRE_CLOSE_SESSION);
}

START_TEST(suspects_are_tried_one_after_the_other)
{
	reach_placing();
	expect_verdict("that go on probation: 2");
	reach_trial(0);
	close_in_crowd();
	ck_assert_str_eq(probation_text(sessions[1]), "waiting");
	finish(0);
	run_until_over(0);
	expect_verdict("ran alone to its end");
	expect_verdict("; probation ");
	ck_assert_uint_eq(state_of(0), SHM_SESSION_RUNNING);
	reach_trial(1);
	finish(1);
	run_until_over(1);
	ck_assert_uint_eq(fake->daemon.counters.probations, 2);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	end();
}
END_TEST

/* What it had on the device was the lost executor's: at a second fault it is nobody who has left since. */
START_TEST(a_suspect_that_leaves_for_its_trial_has_left_nothing)
{
	boot(CONFIG_RECOVERY_REPLAY);
	for (unsigned i = 0; i < SUSPECTS; i++)
		issue(i, 5);
	word_release(&sessions[0]->view.server->active, LATER_NS);
	lose(first);
	fake_take_all_over(fake, second);
	reach_trial(0);
	close_in_crowd();
	ck_assert_uint_eq(crowd->promotion.gone_active, 0);
	end();
}
END_TEST

/* Its kernels can write where their marks come. */
START_TEST(a_word_beyond_the_marks_clears_nobody)
{
	reach_placing();
	/* One of these is believed at once. */
	reach_trial(0)->worker->contains = true;
	close_in_crowd();
	word_release(&sessions[0]->view.states[3].marked, 3);
	write_done(0, UINT64_MAX);
	/* Each waits for the timer. */
	for (unsigned looks = 0; looks < 3; looks++)
		uv_run(&fake->loop, UV_RUN_ONCE);
	ck_assert_str_eq(probation_text(sessions[0]), "running");
	word_release(&sessions[0]->view.states[3].marked, 5);
	run_until_over(0);
	expect_verdict("ran alone to its end");
	end();
}
END_TEST

static void expect_conviction(void)
{
	expect_verdict("culprit is process");
	expect_verdict("code 716 CUDA_ERROR_MISALIGNED_ADDRESS");
	expect_verdict(
		"found on probation: its commands, run alone, faulted; told an error beside it: nobody; "
		"probation ");
	ck_assert_uint_eq(state_of(0), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_relaxed(&clients[0].view.server->error), CUDA_ERROR_MISALIGNED_ADDRESS);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
}

/* Named by its executor, or only by being alone there. */
START_TEST(a_fault_convicts_and_releases_the_others)
{
	struct fake_child *child;

	reach_placing();
	child = reach_trial(0);
	close_in_crowd();
	*child->words = (struct last_words){.code = CUDA_ERROR_MISALIGNED_ADDRESS,
		.session = _i ? sessions[0]->number : 0,
		.magic = LAST_WORDS_MAGIC};
	fake_reap(fake, child, SIGSEGV);
	expect_conviction();
	ck_assert_ptr_null(probation_text(sessions[1]));
	expect_attached(1, second);
	ck_assert_uint_eq(crowd->promotion.suspects, 0);
	ck_assert_uint_eq(fake->daemon.counters.probations, 1);
	ck_assert_uint_eq(fake->daemon.counters.promotions, 1);
	end();
}
END_TEST

/* It outlasts the fault and has told the culprit, and then says so. */
START_TEST(a_fault_that_is_contained_convicts)
{
	struct wire_message fault = {.type = WIRE_FAULT};
	struct fake_child *child;

	reach_placing();
	child = reach_trial(0);
	close_in_crowd();
	ck_assert(child->worker->graceful);
	child->worker->contains = true;
	word_release(&sessions[0]->view.server->doubtful, SHM_DOUBT);
	finish(0);
	fake_turn(fake);
	ck_assert_str_eq(probation_text(sessions[0]), "running");
	word_release(&sessions[0]->view.server->state, SHM_SESSION_FAULTED);
	fault.session = sessions[0]->number;
	fault.trouble = (struct wire_trouble){.code = 719, .text = "bad_kernel", .number = 1};
	fake_send(fake, child->socket, &fault, NULL, 0);
	run_until_over(0);
	expect_verdict("culprit is process");
	expect_verdict("kernel bad_kernel");
	ck_assert_ptr_null(probation_text(sessions[1]));
	expect_attached(1, second);
	ck_assert_uint_eq(fake->daemon.counters.probations, 1);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	end();
}
END_TEST

/* Nothing of session 2 was in doubt, but it had run something. */
static void reach_placing_with_latent(void)
{
	boot(CONFIG_RECOVERY_REPLAY);
	for (unsigned i = 0; i < SUSPECTS; i++)
		issue(i, 5);
	word_set(&sessions[2]->view.server->active, LATER_NS);
	lose(first);
	fake_take_all_over(fake, second);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_RUNNING);
}

START_TEST(whoever_it_may_have_been_is_told_if_no_trial_finds_the_culprit)
{
	reach_placing_with_latent();
	reach_trial(0);
	close_in_crowd();
	finish(0);
	run_until_over(0);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_RUNNING);
	reach_trial(1);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_RUNNING);
	finish(1);
	run_until_over(1);
	FAKE_RUN_WHILE(fake, sessions[2]->latent);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_relaxed(&clients[2].view.server->error), CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_uint_eq(state_of(0), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	end();
}
END_TEST

/* The suspect ends before anything of it is tried. */
START_TEST(whoever_it_may_have_been_is_told_if_nobody_is_left_to_try)
{
	boot(CONFIG_RECOVERY_REPLAY);
	issue(0, 5);
	word_set(&sessions[2]->view.server->active, LATER_NS);
	lose(first);
	ck_assert_uint_ne(sessions[2]->latent, 0);
	fake_leave(fake, &clients[0]);
	clients[0].socket = -1;
	fake_take_all_over(fake, second);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_RUNNING);
	FAKE_RUN_WHILE(fake, sessions[2]->latent);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_relaxed(&clients[2].view.server->error), CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	end();
}
END_TEST

START_TEST(nobody_else_is_told_when_the_culprit_is_found)
{
	struct fake_child *child;

	reach_placing_with_latent();
	child = reach_trial(0);
	close_in_crowd();
	fake_reap(fake, child, SIGSEGV);
	expect_attached(1, second);
	finish(1);
	fake_turn(fake);
	ck_assert_uint_eq(state_of(0), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(sessions[2]->latent, 0);
	end();
}
END_TEST

/* Without trials there is no later. */
START_TEST(whoever_it_may_have_been_is_told_where_nobody_is_tried)
{
	boot(CONFIG_RECOVERY_FAIL);
	issue(0, 5);
	word_set(&sessions[2]->view.server->active, LATER_NS);
	lose(first);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(order_of(0), CLIENT_RECOVER_BY_POLICY);
	ck_assert_uint_eq(order_of(1), CLIENT_RECOVER_NOTHING);
	ck_assert_uint_eq(order_of(2), CLIENT_RECOVER_SUSPECT);
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){0, 1, 0}, 3);
	end();
}
END_TEST

START_TEST(what_was_tried_is_not_tried_again)
{
	struct fake_child *child;

	reach_placing();
	child = reach_trial(0);
	close_in_crowd();
	fake_reap(fake, child, SIGKILL);
	expect_verdict("ran alone when that executor was ended");
	expect_verdict("told an error: it alone");
	ck_assert_uint_eq(state_of(0), SHM_SESSION_FAULTED);
	ck_assert_ptr_null(probation_text(sessions[0]));
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	ck_assert_str_eq(probation_text(sessions[1]), "starting");
	end();
}
END_TEST

START_TEST(an_executor_that_has_tried_nothing_has_a_successor)
{
	struct fake_child *child;

	reach_placing();
	child = place(0);
	close_in_crowd();
	fake_reap(fake, child, SIGKILL);
	ck_assert_str_eq(probation_text(sessions[0]), "running");
	child = executor_for(0);
	fake_warm_with(fake, child, 1);
	expect_attached(0, child);
	finish(0);
	run_until_over(0);
	ck_assert_uint_eq(state_of(0), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(fake->daemon.counters.probations, 1);
	end();
}
END_TEST

/* The mark of the kernel that faults comes as well. */
START_TEST(marks_of_an_executor_that_is_lost_in_the_trial_prove_nothing)
{
	struct fake_child *child;

	reach_placing();
	child = reach_trial(0);
	close_in_crowd();
	finish(0);
	issue(0, 6);
	fake_reap(fake, child, SIGSEGV);
	ck_assert_ptr_null(probation_text(sessions[0]));
	ck_assert_int_eq(sessions[0]->domain->promotion.verdict.ground, JUDGE_PROBATION);
	ck_assert_uint_eq(state_of(0), SHM_SESSION_FAULTED);
	ck_assert_ptr_null(probation_text(sessions[1]));
	expect_attached(1, second);
	end();
}
END_TEST

START_TEST(patience_gives_the_next_one_its_turn)
{
	reach_placing();
	reach_trial(0);
	fake->config.probation_ms = 10;
	while (strcmp(probation_text(sessions[0]), "undecided"))
		uv_run(&fake->loop, UV_RUN_ONCE);
	expect_verdict("longer than probation_ms");
	ck_assert_uint_eq(state_of(0), SHM_SESSION_RUNNING);
	ck_assert_str_eq(probation_text(sessions[1]), "starting");
	finish(0);
	run_until_over(0);
	ck_assert_str_eq(probation_text(sessions[1]), "starting");
	end();
}
END_TEST

/* An undecided one is convicted as any other. */
START_TEST(a_fault_after_the_patience_convicts)
{
	struct fake_child *child;

	reach_placing();
	child = reach_trial(0);
	fake->config.probation_ms = 10;
	while (strcmp(probation_text(sessions[0]), "undecided"))
		uv_run(&fake->loop, UV_RUN_ONCE);
	*child->words = (struct last_words){.code = CUDA_ERROR_MISALIGNED_ADDRESS, .magic = LAST_WORDS_MAGIC};
	fake_reap(fake, child, SIGSEGV);
	expect_conviction();
	end();
}
END_TEST

/* The executor that the crowd has besides `second`, told of so many sessions. */
static struct fake_child *warm_third(unsigned count)
{
	struct fake_child *third = NULL;

	for (unsigned i = 3; i < fake->child_count; i++)
		if (fake->children[i].worker && fake->children[i].worker->domain == crowd)
			third = &fake->children[i];
	ck_assert_ptr_nonnull(third);
	fake_warm_with(fake, third, count);
	return third;
}

/* The youngest alone is tried, the other suspect repeated beside the others: session 2 may have been it as well. */
static void reach_guess(void)
{
	boot(CONFIG_RECOVERY_REPLAY);
	fake->config.probation = CONFIG_PROBATION_YOUNGEST;
	for (unsigned i = 0; i < SUSPECTS; i++)
		issue(i, 5);
	word_set(&sessions[2]->view.server->active, LATER_NS);
	lose(first);
	fake_take_all_over(fake, second);
	ck_assert_uint_eq(order_of(0), CLIENT_RECOVER_PROBATION);
	ck_assert_uint_eq(order_of(1), CLIENT_RECOVER_BY_POLICY);
	ck_assert_ptr_null(probation_text(sessions[1]));
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	reach_trial(0);
	close_in_crowd();
	finish(0);
	run_until_over(0);
	ck_assert_uint_eq(state_of(0), SHM_SESSION_RUNNING);
}

START_TEST(behind_a_guess_nobody_is_told_before_all_is_repeated)
{
	reach_guess();
	for (int i = 0; i < 20; i++)
		uv_run(&fake->loop, UV_RUN_ONCE);
	ck_assert_uint_ne(sessions[2]->latent, 0);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_RUNNING);
	finish(1);
	FAKE_RUN_WHILE(fake, sessions[2]->latent);
	ck_assert_uint_eq(state_of(2), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	end();
}
END_TEST

/* The second suspect faults where it is repeated; or somebody else does. */
START_TEST(guilt_explains_the_loss_before_where_the_same_was_in_doubt)
{
	struct fake_child *third;

	reach_guess();
	third = warm_third(SUSPECTS);
	/* Between the end of that command and the loss whoever looks at session 2 would rightly tell it. */
	timer_start(fake->daemon.latent_timer, 60000);
	if (_i) {
		word_release(&shm_view_timeline(&sessions[1]->view, 2)->stream[3].done, 5);
		issue(1, 6);
	}
	*second->words = (struct last_words){.code = CUDA_ERROR_MISALIGNED_ADDRESS,
		.session = sessions[1]->number,
		.magic = LAST_WORDS_MAGIC};
	word_release(&sessions[2]->view.server->active, 0);
	lose(second);
	ck_assert_int_eq(sessions[2]->latent == 0, !_i);
	fake_take_all_over(fake, third);
	ck_assert_uint_eq(order_of(1), CLIENT_RECOVER_CULPRIT);
	end();
}
END_TEST

/* The session is on its way: it is left as it is once more. */
START_TEST(the_crowds_executor_dies)
{
	struct fake_child *third;

	reach_placing();
	third = warm_third(CLIENTS);
	fake_reap(fake, second, SIGKILL);
	ck_assert_str_eq(probation_text(sessions[0]), "waiting");
	fake_take_all_over(fake, third);
	ck_assert_uint_eq(order_of(0), CLIENT_RECOVER_PROBATION);
	ck_assert_uint_eq(order_of(1), CLIENT_RECOVER_PROBATION);
	ck_assert_uint_eq(order_of(2), CLIENT_RECOVER_NOTHING);
	ck_assert_str_eq(probation_text(sessions[0]), "starting");
	ck_assert_uint_eq(fake->daemon.counters.probations, 0);
	reach_trial(0);
	end();
}
END_TEST

/* The others were to be left as they are by the executor that is just taking over. */
START_TEST(who_is_released_in_the_middle_of_a_promotion_is_served_after_it)
{
	struct fake_child *trial, *third;

	reach_placing();
	trial = reach_trial(0);
	close_in_crowd();
	third = warm_third(CLIENTS - 1);
	fake_reap(fake, second, SIGKILL);
	ck_assert_int_eq(crowd->promotion.state, PROMOTE_ACTIVATING);
	fake_reap(fake, trial, SIGSEGV);
	ck_assert_ptr_null(probation_text(sessions[1]));
	fake_take_all_over(fake, third);
	ck_assert_uint_eq(order_of(1), CLIENT_RECOVER_PROBATION);
	expect_attached(1, third);
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	fake_expect_nothing(fake, third->socket);
	end();
}
END_TEST

/* At each step of the one whose turn it is. */
START_TEST(a_suspect_that_ends_makes_room)
{
	struct fake_child *child;

	reach_placing();
	if (_i)
		reach_trial(0);
	child = executor_for(0);
	fake_leave(fake, &clients[0]);
	clients[0].socket = -1;
	if (_i) {
		fake_serve(fake, child, WIRE_CLOSE_SESSION);
		fake_turn(fake);
	}
	ck_assert(child->killed);
	ck_assert_str_eq(probation_text(sessions[1]), "starting");
	fake_reap(fake, child, SIGKILL);
	reach_trial(1);
	end();
}
END_TEST

START_TEST(requests_wait_for_the_trial)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};
	struct fake_child *child;

	reach_placing();
	map.range = (struct wire_range){clients[0].window_base + WINDOW_DEVICE_BYTES, 4096, 0};
	fake_request(fake, &clients[0], &map, -1);
	fake_turn(fake);
	child = reach_trial(0);
	fake_expect(fake, child->socket, WIRE_MAP_HOST);
	fake_reply(fake, child->socket, fake->message.id, 0, NULL, 0);
	fake_expect(fake, clients[0].socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_SUCCESS);
	end();
}
END_TEST

/* Those that do not vouch, everybody where it is off, and nobody if the guilty one is known. */
START_TEST(who_is_not_tried)
{
	boot(_i == 0 ? CONFIG_RECOVERY_FAIL : CONFIG_RECOVERY_REPLAY);
	if (_i == 1)
		fake->config.probation = CONFIG_PROBATION_OFF;
	for (unsigned i = 0; i < SUSPECTS; i++)
		issue(i, 5);
	if (_i == 2)
		*first->words = (struct last_words){
			.code = 700, .session = sessions[0]->number, .magic = LAST_WORDS_MAGIC};
	lose(first);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(order_of(0), _i == 2 ? CLIENT_RECOVER_CULPRIT : CLIENT_RECOVER_BY_POLICY);
	ck_assert_uint_eq(order_of(1), CLIENT_RECOVER_BY_POLICY);
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){0, 0, 0}, 3);
	ck_assert_ptr_null(probation_text(sessions[1]));
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("probation");
	TCase *cases;

	fake_prepare();
	cases = suite_case(suite, "probation");
	tcase_add_test(cases, suspects_are_tried_one_after_the_other);
	tcase_add_test(cases, a_word_beyond_the_marks_clears_nobody);
	tcase_add_test(cases, a_suspect_that_leaves_for_its_trial_has_left_nothing);
	tcase_add_loop_test(cases, a_fault_convicts_and_releases_the_others, 0, 2);
	tcase_add_test(cases, a_fault_that_is_contained_convicts);
	tcase_add_test(cases, whoever_it_may_have_been_is_told_if_no_trial_finds_the_culprit);
	tcase_add_test(cases, whoever_it_may_have_been_is_told_if_nobody_is_left_to_try);
	tcase_add_test(cases, nobody_else_is_told_when_the_culprit_is_found);
	tcase_add_test(cases, whoever_it_may_have_been_is_told_where_nobody_is_tried);
	tcase_add_test(cases, what_was_tried_is_not_tried_again);
	tcase_add_test(cases, an_executor_that_has_tried_nothing_has_a_successor);
	tcase_add_test(cases, marks_of_an_executor_that_is_lost_in_the_trial_prove_nothing);
	tcase_add_test(cases, patience_gives_the_next_one_its_turn);
	tcase_add_test(cases, a_fault_after_the_patience_convicts);
	tcase_add_test(cases, behind_a_guess_nobody_is_told_before_all_is_repeated);
	tcase_add_loop_test(cases, guilt_explains_the_loss_before_where_the_same_was_in_doubt, 0, 2);
	tcase_add_test(cases, the_crowds_executor_dies);
	tcase_add_test(cases, who_is_released_in_the_middle_of_a_promotion_is_served_after_it);
	tcase_add_loop_test(cases, a_suspect_that_ends_makes_room, 0, 2);
	tcase_add_test(cases, requests_wait_for_the_trial);
	tcase_add_loop_test(cases, who_is_not_tried, 0, 3);
	return suite_run(suite);
}
