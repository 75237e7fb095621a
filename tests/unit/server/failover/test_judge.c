// Verdicts from evidence.

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/failover/doubt.h"
#include "server/failover/judge.h"
#include "tests/lib/suite.h"

static const struct judge_session one_busy[] = {
	{.session = 1}, {.session = 2, .in_doubt = true}, {.session = 3}};
static const struct judge_session two_busy[] = {
	{.session = 1, .in_doubt = true}, {.session = 2, .in_doubt = true}};

static struct judge_evidence words(uint64_t session, int32_t code)
{
	struct judge_evidence evidence = {.exit_signal = SIGKILL, .killed = true};

	evidence.words[0] = (struct last_words){.magic = LAST_WORDS_MAGIC,
		.code = code,
		.session = session,
		.seq = 9,
		.stream = 4,
		.kernel = "k"};
	return evidence;
}

START_TEST(last_words_convict)
{
	struct judge_evidence evidence = words(2, 715);
	struct judge_verdict verdict;

	judge(&evidence, two_busy, 2, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_LAST_WORDS);
	ck_assert_uint_eq(verdict.culprit, 2);
	ck_assert_int_eq(verdict.code, 715);
	ck_assert_str_eq(verdict.kernel, "k");
	ck_assert_uint_eq(verdict.seq, 9);
}
END_TEST

START_TEST(words_about_a_session_that_is_gone_blame_nobody)
{
	struct judge_evidence evidence = words(77, 715);
	struct judge_verdict verdict;

	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
	ck_assert_uint_eq(verdict.culprit, 0);
	ck_assert_int_eq(verdict.code, 715);
}
END_TEST

/* The executor knows only of sessions that it has. One that has left may have been it, unless the words are those of
 * the kernel that faulted. */
START_TEST(who_alone_had_work_is_not_convicted_for_one_that_is_gone)
{
	struct judge_evidence evidence = words(2, 715);
	struct judge_verdict verdict;

	evidence.gone = true;
	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
	ck_assert_uint_eq(verdict.culprit, 0);
	ck_assert(!verdict.gone);
	ck_assert_int_eq(verdict.code, 715);
	ck_assert_str_eq(verdict.kernel, "");
	evidence.words[0].signal = SIGSEGV;
	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_uint_eq(verdict.culprit, 2);
	/* It is that one. */
	evidence = words(77, 715);
	evidence.gone = true;
	judge(&evidence, one_busy, 3, &verdict);
	ck_assert(verdict.gone);
}
END_TEST

START_TEST(the_only_one_at_work_is_convicted_of_a_fault)
{
	struct judge_evidence evidence = {
		.lost = true, .lost_code = 700, .exit_signal = SIGKILL, .killed = true};
	struct judge_verdict verdict;

	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_ONLY_ONE);
	ck_assert_uint_eq(verdict.culprit, 2);
	ck_assert_int_eq(verdict.code, 700);
}
END_TEST

/* What crashed in no kernel was loading code, or the like. */
START_TEST(a_crash_beside_a_request_is_nobodys_fault)
{
	struct judge_evidence evidence = {.exit_signal = SIGSEGV, .asked = true};
	struct judge_verdict verdict;

	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_NO_FAULT);
	evidence.words[0] = (struct last_words){.magic = LAST_WORDS_MAGIC, .code = 700, .signal = SIGSEGV};
	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_NO_FAULT);
	ck_assert_uint_eq(verdict.culprit, 0);
	/* Unless it says that it was one, or somebody who knows speaks of a fault. */
	evidence.words[0].session = 2;
	judge(&evidence, two_busy, 2, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_LAST_WORDS);
	evidence.words[0].session = 0;
	evidence.lost = true;
	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_ONLY_ONE);
	/* And without a request there is nothing else that it can have been. */
	evidence.lost = evidence.asked = false;
	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_ONLY_ONE);
}
END_TEST

START_TEST(a_silence_alone_is_nobodys_doing)
{
	struct judge_evidence evidence = {
		.suspected = true, .silent = true, .graceful = _i != 0, .suspects = 1, .killed = true};
	struct judge_verdict verdict;

	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
	ck_assert_uint_eq(verdict.culprit, 0);
	/* Somebody who knows speaks of a fault as well. */
	evidence.lost = true;
	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_uint_eq(verdict.culprit, 2);
}
END_TEST

