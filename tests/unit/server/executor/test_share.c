// How much of the device a session may have: pauses, weights, classes. Time is the test's. Shares
// are looked at with a device of the test: it works off one command after the other in the order in
// which they came.

#include <stdlib.h>

#include "server/clock.h"
#include "server/executor/drain.h"
#include "server/executor/hold.h"
#include "server/executor/serve.h"
#include "server/executor/sharing.h"
#include "tests/unit/server/executor/fixture.h"

/* As the daemon does. */
static void set_share(uint32_t share)
{
	word_release(&fixture.tenant->view.server->share, share);
}

/* ---- pauses ---- */

TEST(pauses, a_paused_session_issues_nothing_until_it_is_resumed)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	set_share(SHM_SHARE_PAUSED);
	fixture_launch(1, 0, 2);
	fixture_launch(2, 0, 3);
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	/* It stays on the ring, and nobody has to look. */
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].journaled), 1);
	fake_arrive();
	fixture_pass(1000);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
	set_share(0);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
}

TEST(pauses, what_a_paused_session_has_on_the_device_is_known_to_end)
{
	fixture_launch(1, 0, 1);
	ck_assert(serve_turn(fixture.tenant, fixture.now));
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
	set_share(SHM_SHARE_PAUSED);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 1);
}

TEST(pauses, what_waits_in_software_waits_on)
{
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_launch(1, 0, 2);
	fixture_turn();
	set_share(SHM_SHARE_PAUSED);
	word_release(&fixture.client.client->host[1].done, 1);
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_done(1), 0);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	set_share(0);
	fixture_turn();
	ck_assert_uint_eq(fixture_done(1), 1);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}

TEST(pauses, a_next_executor_finds_it_paused)
{
	fixture_launch(1, 0, 1);
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_launch(1, 0, 3);
	fixture_turn();
	fake_arrive();
	fixture_turn();
	set_share(SHM_SHARE_PAUSED);
	fixture_launch(2, 0, 4);
	word_release(&fixture.client.client->host[1].done, 2);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_NOTHING), TAKEOVER_CLEAN);
	fake_reset();
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	set_share(0);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
}

TEST(pauses, a_paused_session_answers_the_main_thread)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	set_share(SHM_SHARE_PAUSED);
	fixture_launch(1, 0, 2);
	word_release(&fixture.tenant->asked, 1);
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&fixture.tenant->answered), 1);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}

/* ---- shares in the serving loop ---- */

TEST(turns, without_weights_nothing_is_counted)
{
	fixture_launch(1, 0, 1);
	fixture_pass(1000);
	ck_assert_uint_eq(word_acquire(&fixture.executor.sharing), 0);
	ck_assert(!fixture.tenant->share.is_bound);
	ck_assert_uint_eq(fixture.tenant->share.looked_at, 0);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->device_ns), 0);
}

TEST(turns, a_weight_makes_queues_short_and_is_taken_back)
{
	const unsigned launches = 2 * SHARE_QUEUE_FIRST + 1;

	set_share(300);
	for (unsigned i = 0; i < launches; i++)
		fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), SHARE_QUEUE_FIRST);
	ck_assert_uint_le(serve_next_look(fixture.tenant, fixture.now), fixture.now + SHARE_LOOK_NS);
	/* The rest waits in the journal. */
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].journaled), launches);
	fixture.now += CLOCK_MS;
	fake_arrive();
	fixture_turn();
	ck_assert_uint_gt(fake_count(FAKE_LAUNCH), SHARE_QUEUE_FIRST);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->device_ns), CLOCK_MS);
	set_share(0);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), launches);
	ck_assert_uint_eq(word_acquire(&fixture.executor.sharing), 0);
	ck_assert(!fixture.tenant->share.is_bound);
	ck_assert(TAILQ_EMPTY(&fixture.executor.shares.listed));
}

TEST(turns, who_has_no_work_is_not_looked_at)
{
	set_share(SHM_SHARE_OFFLINE);
	fixture_launch(1, 0, 1);
	fixture_turn();
	fixture_pass(100);
	ck_assert(fixture.tenant->share.is_listed);
	fake_arrive();
	fixture_pass(100);
	fixture_pass(1000);
	ck_assert(!fixture.tenant->share.is_listed);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
}

