// Verdicts from evidence, and what sessions had in flight.

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/incident/in_flight.h"
#include "server/incident/judge.h"
#include "tests/lib/suite.h"

/* Those that are here. */
static const uint64_t sessions[] = {1, 2, 3};

static struct judge_evidence words(uint64_t session, int32_t code)
{
	struct judge_evidence evidence = {.exit_signal = SIGKILL};

	evidence.words[0] = (struct last_words){
		.magic = LAST_WORDS_MAGIC, .code = code, .session = session, .instruction = 9, .kernel = "k"};
	return evidence;
}

TEST(judge, last_words_convict)
{
	struct judge_evidence evidence = words(2, 715);
	struct judge_verdict verdict;

	evidence.lost = true;
	evidence.lost_code = 719;
	evidence.lost_address = 77;
	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_LAST_WORDS);
	ck_assert_uint_eq(verdict.culprit, 2);
	ck_assert(judge_blames(&verdict, 2) && !judge_blames(&verdict, 1) && !judge_blames(&verdict, 0));
	ck_assert_int_eq(verdict.code, 715);
	ck_assert_str_eq(verdict.kernel, "k");
	ck_assert_uint_eq(verdict.instruction, 9);
	ck_assert_uint_eq(verdict.address, 77);
}

TEST(judge, words_about_a_session_that_is_gone_blame_nobody)
{
	struct judge_evidence evidence = words(77, 715);
	struct judge_verdict verdict;

	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
	ck_assert_uint_eq(verdict.culprit, 0);
	ck_assert(verdict.gone && !verdict.others);
	ck_assert_int_eq(verdict.code, 715);
}

TEST(judge, words_without_a_session_blame_nobody)
{
	struct judge_evidence evidence = words(0, 719);
	struct judge_verdict verdict;

	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
	ck_assert_uint_eq(verdict.culprit, 0);
	ck_assert(!verdict.gone && !verdict.others);
	ck_assert_int_eq(verdict.code, 719);
}

TEST(judge, all_that_are_named_are_guilty)
{
	struct judge_evidence evidence = words(2, 700);
	struct judge_verdict verdict;

	evidence.words[1] = evidence.words[0];
	evidence.words[1].session = 3;
	evidence.words[2] = evidence.words[0];
	evidence.words[2].session = 0;
	evidence.words[2].fault = 3;
	judge(&evidence, sessions, 3, &verdict);
	ck_assert(judge_blames(&verdict, 2) && judge_blames(&verdict, 3) && !judge_blames(&verdict, 1));
	/* And somebody else. */
	ck_assert(verdict.others);
}

/* What crashed in no kernel was loading code, or the like. */
TEST(judge, a_crash_beside_a_request_is_nobodys_fault)
{
	struct judge_evidence evidence = {.exit_signal = SIGSEGV, .asked = true};
	struct judge_verdict verdict;

	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_NO_FAULT);
	/* Unless somebody who knows speaks of a fault. */
	evidence.lost = true;
	evidence.lost_code = 700;
	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
	ck_assert_int_eq(verdict.code, 700);
	evidence = words(2, 700);
	evidence.asked = true;
	evidence.exit_signal = SIGSEGV;
	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_LAST_WORDS);
}

TEST(judge, work_over_its_limit_is_blamed_where_there_was_no_fault)
{
	struct judge_evidence evidence = {.exit_signal = SIGKILL, .over_limit = 2};
	struct judge_verdict verdict;

	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_OVER_LIMIT);
	ck_assert_uint_eq(verdict.culprit, 2);
	ck_assert_int_eq(verdict.code, CUDA_ERROR_LAUNCH_TIMEOUT);
	evidence.suspected = true;
	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_UNKNOWN);
	evidence = (struct judge_evidence){.over_limit = 77};
	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, JUDGE_NO_FAULT);
}

/* Signal, whether it is a sign of a fault. */
static const struct {
	int signal;
	bool fault;
} ends[] = {{SIGSEGV, true}, {SIGFPE, true}, {SIGKILL, false}, {SIGTERM, false}, {0, false}};

