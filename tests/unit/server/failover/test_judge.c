// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Verdicts from evidence.

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/failover/judge.h"
#include "tests/lib/suite.h"

static const struct judge_session one_busy[] = {{1, false}, {2, true}, {3, false}};
static const struct judge_session two_busy[] = {{1, true}, {2, true}};

static struct judge_evidence words(uint64_t session, int32_t code)
{
	struct judge_evidence evidence = {.exit_signal = SIGKILL, .killed = true};

	evidence.words = (struct last_words){.magic = LAST_WORDS_MAGIC,
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

START_TEST(of_two_at_work_nobody_is_blamed)
{
	struct judge_evidence evidence = {.lost = true, .lost_code = 700};
	struct judge_verdict verdict;

	judge(&evidence, two_busy, 2, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
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

	memset(evidence.words.kernel, 'x', sizeof(evidence.words.kernel));
	judge(&evidence, two_busy, 2, &verdict);
	ck_assert_uint_eq(strlen(verdict.kernel), sizeof(verdict.kernel) - 1);
}
END_TEST

START_TEST(doubt_is_what_is_issued_and_not_done)
{
	struct shm_view view;
	struct wire_shape shape;
	int client_fd, server_fd;

	shm_shape_init(&shape, SHM_RING_BYTES, 65536, 16);
	ck_assert_int_eq(shm_region_new(&shape, &client_fd, &server_fd), 0);
	ck_assert_int_eq(shm_view_map(&view, &shape, client_fd, server_fd, SHM_SIDE_SERVER), 0);
	ck_assert(!judge_in_doubt(&view));
	word_set(&view.states[SHM_STREAMS - 1].journaled, 6);
	ck_assert(!judge_in_doubt(&view));
	word_set(&view.states[SHM_STREAMS - 1].issued, 5);
	ck_assert(judge_in_doubt(&view));
	word_set(&shm_view_timeline(&view, 1)->stream[SHM_STREAMS - 1].done, 5);
	ck_assert(!judge_in_doubt(&view));
	/* Only the generation in the header counts. */
	word_set(&view.server->generation, 2);
	ck_assert(judge_in_doubt(&view));
	shm_view_unmap(&view);
	close(client_fd);
	close(server_fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("judge");
	TCase *tests = suite_case(suite, "judge");

	tcase_add_test(tests, last_words_convict);
	tcase_add_test(tests, words_about_a_session_that_is_gone_blame_nobody);
	tcase_add_test(tests, the_only_one_at_work_is_convicted_of_a_fault);
	tcase_add_test(tests, of_two_at_work_nobody_is_blamed);
	tcase_add_test(tests, words_without_a_session_leave_the_only_one);
	tcase_add_loop_test(tests, death_alone_is_judged_by_its_kind, 0, sizeof(ends) / sizeof(ends[0]));
	tcase_add_test(tests, unterminated_name_in_the_words_is_cut);
	tcase_add_test(tests, doubt_is_what_is_issued_and_not_done);
	return suite_run(suite);
}