/* Nor holds anybody back, whatever it has left in the journal. */
TEST(turns, who_was_told_its_end_has_no_turn)
{
	set_share(300);
	for (unsigned i = 0; i < 2 * SHARE_QUEUE_FIRST; i++)
		fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), SHARE_QUEUE_FIRST);
	tenant_tell_end(fixture.tenant, SHM_SESSION_FAULTED, CUDA_ERROR_ILLEGAL_ADDRESS, "");
	fake_arrive();
	fixture_pass(1000);
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), SHARE_QUEUE_FIRST);
	ck_assert(!fixture.tenant->share.is_listed);
	/* Nor does anybody leave room for it any more. */
	fixture_pass(CAP_LEND_NS / CLOCK_US);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
}

TEST(turns, a_next_executor_counts_on)
{
	set_share(300);
	fixture_launch(1, 0, 1);
	fixture_turn();
	fixture_pass(1000);
	fake_arrive();
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&fixture.client.server->device_ns), CLOCK_MS);
	sharing_leave(fixture.tenant);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_NOTHING), TAKEOVER_CLEAN);
	fixture_launch(1, 0, 2);
	fixture_turn();
	fixture_pass(2000);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->device_ns), 3 * CLOCK_MS);
}

/* ---- shares of a device ---- */

#define STEP_NS	 (20 * CLOCK_US)
#define SECOND	 (1000 * CLOCK_MS)
#define PROGRAMS 8u
#define QUEUE	 4096u

struct program {
	struct share share;
	uint64_t command_ns;
	uint64_t rests_ns;	  /* between the end of its work and the next; 0: it always has more */
	bool is_away, is_endless; /* it has no work; its work does not end and is in nobody's way */
	uint64_t undone, back_at;
	uint64_t used; /* ns of the device, as it was */
};

static struct bench {
	struct shares shares;
	word32 on;
	struct program programs[PROGRAMS];
	unsigned count;
	struct program *queue[QUEUE]; /* of the device */
	unsigned first, last;
	uint64_t began_at, now;
	uint64_t deepest; /* commands of the first one on the device while the second had work */
} bench;

static void add_program(uint32_t share, uint64_t command_ns, uint64_t rests_ns)
{
	struct program *program = &bench.programs[bench.count++];

	*program = (struct program){.command_ns = command_ns, .rests_ns = rests_ns};
	share_init(&program->share);
	share_set(&bench.shares, &program->share, share);
}

static void open_bench(void)
{
	bench = (struct bench){.now = SECOND};
	shares_init(&bench.shares, &bench.on);
}

static void close_bench(void)
{
	for (unsigned i = 0; i < bench.count; i++) {
		share_set(&bench.shares, &bench.programs[i].share, 0);
		share_leave(&bench.shares, &bench.programs[i].share);
	}
	ck_assert_uint_eq(bench.on, 0);
	ck_assert_uint_eq(bench.shares.present, 0);
	ck_assert(TAILQ_EMPTY(&bench.shares.listed));
	shares_deinit(&bench.shares);
}

/* The device works until now. */
static void work_off(void)
{
	while (bench.first != bench.last) {
		struct program *program = bench.queue[bench.first % QUEUE];

		if (bench.began_at + program->command_ns > bench.now)
			return;
		bench.began_at += program->command_ns;
		program->used += program->command_ns;
		bench.first++;
		if (!--program->undone)
			program->back_at = bench.began_at + program->rests_ns;
	}
	bench.began_at = bench.now;
}

static void issue(struct program *program)
{
	program->undone++;
	if (!program->is_endless)
		bench.queue[bench.last++ % QUEUE] = program;
	/* An assertion that holds writes as well. */
	if (bench.last - bench.first >= QUEUE)
		ck_abort_msg("more on the device than it has room for");
}

/* A turn of its serving thread. One that rests gives one command at a time. */
static void turn(struct program *program)
{
	bool one = program->rests_ns || program->is_endless;
	bool wants = !program->is_away && program->back_at <= bench.now && !(one && program->undone);
	struct share_sight sight = {wants, program->undone, program->undone ? 1 : 0};

	share_look(&bench.shares, &program->share, &sight, bench.now);
	while (wants && program->undone < program->share.credit) {
		issue(program);
		wants = !one;
	}
	share_note(&bench.shares, &program->share, program->undone, bench.now);
}

