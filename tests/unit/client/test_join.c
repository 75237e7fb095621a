// Tests of client/submit/join.c: who waits for whom around the legacy default stream.

#include "client/submit/join.h"
#include "tests/lib/suite.h"

static struct client_stream legacy, a, b, other;
static struct join join;
static uint64_t done_of_a;

static bool done(const struct client_stream *stream, uint64_t seq)
{
	return stream == &a && seq <= done_of_a;
}

static void setup(void)
{
	legacy = (struct client_stream){.slot = 0};
	a = (struct client_stream){.slot = 1, .blocking = true};
	b = (struct client_stream){.slot = 2, .blocking = true};
	other = (struct client_stream){.slot = 3, .blocking = false};
	join = (struct join){.legacy = &legacy};
	done_of_a = 0;
}

/* A command of the stream. Return: a bit for each stream that it waits for. */
static unsigned int command(struct client_stream *stream)
{
	struct client_stream *on;
	unsigned int waits = 0;
	uint64_t seq;

	while (join_next(&join, stream, done, &on, &seq)) {
		ck_assert_uint_eq(seq, on == join.early && stream->early_joined != join.early_count
					       ? join.early_seq
					       : on->last);
		waits |= 1u << on->slot;
		join_made(&join, stream, on, seq);
	}
	++stream->last;
	join_note(&join, stream);
	return waits;
}

#define LEGACY 1u
#define A      2u
#define B      4u

TEST(join, alone_nobody_waits)
{
	ck_assert_uint_eq(command(&legacy), 0);
	ck_assert_uint_eq(command(&legacy), 0);
	setup();
	ck_assert_uint_eq(command(&a), 0);
	ck_assert_uint_eq(command(&b), 0);
	ck_assert_uint_eq(command(&a), 0);
}

TEST(join, legacy_waits_for_the_blocking_streams_once)
{
	command(&a);
	command(&b);
	command(&b);
	ck_assert_uint_eq(command(&legacy), A | B);
	ck_assert_uint_eq(command(&legacy), 0);
	command(&b);
	ck_assert_uint_eq(command(&legacy), B);
}

TEST(join, blocking_streams_wait_for_legacy_once)
{
	command(&legacy);
	ck_assert_uint_eq(command(&a), LEGACY);
	ck_assert_uint_eq(command(&a), 0);
	ck_assert_uint_eq(command(&b), LEGACY);
	command(&legacy);
	ck_assert_uint_eq(command(&a), LEGACY);
}

TEST(join, other_streams_have_no_part_in_it)
{
	command(&legacy);
	ck_assert_uint_eq(command(&other), 0);
	ck_assert_uint_eq(command(&legacy), 0);
}

TEST(join, a_slot_that_is_used_again_is_another_stream)
{
	command(&a);
	done_of_a = a.last;
	a.blocking = false;
	command(&a);
	ck_assert_uint_eq(command(&legacy), 0);
	done_of_a = a.last;
	a.blocking = true;
	command(&a);
	ck_assert_uint_eq(command(&legacy), A);
}

TEST(join, finished_work_is_not_waited_for)
{
	command(&a);
	done_of_a = 1;
	ck_assert_uint_eq(command(&legacy), 0);
	command(&a);
	ck_assert_uint_eq(command(&legacy), A);
}

TEST(join, a_stop_in_the_middle_forgets_nothing)
{
	struct client_stream *on;
	uint64_t seq;

	command(&a);
	command(&b);
	/* The first wait is written, the second finds no room; meanwhile one more command
	 * arrives. */
	ck_assert(join_next(&join, &legacy, done, &on, &seq));
	join_made(&join, &legacy, on, seq);
	ck_assert(join_next(&join, &legacy, done, &on, &seq));
	command(on);
	ck_assert_uint_eq(command(&legacy), 1u << on->slot);
	ck_assert_ptr_null(join.unjoined);
}

TEST(join, every_stream_waits_once_for_a_call_that_returned_early)
{
	command(&legacy);
	join_early(&join, &legacy, legacy.last);
	ck_assert_uint_eq(command(&other), LEGACY);
	ck_assert_uint_eq(command(&other), 0);
	/* Its own stream needs no wait. */
	ck_assert_uint_eq(command(&legacy), 0);
	ck_assert_uint_eq(command(&other), 0);
}

TEST(join, an_early_return_behind_another_covers_both)
{
	command(&a);
	join_early(&join, &a, a.last);
	/* A call on another stream: its command waits for the first one, so who waits for it waits
	 * for both.
	 */
	ck_assert_uint_eq(command(&other), A);
	join_early(&join, &other, other.last);
	ck_assert_uint_eq(command(&b), 1u << other.slot);
	ck_assert_uint_eq(command(&b), 0);
	/* What is done is no longer waited for. */
	done_of_a = ++a.last;
	join_early(&join, &a, a.last);
	ck_assert_uint_eq(command(&other), 0);
}

int main(void)
{
	Suite *suite = suite_create("join");
	TCase *cases = suite_case(suite, "join");

	tcase_add_checked_fixture(cases, setup, NULL);
	suite_add(cases, "join");
	return suite_run(suite);
}
