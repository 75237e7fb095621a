// The trace in parts: text of JSON, two clocks, and where records of times stand in the streams.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/submit.h"
#include "client/trace/align.h"
#include "client/trace/line.h"
#include "client/trace/turn.h"
#include "tests/lib/folder.h"
#include "tests/unit/client/shim.h"

static const char *quoted(const char *string)
{
	static char text[LINE_BYTES];
	struct trace_line line = {.text = text, .room = sizeof(text)};

	line_add_string(&line, string);
	return text;
}

TEST(parts, strings_of_anybody_are_json)
{
	static char most[3 * LINE_NAME_BYTES];

	ck_assert_str_eq(quoted("plain"), "\"plain\"");
	ck_assert_str_eq(quoted(NULL), "\"\"");
	ck_assert_str_eq(quoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
	ck_assert_str_eq(quoted("\n\x01"), "\"\\u000a\\u0001\"");
	ck_assert_str_eq(
		quoted("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
	/* Cut off, too long, half of a pair, beyond the last, without a beginning. */
	ck_assert_str_eq(quoted("\xc3"), "\"?\"");
	ck_assert_str_eq(quoted("\xc0\x80"), "\"??\"");
	ck_assert_str_eq(quoted("\xe0\x80\x80"), "\"???\"");
	ck_assert_str_eq(quoted("\xed\xa0\x80"), "\"???\"");
	ck_assert_str_eq(quoted("\xf4\x90\x80\x80"), "\"????\"");
	ck_assert_str_eq(quoted("\xa4x"), "\"?x\"");
	memset(most, '\n', sizeof(most) - 1);
	ck_assert_uint_eq(strlen(quoted(most)), 6 * LINE_NAME_BYTES + 2);
}

TEST(parts, times_are_microseconds)
{
	char text[32];
	struct trace_line line = {.text = text, .room = sizeof(text)};

	line_add_time(&line, UINT64_C(1234567890123007));
	ck_assert_str_eq(text, "1234567890123.007");
	/* Without room nothing is written. */
	line = (struct trace_line){0};
	line_add_time(&line, 1);
	line_add_string(&line, "text");
	ck_assert_uint_eq(line.used, 0);
}

#define AHEAD UINT64_C(5000000)

TEST(parts, the_shortest_way_says_where_the_clocks_are)
{
	struct align align = {0};

	align_see(&align, 1, 1000, 1000 + AHEAD + 700000);
	ck_assert_uint_eq(align_host(&align, 1000 + AHEAD + 700000), 1000);
	align_see(&align, 1, 2000, 2000 + AHEAD + 300);
	ck_assert_uint_eq(align_host(&align, AHEAD), (uint64_t)-300);
	/* Waited long: that says nothing. */
	align_see(&align, 1, 3000, 3000 + AHEAD + 900000);
	ck_assert_uint_eq(align_host(&align, 9000 + AHEAD), 9000 - 300);
	/* Another clock. */
	align_see(&align, 2, 4000, 4000 + 2 * AHEAD);
	ck_assert_uint_eq(align_host(&align, 4000 + 2 * AHEAD), 4000);
}

/* One command each millisecond goes at once, and the device's clock is fast, or slow. */
TEST_LOOP(parts, clocks_that_drift_are_followed, 0, 3)
{
	static const int drifts[] = {-50, 0, 50}; /* ns in a millisecond */
	int64_t drift = drifts[_i], ahead = (int64_t)AHEAD;
	struct align align = {0};

	for (uint64_t host = 1000000; host < 1000000000; host += 1000000, ahead += drift) {
		uint64_t now = host + (uint64_t)ahead;

		align_see(&align, 1, host, now + 5000);
		ck_assert_int_le(llabs((int64_t)(align_host(&align, now) - host)), 5100);
	}
}

/*
 * Where the records stand
 */

static void setup(void)
{
	shim_setup_service();
	folder_enter();
	setenv("FRMPS_TRACE", "trace.json", 1);
	shim_attach();
}

static void teardown(void)
{
	/* As exit() does. */
	turn_close();
	shim_teardown();
	folder_leave();
}

static const struct loopback_note *find(uint32_t stream, uint64_t seq)
{
	uint32_t count = word_acquire(&loopback->count);

	for (uint32_t i = 0; i < count && i < LOOPBACK_NOTES; i++)
		if (loopback->notes[i].stream == stream && loopback->notes[i].seq == seq)
			return &loopback->notes[i];
	return NULL;
}

/* Every fill stands between two records of its own. Return: how many fills there are */
static unsigned int check_fills(void)
{
	uint32_t count = word_acquire(&loopback->count);
	unsigned int fills = 0;

	for (uint32_t i = 0; i < count && i < LOOPBACK_NOTES; i++) {
		const struct loopback_note *note = &loopback->notes[i];

		if (note->op != FRMPS_OP_SET)
			continue;
		fills++;
		for (int distance = -2; distance <= 2; distance++) {
			const struct loopback_note *near = find(note->stream, note->seq + (uint64_t)distance);

			if (distance == -1 || distance == 1)
				ck_assert_uint_eq(near->op, FRMPS_OP_EVENT_RECORD);
			else if (distance && near)
				ck_assert_uint_ne(near->op, FRMPS_OP_SET);
		}
	}
	return fills;
}

TEST(records, a_command_is_between_its_records)
{
	const struct loopback_note *wait;
	CUstream stream;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	/* It waits for the other one, and its time does not. */
	OK(cuMemsetD8Async(p, 2, 64, stream));
	shim_resume();
	OK(cuStreamSynchronize(stream));
	OK(submit_drain());
	ck_assert_uint_eq(check_fills(), 2);
	for (uint32_t i = 0; i < word_acquire(&loopback->count); i++)
		if (loopback->notes[i].op == FRMPS_OP_DEPEND) {
			wait = &loopback->notes[i];
			ck_assert_uint_eq(find(wait->stream, wait->seq + 1)->op, FRMPS_OP_EVENT_RECORD);
			ck_assert_uint_eq(find(wait->stream, wait->seq + 2)->op, FRMPS_OP_SET);
			return;
		}
	ck_abort_msg("there is no wait");
}

#define THREADS 4
#define FILLS	200

static CUdeviceptr shared;

static void *fill(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(shim_context));
	for (int i = 0; i < FILLS; i++)
		OK(cuMemsetD8Async(shared, 1, 64, NULL));
	return NULL;
}

/* More commands than a stream's credit has room for, of threads that submit at once. */
TEST(records, nobody_comes_between)
{
	pthread_t threads[THREADS];

	OK(cuMemAlloc_v2(&shared, 64));
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, fill, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	OK(cuCtxSynchronize());
	OK(submit_drain());
	ck_assert_uint_lt(word_acquire(&loopback->count), LOOPBACK_NOTES);
	ck_assert_uint_eq(check_fills(), THREADS * FILLS);
}

int main(void)
{
	Suite *suite = suite_create("trace");
	TCase *parts = suite_case(suite, "parts");
	TCase *records = suite_case(suite, "records");

	suite_add(parts, "parts");
	tcase_add_checked_fixture(records, setup, teardown);
	suite_add(records, "records");
	return suite_run(suite);
}