static void run(uint64_t ns)
{
	for (unsigned i = 0; i < bench.count; i++)
		bench.programs[i].used = 0;
	for (uint64_t end = bench.now + ns; bench.now < end; bench.now += STEP_NS) {
		work_off();
		for (unsigned i = 0; i < bench.count; i++)
			turn(&bench.programs[i]);
		if (bench.programs[1].undone && bench.programs[0].undone > bench.deepest)
			bench.deepest = bench.programs[0].undone;
	}
}

/* In thousandths of what all have had. */
static unsigned part_of(unsigned index)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < bench.count; i++)
		all += bench.programs[i].used;
	ck_assert_uint_gt(all, 0);
	return (unsigned)(bench.programs[index].used * 1000 / all);
}

static void expect_part(unsigned index, unsigned least, unsigned most)
{
	unsigned part = part_of(index);

	ck_assert_msg(part >= least && part <= most, "program %u has had %u of 1000, not %u to %u", index,
		part, least, most);
}

static const struct {
	unsigned count;
	uint32_t weights[PROGRAMS];
	uint64_t commands_us[PROGRAMS];
} crowds[] = {
	{2, {100, 300}, {100, 100}},
	{2, {300, 100}, {1000, 10}},
	{2, {100, 300}, {1000, 10}},
	{2, {1000, 100}, {10, 10}},
	{2, {101, 100}, {1000, 10}},
	{2, {50, 100}, {5000, 5000}},
	{4, {100, 200, 300, 400}, {50, 50, 50, 50}},
	{4, {100, 200, 300, 400}, {2000, 10, 500, 100}},
	{4, {400, 300, 200, 101}, {2000, 10, 500, 100}},
	{8, {101, 100, 100, 100, 100, 100, 100, 100}, {10, 20, 50, 100, 200, 500, 1000, 2000}},
	{8, {50, 100, 150, 200, 250, 300, 350, 400}, {100, 100, 100, 100, 100, 100, 100, 100}},
	{8, {400, 350, 300, 250, 200, 150, 100, 50}, {10, 20, 50, 100, 200, 500, 1000, 2000}},
};
#define CROWDS ((int)(sizeof(crowds) / sizeof(crowds[0])))

static void add_crowd(int index)
{
	for (unsigned i = 0; i < crowds[index].count; i++)
		add_program(crowds[index].weights[i], crowds[index].commands_us[i] * CLOCK_US, 0);
}

/* There may be hundreds, each with a thread that looks whenever it turns. */
TEST(shares, who_looks_again_soon_goes_through_nobody)
{
	const struct shares *shares = &bench.shares;
	const struct share *other = NULL;
	uint64_t counted;

	for (int i = 0; i < 3; i++)
		add_program(200, CLOCK_MS, 0);
	run(10 * CLOCK_MS);
	bench.now += SHARE_LOOK_NS;
	for (unsigned i = 0; i < 3; i++)
		turn(&bench.programs[i]);
	for (unsigned i = 0; i < 3; i++)
		if (shares->runner != &bench.programs[i].share && shares->first != &bench.programs[i].share)
			other = &bench.programs[i].share;
	ck_assert_ptr_nonnull(other);
	counted = other->each;
	bench.now += CLOCK_US;
	for (unsigned i = 0; i < 3; i++)
		if (&bench.programs[i].share != other)
			turn(&bench.programs[i]);
	ck_assert_uint_gt(shares->each, counted);
	ck_assert_uint_eq(other->each, counted);
	/* What has passed is counted later. */
	bench.now += SHARE_LOOK_NS;
	turn(&bench.programs[other == &bench.programs[0].share]);
	ck_assert_uint_eq(other->each, shares->each);
}

