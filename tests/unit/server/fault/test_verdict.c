// What a verdict says, on each way to one: who, what, by which evidence, and how long each step
// took.

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/fault/promote.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static struct fake *fake;
static struct fake_child *first, *second;
static struct fake_client clients[2];

static void boot(void)
{
	fake = fake_new(1);
	fake_boot(fake);
	first = &fake->children[1];
	second = &fake->children[2];
	for (unsigned i = 0; i < 2; i++)
		fake_join(fake, &clients[i], first, second);
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	for (unsigned i = 0; i < 2; i++)
		fake_leave(fake, &clients[i]);
	fake_free(fake);
}

static void issue(unsigned index)
{
	struct session *session = fake_session(fake, index);
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	fake_issue(&session->view, 5);
	word_set(&session->view.server->active, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}

static void say(const struct wire_message *message)
{
	fake_send(fake, first->socket, message, NULL, 0);
}

static void run_until_killed(void)
{
	FAKE_RUN_WHILE(fake, !first->killed);
}

static void resume(void)
{
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), second->worker);
}

static void expect(const char *part)
{
	const char *text = fake_domain(fake)->promotion.verdict_text;

	ck_assert_msg(strstr(text, part), "no \"%s\" in \"%s\"", part, text);
}

static void expect_who(unsigned index)
{
	const struct session *session = fake_session(fake, index);
	char text[400];

	snprintf(text, sizeof(text), "culprit is process %d (%s), session %llu", (int)session->pid,
		session->program, (unsigned long long)session->number);
	expect(text);
}

TEST(verdict, a_fenced_executor)
{
	const struct wire_message lost = {.type = WIRE_LOST, .trouble = {.code = 700, .text = "it broke"}};

	boot();
	issue(0);
	issue(1);
	*first->words = (struct last_words){.code = 716,
		.session = fake_session(fake, 1)->number,
		.instruction = 0x5678,
		.kernel = "bad_kernel",
		.magic = LAST_WORDS_MAGIC};
	say(&lost);
	fake_reap(fake, first, SIGKILL);
	resume();
	expect_who(1);
	expect("kernel bad_kernel, code 716 CUDA_ERROR_MISALIGNED_ADDRESS, instruction at "
	       "0x5678, "
	       "named by the executor; told an error beside it: nobody");
	expect("; took ");
	expect(" ms (fencing ");
	expect(", judging ");
	expect(", activating it ");
	ck_assert_uint_gt(fake->daemon.counters.paused_us, 0);
	end();
}

/* Nobody said which kernel it was. */
TEST(verdict, a_fault_of_nobody_knows_whom)
{
	const struct wire_message lost = {.type = WIRE_LOST, .trouble = {.code = 715, .text = "it broke"}};

	boot();
	say(&lost);
	fake_serve(fake, first, WIRE_HALT);
	run_until_killed();
	resume();
	expect("nobody is proved guilty (nobody proved guilty), kernel (not known), code 715 "
	       "CUDA_ERROR_ILLEGAL_INSTRUCTION; told an error: nobody");
	expect(" ms (halting ");
	expect(", waiting for kernels ");
	expect(", judging ");
	end();
}

TEST(verdict, work_over_its_limit)
{
	boot();
	issue(0);
	fake->config.fault_patience_ms = 10;
	promote_over_limit(fake_domain(fake), fake_session(fake, 0));
	fake_serve(fake, first, WIRE_HALT);
	run_until_killed();
	resume();
	expect_who(0);
	expect("code 702 CUDA_ERROR_LAUNCH_TIMEOUT, over the limit of time");
	expect(" ms (halting ");
	end();
}

TEST(verdict, a_contained_fault)
{
	struct wire_message fault = {.type = WIRE_FAULT,
		.trouble = {.code = 719, .text = "bad_kernel", .instruction = 0x7f00, .took = 47230000}};

	boot();
	fault.session = fake_session(fake, 1)->number;
	say(&fault);
	expect_who(1);
	expect("kernel bad_kernel, code 719 CUDA_ERROR_LAUNCH_FAILED, instruction at 0x7f00, named by the "
	       "executor; "
	       "told an error beside it: nobody");
	expect("; contained in 47.2 ms");
	ck_assert_uint_eq(fake->daemon.counters.paused_us, 47230);
	end();
}

TEST(verdict, a_guard_hit)
{
	struct wire_message hit = {.type = WIRE_GUARD_HIT, .guard_hit.text = "3 words changed"};

	boot();
	fake->config.guard = CONFIG_GUARD_ERROR;
	hit.session = fake_session(fake, 1)->number;
	say(&hit);
	expect_who(1);
	expect("code 700 CUDA_ERROR_ILLEGAL_ADDRESS, its guard was hit; it is told, and nobody beside it: 3 "
	       "words changed");
	ck_assert_uint_eq(fake->daemon.counters.guard_hits, 1);
	fake->config.guard = CONFIG_GUARD_WARN;
	say(&hit);
	expect("not told");
	end();
}

/* Nobody had anything on the device: whatever was seen, it was none of theirs. */
TEST(verdict, a_sign_that_leads_nowhere)
{
	const struct wire_message suspect = {.type = WIRE_SUSPECT, .trouble.text = "a shadow"};

	boot();
	say(&suspect);
	fake_serve(fake, first, WIRE_HALT);
	run_until_killed();
	resume();
	expect("nobody is proved guilty (the sign led nowhere: no fault was found); told an error: nobody");
	expect("; sign: a shadow; took ");
	end();
}

int main(void)
{
	Suite *suite = suite_create("verdict");
	TCase *cases;

	fake_prepare();
	cases = suite_case(suite, "verdict");
	suite_add(cases, "verdict");
	return suite_run(suite);
}
