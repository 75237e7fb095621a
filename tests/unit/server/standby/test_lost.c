// Device memory of a set that a single program has mapped, which ends while the memory is away:
// executors copy into mappings alone. Who still has that memory ends, and nobody else.

#include <string.h>

#include "server/session/session.h"
#include "server/standby/swap.h"
#include "tests/unit/server/daemon/pair.h"

static int ends;

static void on_done(void *context, int32_t code, const char *text)
{
	(void)context;
	(void)code;
	(void)text;
	ends++;
}

static void set_up(void)
{
	pair_new();
	pair_join();
	ends = 0;
}

/* The first one has memory of its own, behind the shared one. */
static void add_memory(void)
{
	struct wire_message create = {.type = WIRE_CREATE_MEMORY,
				    .memory = {.handle = PAIR_HANDLE + 1, .bytes = PAIR_BYTES}},
			    map = {.type = WIRE_MAP_HANDLE,
				    .memory = {.handle = PAIR_HANDLE + 1,
					    .address = pair[0].window_base + PAIR_BYTES,
					    .bytes = PAIR_BYTES}};

	pair_ask(0, &create);
	pair_ask(0, &map);
}

static void unmap_shared(int i)
{
	struct wire_message unmap = {
		.type = WIRE_UNMAP_MEMORY, .range = {.address = pair[i].window_base, .bytes = PAIR_BYTES}};

	pair_ask(i, &unmap);
	fake_tell(fake);
	pair_play_all(NULL);
}

static void send_away(void)
{
	ck_assert_ptr_null(swap_begin(pair_session(0), SWAP_AT_REST, on_done, NULL));
	pair_play_all(NULL);
	for (int i = 0; i < PAIR; i++)
		ck_assert_uint_eq(pair_session(i)->memory, SESSION_MEMORY_AWAY);
}

/* All that are there go on. */
static void settle(void)
{
	pair_play_all(NULL);
	for (int i = 0; i < PAIR; i++)
		while (pair_session(i) && !pair_is_at_rest(i) && fake_skip(fake))
			pair_play_all(NULL);
}

static void bring_back(int i)
{
	swap_end(pair_session(i), on_done, NULL);
	settle();
}

/* Alone, and with what comes back before it. */
TEST_LOOP(lost, who_has_it_ends, 0, 2)
{
	if (_i)
		add_memory();
	unmap_shared(0);
	send_away();
	pair_leave(1);
	pair_play_all(NULL);
	ck_assert_ptr_null(pair_session(1));
	bring_back(0);
	ck_assert_ptr_null(pair_session(0));
	ck_assert_int_eq(word_acquire(&pair[0].view.server->state), SHM_SESSION_CLOSED);
	ck_assert_uint_eq(fake->daemon.counters.sessions_rejected, 1);
}

/* The same in another life, which finds what is left. */
TEST(lives, who_has_it_ends_in_the_next_life)
{
	add_memory();
	unmap_shared(0);
	send_away();
	pair_leave(1);
	pair_play_all(NULL);
	ck_assert_int_eq(fake_come_back(fake), 0);
	pair_play_all(NULL);
	bring_back(0);
	ck_assert_ptr_null(pair_session(0));
	ck_assert_int_eq(word_acquire(&pair[0].view.server->state), SHM_SESSION_CLOSED);
}

/* It is not lost yet. */
TEST_LOOP(lost, while_another_one_has_it_mapped_it_comes_back, 0, 2)
{
	add_memory();
	unmap_shared(_i);
	send_away();
	bring_back(0);
	for (int i = 0; i < PAIR; i++)
		ck_assert(pair_is_at_rest(i));
	ck_assert_uint_eq(fake->daemon.counters.sessions_rejected, 0);
}

int main(void)
{
	Suite *suite = suite_create("lost");
	/* Daemons that died leave their descriptors open. */
	TCase *lives = tcase_create("lives"), *lost = suite_case(suite, "lost");

	fake_prepare();
	tcase_add_checked_fixture(lost, set_up, pair_free);
	tcase_add_checked_fixture(lives, set_up, pair_free);
	suite_add(lost, "lost");
	suite_add(lives, "lives");
	suite_add_tcase(suite, lives);
	return suite_run(suite);
}