/* Within 5 % of the device, over a second. */
TEST_LOOP(shares, greedy_programs_have_their_weights, 0, CROWDS)
{
	unsigned sum = 0;

	add_crowd(_i);
	for (unsigned i = 0; i < bench.count; i++)
		sum += crowds[_i].weights[i];
	for (int second = 0; second < 3; second++) {
		run(SECOND);
		for (unsigned i = 0; i < bench.count; i++) {
			unsigned part = crowds[_i].weights[i] * 1000 / sum;

			expect_part(i, part > 50 ? part - 50 : 1, part + 50);
		}
	}
}

/* What is counted is what they have had. */
TEST_LOOP(shares, counted_time_is_time_of_the_device, 0, CROWDS)
{
	uint64_t before[PROGRAMS];

	add_crowd(_i);
	run(SECOND);
	for (unsigned i = 0; i < bench.count; i++)
		before[i] = bench.programs[i].share.used;
	run(SECOND);
	for (unsigned i = 0; i < bench.count; i++) {
		int64_t error =
			(int64_t)(bench.programs[i].share.used - before[i]) - (int64_t)bench.programs[i].used;

		ck_assert_int_le(llabs(error), (int64_t)(SECOND / 20));
	}
}

TEST(shares, nobody_loses_what_others_do_not_use)
{
	add_program(100, 100 * CLOCK_US, 0);
	add_program(900, 100 * CLOCK_US, 0);
	run(SECOND);
	expect_part(0, 50, 150);
	bench.programs[1].is_away = true;
	run(SECOND);
	ck_assert_uint_ge(bench.programs[0].used, SECOND - SECOND / 50);
	/* Nor do they save it up. */
	bench.programs[1].is_away = false;
	run(SECOND / 2);
	expect_part(0, 20, 150);
}

/* With short queues the device is never without work for long. */
TEST(shares, the_device_is_busy)
{
	add_program(100, 20 * CLOCK_US, 0);
	add_program(300, 3000 * CLOCK_US, 0);
	run(SECOND);
	ck_assert_uint_ge(bench.programs[0].used + bench.programs[1].used, SECOND - SECOND / 10);
}

/* It is not behind a greedy one's queue: a round is 1.1 ms at least, and that queue 1 ms. */
TEST(shares, a_light_program_is_not_kept_waiting)
{
	add_program(101, 100 * CLOCK_US, 0);
	add_program(100, 100 * CLOCK_US, CLOCK_MS);
	run(SECOND);
	ck_assert_uint_ge(bench.programs[1].used, SECOND / 1000 * 40);
	ck_assert_uint_ge(bench.programs[0].used, SECOND / 1000 * 700);
}

static const uint64_t alone_us[] = {1, 10, 100, 1000, 5000};

TEST_LOOP(shares, who_is_alone_has_the_whole_device, 0, 5)
{
	add_program(101, alone_us[_i] * CLOCK_US, 0);
	run(SECOND / 10);
	run(SECOND);
	ck_assert_uint_ge(bench.programs[0].used, SECOND - SECOND / 50);
	ck_assert_uint_ge(bench.programs[0].share.credit, 2);
}

/* It may wait for a kernel that is held back. */
TEST(shares, beside_a_kernel_that_does_not_end_everybody_goes_on)
{
	add_program(300, CLOCK_MS, 0);
	bench.programs[0].is_endless = true;
	add_program(100, 100 * CLOCK_US, 0);
	add_program(200, 100 * CLOCK_US, 0);
	run(SECOND);
	ck_assert_uint_eq(bench.programs[0].undone, 1);
	ck_assert_uint_ge(bench.programs[1].used, SECOND / 5);
	ck_assert_uint_ge(bench.programs[2].used, SECOND / 3);
}

/* Each of its streams may have a command there if nothing of it ends. */
TEST(shares, a_program_that_waits_for_itself_goes_on)
{
	struct share_sight stuck = {true, 1, 1}, greedy = {true, 4, 1};
	unsigned goes = 0;

	add_program(1, CLOCK_MS, 0);
	add_program(100, CLOCK_MS, 0);
	for (uint64_t end = bench.now + SECOND; bench.now < end; bench.now += STEP_NS) {
		share_look(&bench.shares, &bench.programs[0].share, &stuck, bench.now);
		goes += bench.programs[0].share.credit == 1;
		/* Of this one some work ends from time to time. */
		greedy.undone = 4 - bench.now / CLOCK_MS % 2;
		share_look(&bench.shares, &bench.programs[1].share, &greedy, bench.now);
	}
	ck_assert_uint_ge(goes, 9);
}