START_TEST(of_two_at_work_nobody_is_blamed)
{
	struct judge_evidence evidence = {.lost = true, .lost_code = 700};
	struct judge_verdict verdict;

	judge(&evidence, two_busy, 2, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
	ck_assert_uint_eq(verdict.culprit, 0);
}
END_TEST

/* The mark of a kernel that faulted may come before any sign. */
START_TEST(whoever_had_work_shortly_before_may_have_been_it)
{
	struct judge_evidence evidence = {.lost = true, .lost_code = 700};
	struct judge_session sessions[2] = {{.session = 1, .in_doubt = true}, {.session = 2, .worked = true}};
	struct judge_verdict verdict;

	judge(&evidence, sessions, 2, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
	ck_assert_uint_eq(verdict.culprit, 0);
	sessions[0].in_doubt = false;
	judge(&evidence, sessions, 2, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_ONLY_ONE);
	ck_assert_uint_eq(verdict.culprit, 2);
	/* Unless it is one that has left. */
	evidence.gone = true;
	judge(&evidence, sessions, 2, &verdict);
	ck_assert_uint_eq(verdict.culprit, 0);
}
END_TEST

/* Histories of sessions 1, 2, 3, all in doubt, the number of suspects, and the culprit. */
static const struct {
	enum judge_history histories[3];
	uint32_t suspects;
	uint64_t culprit;
} eliminations[] = {
	{{JUDGE_WENT_ON, JUDGE_AGAIN, JUDGE_WENT_ON}, 3, 2},
	{{JUDGE_WENT_ON, JUDGE_AGAIN, JUDGE_NO_SUSPECT}, 2, 2},
	/* One of the suspects is not here any more: it may have been that one. */
	{{JUDGE_WENT_ON, JUDGE_AGAIN, JUDGE_WENT_ON}, 4, 0},
	{{JUDGE_WENT_ON, JUDGE_AGAIN, JUDGE_OPEN}, 3, 0},
	{{JUDGE_WENT_ON, JUDGE_AGAIN, JUDGE_AGAIN}, 3, 0},
	{{JUDGE_WENT_ON, JUDGE_WENT_ON, JUDGE_WENT_ON}, 3, 0},
	{{JUDGE_NO_SUSPECT, JUDGE_AGAIN, JUDGE_NO_SUSPECT}, 1, 0},
	{{JUDGE_NO_SUSPECT, JUDGE_NO_SUSPECT, JUDGE_NO_SUSPECT}, 0, 0},
};

START_TEST(the_suspect_that_is_left_over_is_convicted)
{
	struct judge_evidence evidence = {
		.lost = true, .lost_code = 700, .suspects = eliminations[_i].suspects};
	struct judge_session sessions[3];
	struct judge_verdict verdict;

	for (uint32_t i = 0; i < 3; i++)
		sessions[i] = (struct judge_session){
			.session = i + 1, .in_doubt = true, .history = eliminations[_i].histories[i]};
	judge(&evidence, sessions, 3, &verdict);
	ck_assert_uint_eq(verdict.culprit, eliminations[_i].culprit);
	ck_assert_int_eq(verdict.ground, eliminations[_i].culprit ? JUDGE_LEFT_OVER : JUDGE_UNKNOWN);
	/* Without a sign of a fault there is nothing to convict of. */
	evidence = (struct judge_evidence){.killed = true, .suspects = eliminations[_i].suspects};
	judge(&evidence, sessions, 3, &verdict);
	ck_assert_uint_eq(verdict.culprit, 0);
}
END_TEST

START_TEST(words_without_a_session_leave_the_only_one)
{
	struct judge_evidence evidence = words(0, 719);
	struct judge_verdict verdict;

	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_uint_eq(verdict.culprit, 2);
	ck_assert_int_eq(verdict.code, 719);
}
END_TEST

/* Signal, whether we sent it, whether it is a sign of a fault. */
static const struct {
	int signal;
	bool killed, fault;
} ends[] = {{SIGSEGV, false, true}, {SIGFPE, false, true}, {SIGKILL, false, false}, {SIGKILL, true, false},
	{SIGTERM, false, false}, {0, false, false}};

START_TEST(death_alone_is_judged_by_its_kind)
{
	struct judge_evidence evidence = {.exit_signal = ends[_i].signal, .killed = ends[_i].killed};
	struct judge_verdict verdict;

	judge(&evidence, one_busy, 3, &verdict);
	ck_assert_int_eq(verdict.ground, ends[_i].fault ? JUDGE_ONLY_ONE : JUDGE_NO_FAULT);
	ck_assert_uint_eq(verdict.culprit, ends[_i].fault ? 2 : 0);
	ck_assert_int_eq(verdict.code, CUDA_ERROR_LAUNCH_FAILED);
}
END_TEST

START_TEST(unterminated_name_in_the_words_is_cut)
{
	struct judge_evidence evidence = words(2, 700);
	struct judge_verdict verdict;

	memset(evidence.words[0].kernel, 'x', sizeof(evidence.words[0].kernel));
	judge(&evidence, two_busy, 2, &verdict);
	ck_assert_uint_eq(strlen(verdict.kernel), sizeof(verdict.kernel) - 1);
}
END_TEST

static struct shm_view view;
static int client_fd, server_fd;

static void make_session(void)
{
	struct wire_shape shape;

	shm_shape_init(&shape, SHM_RING_BYTES, 65536, 16);
	ck_assert_int_eq(shm_region_new(&shape, &client_fd, &server_fd), 0);
	ck_assert_int_eq(shm_view_map(&view, &shape, client_fd, server_fd, SHM_SIDE_SERVER), 0);
	word_set(&view.server->generation, 1);
}

static void free_session(void)
{
	shm_view_unmap(&view);
	close(client_fd);
	close(server_fd);
}

static void set_done(uint32_t slot, uint64_t done)
{
	word_set(&shm_view_timeline(&view, 1)->stream[slot].done, done);
}

static void set_stream(uint32_t slot, uint64_t issued, uint64_t done)
{
	word_set(&view.states[slot].issued, issued);
	word_set(&view.states[slot].marked, issued);
	set_done(slot, done);
}

START_TEST(doubt_is_what_is_issued_and_not_done)
{
	make_session();
	ck_assert(!shm_view_in_doubt(&view));
	word_set(&view.states[SHM_STREAMS - 1].journaled, 6);
	ck_assert(!shm_view_in_doubt(&view));
	word_set(&view.states[SHM_STREAMS - 1].issued, 5);
	word_set(&view.states[SHM_STREAMS - 1].marked, 5);
	ck_assert(shm_view_in_doubt(&view));
	set_done(SHM_STREAMS - 1, 5);
	ck_assert(!shm_view_in_doubt(&view));
	/* Only the generation in the header counts. */
	word_set(&view.server->generation, 2);
	ck_assert(shm_view_in_doubt(&view));
	free_session();
}
END_TEST

START_TEST(doubt_names_the_commands)
{
	struct doubt then, now;

	make_session();
	doubt_init(&then, &view);
	ck_assert_uint_eq(then.count, 0);
	ck_assert(doubt_is_done(&then, &view));
	for (uint32_t slot = 0; slot < 5; slot++)
		set_stream(slot, 10 + slot, slot == 3 ? 13 : 4);
	doubt_init(&then, &view);
	ck_assert_uint_eq(then.count, 4);
	ck_assert_uint_eq(then.ranges[3].slot, 4);
	ck_assert_uint_eq(then.ranges[3].first, 5);
	ck_assert_uint_eq(then.ranges[3].last, 14);
	ck_assert(!doubt_is_done(&then, &view));

	/* The same commands, and one more. */
	set_stream(4, 15, 4);
	doubt_init(&now, &view);
	ck_assert(doubt_holds(&now, &then));
	ck_assert(!doubt_holds(&then, &now));
	doubt_deinit(&now);
	/* One of them is done. */
	set_stream(4, 15, 5);
	doubt_init(&now, &view);
	ck_assert(!doubt_holds(&now, &then));
	doubt_deinit(&now);
	/* A stream is not in doubt. */
	set_stream(4, 14, 14);
	doubt_init(&now, &view);
	ck_assert(!doubt_holds(&now, &then));
	doubt_deinit(&now);
	doubt_deinit(&then);
	doubt_deinit(&then);
	free_session();
}
END_TEST

START_TEST(doubt_is_done_before_it_is_passed)
{
	struct doubt then;

	make_session();
	set_stream(1, 9, 3);
	set_stream(7, 5, 4);
	doubt_init(&then, &view);
	set_stream(1, 12, 9);
	ck_assert(!doubt_is_done(&then, &view));
	set_stream(7, 5, 5);
	ck_assert(doubt_is_done(&then, &view));
	ck_assert(!doubt_is_passed(&then, &view));
	set_stream(1, 12, 10);
	ck_assert(!doubt_is_passed(&then, &view));
	set_stream(7, 6, 6);
	ck_assert(doubt_is_passed(&then, &view));
	doubt_deinit(&then);
	free_session();
}
END_TEST

/* The device's kernels can write there, too. */
START_TEST(a_word_beyond_the_marks_ends_no_doubt)
{
	struct doubt then;

	make_session();
	set_stream(1, 9, 3);
	doubt_init(&then, &view);
	word_set(&view.states[1].marked, 5);
	set_done(1, UINT64_MAX);
	ck_assert(shm_view_in_doubt(&view));
	ck_assert(!doubt_is_done(&then, &view));
	ck_assert(!doubt_is_passed(&then, &view));
	doubt_deinit(&then);
	/* What was marked may be done: nobody can tell. */
	doubt_init(&then, &view);
	ck_assert_uint_eq(then.count, 1);
	ck_assert_uint_eq(then.ranges[0].first, 6);
	ck_assert_uint_eq(then.ranges[0].last, 9);
	doubt_deinit(&then);
	free_session();
}
END_TEST

START_TEST(what_two_doubts_have_in_common)
{
	struct doubt common, now;

	make_session();
	set_stream(1, 9, 3);
	set_stream(7, 5, 4);
	doubt_init(&common, &view);
	set_stream(1, 12, 6);
	set_stream(7, 5, 5);
	set_stream(8, 5, 4);
	doubt_init(&now, &view);
	ck_assert(doubt_intersect(&common, &now));
	ck_assert_uint_eq(common.count, 1);
	ck_assert_uint_eq(common.ranges[0].slot, 1);
	ck_assert_uint_eq(common.ranges[0].first, 7);
	ck_assert_uint_eq(common.ranges[0].last, 9);
	doubt_deinit(&now);
	set_stream(1, 12, 9);
	doubt_init(&now, &view);
	ck_assert(!doubt_intersect(&common, &now));
	doubt_deinit(&now);
	doubt_deinit(&common);
	free_session();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("judge");
	TCase *tests = suite_case(suite, "judge");

	tcase_add_test(tests, last_words_convict);
	tcase_add_test(tests, words_about_a_session_that_is_gone_blame_nobody);
	tcase_add_test(tests, who_alone_had_work_is_not_convicted_for_one_that_is_gone);
	tcase_add_test(tests, the_only_one_at_work_is_convicted_of_a_fault);
	tcase_add_test(tests, a_crash_beside_a_request_is_nobodys_fault);
	tcase_add_loop_test(tests, a_silence_alone_is_nobodys_doing, 0, 2);
	tcase_add_test(tests, of_two_at_work_nobody_is_blamed);
	tcase_add_test(tests, whoever_had_work_shortly_before_may_have_been_it);
	tcase_add_loop_test(tests, the_suspect_that_is_left_over_is_convicted, 0,
		sizeof(eliminations) / sizeof(eliminations[0]));
	tcase_add_test(tests, words_without_a_session_leave_the_only_one);
	tcase_add_loop_test(tests, death_alone_is_judged_by_its_kind, 0, sizeof(ends) / sizeof(ends[0]));
	tcase_add_test(tests, unterminated_name_in_the_words_is_cut);
	tcase_add_test(tests, doubt_is_what_is_issued_and_not_done);
	tcase_add_test(tests, doubt_names_the_commands);
	tcase_add_test(tests, doubt_is_done_before_it_is_passed);
	tcase_add_test(tests, a_word_beyond_the_marks_ends_no_doubt);
	tcase_add_test(tests, what_two_doubts_have_in_common);
	return suite_run(suite);
}