TEST_LOOP(judge, death_alone_is_judged_by_its_kind, 0, sizeof(ends) / sizeof(ends[0]))
{
	struct judge_evidence evidence = {.exit_signal = ends[_i].signal};
	struct judge_verdict verdict;

	judge(&evidence, sessions, 3, &verdict);
	ck_assert_int_eq(verdict.ground, ends[_i].fault ? JUDGE_UNKNOWN : JUDGE_NO_FAULT);
	ck_assert_uint_eq(verdict.culprit, 0);
	ck_assert_int_eq(verdict.code, CUDA_ERROR_LAUNCH_FAILED);
}

TEST(judge, unterminated_name_in_the_words_is_cut)
{
	struct judge_evidence evidence = words(2, 700);
	struct judge_verdict verdict;

	memset(evidence.words[0].kernel, 'x', sizeof(evidence.words[0].kernel));
	judge(&evidence, sessions, 3, &verdict);
	ck_assert_uint_eq(strlen(verdict.kernel), sizeof(verdict.kernel) - 1);
}

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
	word_set(&shm_timeline_at(shm_view_timeline(&view, 1), slot)->done, done);
}

static void set_stream(uint32_t slot, uint64_t issued, uint64_t done)
{
	if (word_acquire(&view.server->streams) <= slot)
		word_set(&view.server->streams, slot + 1);
	word_set(&view.states[slot].issued, issued);
	word_set(&view.states[slot].marked, issued);
	set_done(slot, done);
}

TEST(judge, doubt_is_what_is_issued_and_not_done)
{
	make_session();
	ck_assert(!shm_view_in_doubt(&view));
	word_set(&view.server->streams, SHM_STREAMS);
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

TEST(judge, doubt_names_the_commands)
{
	struct in_flight then, copy;

	make_session();
	in_flight_init(&then, &view);
	ck_assert_uint_eq(then.count, 0);
	for (uint32_t slot = 0; slot < 5; slot++)
		set_stream(slot, 10 + slot, slot == 3 ? 13 : 4);
	in_flight_init(&then, &view);
	in_flight_copy(&copy, &then);
	in_flight_deinit(&then);
	in_flight_deinit(&then);
	ck_assert_uint_eq(copy.count, 4);
	ck_assert_uint_eq(copy.ranges[3].slot, 4);
	ck_assert_uint_eq(copy.ranges[3].first, 5);
	ck_assert_uint_eq(copy.ranges[3].last, 14);
	in_flight_deinit(&copy);
	free_session();
}

/* The device's kernels can write there, too. */
TEST(judge, a_word_beyond_the_marks_ends_no_doubt)
{
	struct in_flight then;

	make_session();
	set_stream(1, 9, 3);
	word_set(&view.states[1].marked, 5);
	set_done(1, UINT64_MAX);
	ck_assert(shm_view_in_doubt(&view));
	/* What was marked may be done: nobody can tell. */
	in_flight_init(&then, &view);
	ck_assert_uint_eq(then.count, 1);
	ck_assert_uint_eq(then.ranges[0].first, 6);
	ck_assert_uint_eq(then.ranges[0].last, 9);
	in_flight_deinit(&then);
	free_session();
}

TEST(judge, what_two_doubts_have_in_common)
{
	struct in_flight common, now;

	make_session();
	set_stream(1, 9, 3);
	set_stream(7, 5, 4);
	in_flight_init(&common, &view);
	set_stream(1, 12, 6);
	set_stream(7, 5, 5);
	set_stream(8, 5, 4);
	in_flight_init(&now, &view);
	ck_assert(in_flight_intersect(&common, &now));
	ck_assert_uint_eq(common.count, 1);
	ck_assert_uint_eq(common.ranges[0].slot, 1);
	ck_assert_uint_eq(common.ranges[0].first, 7);
	ck_assert_uint_eq(common.ranges[0].last, 9);
	in_flight_deinit(&now);
	set_stream(1, 12, 9);
	in_flight_init(&now, &view);
	ck_assert(!in_flight_intersect(&common, &now));
	in_flight_deinit(&now);
	in_flight_deinit(&common);
	free_session();
}

int main(void)
{
	Suite *suite = suite_create("judge");
	TCase *tests = suite_case(suite, "judge");

	suite_add(tests, "judge");
	return suite_run(suite);
}