/* Its serving thread does not come back from the driver. */
TEST(shares, who_is_not_looked_after_holds_nobody_back)
{
	struct share_sight sight = {true, 0, 0};

	add_program(100, 100 * CLOCK_US, 0);
	add_program(900, 100 * CLOCK_US, 0);
	run(SECOND);
	share_look(&bench.shares, &bench.programs[1].share, &sight, bench.now);
	bench.count = 1;
	bench.now += SHARE_STALE_NS;
	run(SECOND);
	ck_assert_uint_ge(bench.programs[0].used, SECOND - SECOND / 10);
	bench.count = 2;
}

TEST(shares, offline_work_runs_where_online_has_none)
{
	add_program(SHM_SHARE_OFFLINE, CLOCK_MS, 0);
	add_program(0, 100 * CLOCK_US, 0);
	bench.programs[1].is_away = true;
	run(SECOND);
	ck_assert_uint_ge(bench.programs[0].used, SECOND - SECOND / 10);
	/* Somebody may come. */
	ck_assert_uint_le(bench.programs[0].share.credit, 2);
}

static const uint64_t offline_us[] = {10, 100, 1000, 5000, 20000};

TEST_LOOP(shares, online_work_comes_first_and_offline_keeps_a_least_share, 0, 5)
{
	add_program(SHM_SHARE_OFFLINE | 1000, offline_us[_i] * CLOCK_US, 0);
	add_program(1, 100 * CLOCK_US, 0);
	bench.programs[1].is_away = true;
	run(SECOND / 10);
	bench.programs[1].is_away = false;
	run(SECOND);
	run(SECOND);
	expect_part(0, 3, offline_us[_i] > 15000 ? 50 : 20);
}

/* One command is all that is before it, and one whose turn has just come. */
TEST(shares, online_work_that_comes_does_not_wait_for_a_queue)
{
	add_program(SHM_SHARE_OFFLINE, CLOCK_MS, 0);
	add_program(0, 100 * CLOCK_US, 5 * CLOCK_MS);
	run(SECOND / 10);
	bench.deepest = 0;
	run(SECOND);
	ck_assert_uint_le(bench.deepest, 2);
	ck_assert_uint_ge(bench.programs[1].used, SECOND / 65 * 9 / 10);
	ck_assert_uint_ge(bench.programs[0].used, SECOND / 10 * 8);
}

TEST(shares, offline_programs_have_their_weights)
{
	add_program(SHM_SHARE_OFFLINE | 300, 100 * CLOCK_US, 0);
	add_program(SHM_SHARE_OFFLINE, CLOCK_MS, 0);
	run(SECOND);
	expect_part(0, 700, 800);
}

TEST(shares, shares_change_while_they_run)
{
	add_program(300, 100 * CLOCK_US, 0);
	add_program(100, 100 * CLOCK_US, 0);
	run(SECOND);
	expect_part(0, 700, 800);
	share_set(&bench.shares, &bench.programs[1].share, 900);
	run(SECOND / 10);
	run(SECOND);
	expect_part(0, 200, 300);
	share_set(&bench.shares, &bench.programs[0].share, SHM_SHARE_OFFLINE);
	run(SECOND / 10);
	run(SECOND);
	expect_part(0, 1, 30);
}

int main(void)
{
	Suite *suite = suite_create("share");
	TCase *pauses = tcase_create("pauses"), *turns = tcase_create("turns"),
	      *shares = tcase_create("shares");

	tcase_add_checked_fixture(pauses, fixture_open_default, fixture_close);
	suite_add(pauses, "pauses");
	tcase_add_checked_fixture(turns, fixture_open_default, fixture_close);
	suite_add(turns, "turns");
	tcase_add_checked_fixture(shares, open_bench, close_bench);
	suite_add(shares, "shares");
	suite_add_tcase(suite, pauses);
	suite_add_tcase(suite, turns);
	suite_add_tcase(suite, shares);
	return suite_run(suite);
}
