// Programs are saved: whatever the tool that saves them says, does not say, or does, and whatever
// else dies meanwhile, all programs go on here. The test is the tool, keeper, executors and
// clients.

#include "server/daemon/depart.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/handover.h"
#include "server/door/visitor.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/guarantee.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"
#include "server/standby/stash.h"
#include "server/standby/swap.h"
#include "tests/unit/server/daemon/pair.h"

/* More messages than that has. */
#define STEPS 48
/* Longer than the daemon waits for a tool's answer. */
#define SILENCE_MS 700000u

/* The tool's end of its socket, and what it has heard of the daemon. */
static struct {
	int socket;
	uint32_t files, got, members;
	uint64_t first; /* number of the first member */
	bool is_silent; /* does not say by itself that all is saved */
	bool is_early;	/* has heard that the programs go on, and files are not complete yet */
	bool is_lazy;	/* what is held back comes late: of files, when the programs have gone on */
	bool is_answered;
	int32_t code;
	char text[400];
} tool;

static void hang_up(void)
{
	if (tool.socket >= 0)
		close(tool.socket);
	tool.socket = -1;
}

/* Return: the socket of somebody, of a user, who has said that */
static int visit(uid_t uid, enum handover_step step, uint64_t session)
{
	struct wire_message message = {.type = WIRE_HANDOVER, .session = session};
	int both[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both), 0);
	visitor_new(&fake->daemon, both[0]);
	TAILQ_LAST(&fake->daemon.visitors, visitor_list)->peer.uid = uid;
	message.handover = (struct wire_handover){.step = step, .text = ""};
	fake_send(fake, both[1], &message, NULL, 0);
	return both[1];
}

static void begin(int i)
{
	tool.socket = visit(geteuid(), HANDOVER_SAVE, pair_numbers[i]);
}

static void say(enum handover_step step, int32_t code, const char *text)
{
	struct wire_message message = {.type = WIRE_HANDOVER};

	message.handover = (struct wire_handover){.step = step, .code = code, .text = text};
	/* The daemon may have hung up. */
	message_send(tool.socket, &message, NULL, 0);
}

static void read_bundle(void)
{
	struct handover handover;

	ck_assert_uint_eq(fake->packet.fd_count, 1);
	ck_assert_int_eq(handover_read(fake->packet.fds[0], &handover), 0);
	tool.members = handover.head.member_count;
	tool.first = handover.members[0].number;
	ck_assert_uint_eq(handover.head.files, tool.files);
	handover_free(&handover);
}

static void hear(const struct wire_handover *what)
{
	switch (what->step) {
	case HANDOVER_GIVE:
		tool.files = what->files;
		ck_assert_uint_eq(what->transfer, 0);
		read_bundle();
		break;
	case HANDOVER_FILES:
		tool.got += fake->packet.fd_count;
		ck_assert_uint_le(tool.got, tool.files);
		if (tool.got == tool.files && !tool.is_silent)
			say(HANDOVER_REPLY, 0, "");
		break;
	case HANDOVER_REPLY:
		ck_assert(!tool.is_answered);
		if (what->files) {
			ck_assert(!tool.is_early && !what->code);
			tool.is_early = true;
			break;
		}
		tool.is_answered = true;
		tool.code = what->code;
		snprintf(tool.text, sizeof(tool.text), "%s", what->text);
		break;
	default:
		ck_abort_msg("step %u came", what->step);
	}
}

/* Return: whether there was anything to hear */
static bool hear_one(void)
{
	if (!pair_hear(tool.socket))
		return false;
	hear(&fake->message.handover);
	packet_close_fds(&fake->packet);
	return true;
}

/* True if what is held back comes now. */
static bool is_held_over(void)
{
	const bool is_storing = pair_manner.held == WIRE_CARRY_STASH && !stash_is_lost(fake->daemon.stash);

	return tool.is_lazy && (!is_storing || tool.is_early || tool.socket < 0 || !fake->daemon.departure);
}

/* What happens beside the children. */
static bool do_one(void)
{
	return hear_one() || (is_held_over() && pair_answer_held());
}

/* Another tool comes. */
static void reset(void)
{
	hang_up();
	memset(&tool, 0, sizeof(tool));
	tool.socket = -1;
}

static void set_up(void)
{
	tool.socket = -1;
	reset();
	pair_new();
	pair_join();
}

static void tear_down(void)
{
	hang_up();
	pair_free();
}

/* Until all that the tool is to save is with it. */
static void give(int i)
{
	tool.is_silent = true;
	begin(i);
	pair_play_all(do_one);
	while ((!tool.files || tool.got < tool.files) && !tool.is_answered && fake_skip(fake))
		pair_play_all(do_one);
	ck_assert_msg(!tool.is_answered, "%s", tool.text);
}

static bool are_at_rest(void)
{
	if (pair_stashed_bytes() || stash_bytes(&fake->daemon))
		return false;
	for (int i = 0; i < PAIR; i++)
		if (pair_is_gone[i] ? pair_session(i) != NULL : !pair_is_at_rest(i))
			return false;
	return !fake->daemon.departure;
}

/* All that are there go on. */
static void settle(void)
{
	pair_play_all(do_one);
	for (int i = 0; !are_at_rest() && i < 100000 && fake_skip(fake); i++)
		pair_play_all(do_one);
	ck_assert(are_at_rest());
	for (int i = 0; i < PAIR; i++)
		if (!pair_is_gone[i])
			ck_assert_int_lt(word_acquire(&pair[i].view.server->state), SHM_SESSION_FAULTED);
}

static void expect_saved(unsigned count)
{
	settle();
	ck_assert(tool.is_answered);
	ck_assert_msg(!tool.code, "%s", tool.text);
	fake_expect_hangup(fake, tool.socket);
	ck_assert_uint_eq(fake->daemon.counters.sessions_saved, count);
}

static void expect_not_saved(const char *why)
{
	settle();
	ck_assert_uint_eq(fake->daemon.counters.sessions_saved, 0);
	if (tool.socket < 0)
		return;
	ck_assert(tool.is_answered);
	ck_assert_int_ne(tool.code, 0);
	ck_assert_msg(strstr(tool.text, why), "%s", tool.text);
	fake_expect_hangup(fake, tool.socket);
}

/*
 * Saved
 */

TEST_LOOP(save, all_are_saved_and_go_on, 0, PAIR)
{
	struct wire_message create = {
		.type = WIRE_CREATE_MEMORY, .memory = {.handle = 4711, .bytes = PAIR_BYTES}};

	give(_i);
	ck_assert_uint_eq(tool.members, PAIR);
	ck_assert_uint_eq(tool.first, pair_numbers[_i]);
	ck_assert_uint_gt(tool.files, 2 * 3);
	for (int i = 0; i < PAIR; i++) {
		ck_assert_ptr_nonnull(pair_session(i)->departure);
		/* A copy is saved: the memory stays. */
		ck_assert_uint_eq(pair_session(i)->memory, SESSION_MEMORY_LEAVES);
		fake_request(fake, &pair[i], &create, -1);
	}
	pair_play_all(do_one);
	for (int i = 0; i < PAIR; i++)
		fake_expect_nothing(fake, pair[i].socket);
	say(HANDOVER_REPLY, 0, "");
	expect_saved(PAIR);
	for (int i = 0; i < PAIR; i++)
		ck_assert_int_eq(fake_expect(fake, pair[i].socket, WIRE_REPLY)->reply.code, 0);
}

/*
 * With a stash
 */

static void on_suspended(void *context, int32_t code, const char *text)
{
	(void)context;
	ck_assert_msg(!code, "%s", text);
}

/* Until the tool has answered, and files are not complete. */
static void give_early(void)
{
	pair_manner.held = WIRE_CARRY_STASH;
	give(0);
	ck_assert_uint_gt(pair_manner.stashed, 0);
	say(HANDOVER_REPLY, 0, "");
	pair_play_all(do_one);
	while (!tool.is_early && !tool.is_answered && fake_skip(fake))
		pair_play_all(do_one);
	ck_assert(tool.is_early && !tool.is_answered);
}

static void expect_at_work(void)
{
	struct wire_message create = {
		.type = WIRE_CREATE_MEMORY, .memory = {.handle = 4711, .bytes = PAIR_BYTES}};

	for (int i = 0; i < PAIR; i++) {
		ck_assert(pair_is_at_rest(i));
		pair_ask(i, &create);
	}
}

TEST(save, they_go_on_while_files_are_filled)
{
	give_early();
	expect_at_work();
	ck_assert_uint_eq(stash_bytes(&fake->daemon), PAIR_BYTES);
	ck_assert_uint_eq(pair_stashed_bytes(), 2 * PAIR_BYTES);
	ck_assert_uint_eq(fake->daemon.counters.sessions_saved, 0);
	tool.is_lazy = true;
	expect_saved(PAIR);
}

TEST(save, who_ends_while_files_are_filled_is_saved)
{
	give_early();
	for (int i = 0; i < PAIR; i++)
		pair_leave(i);
	tool.is_lazy = true;
	expect_saved(PAIR);
}

/* And is not waited for. */
TEST(save, a_tool_that_goes_while_files_are_filled_has_saved_nothing)
{
	give_early();
	hang_up();
	tool.is_lazy = true;
	expect_not_saved("");
}

TEST(save, an_executor_that_dies_while_files_are_filled_takes_the_copy_along)
{
	give_early();
	pair_kill(fake_domain(fake)->active);
	expect_not_saved("being replaced");
}

/* What the keeper has made outlives it. */
TEST(save, a_keeper_that_dies_while_files_are_filled_is_not_missed)
{
	give_early();
	pair_kill(fake->daemon.keeper);
	tool.is_lazy = true;
	expect_saved(PAIR);
}

TEST(save, who_needs_memory_while_files_are_filled_gets_it)
{
	give_early();
	ck_assert(stash_give_back(&fake->daemon));
	ck_assert(reclaim_expects(&fake->daemon));
	tool.is_lazy = true;
	expect_not_saved("needed the device memory");
	ck_assert(!reclaim_expects(&fake->daemon));
}

TEST(save, a_stash_that_does_not_come_is_not_waited_for)
{
	pair_manner.held = WIRE_CREATE_CHUNK;
	give(0);
	ck_assert_uint_eq(pair_manner.stashed, 0);
	tool.is_lazy = true;
	say(HANDOVER_REPLY, 0, "");
	expect_saved(PAIR);
}

/* Of memory that was away there is no copy. */
TEST(save, who_is_suspended_is_saved_as_it_is)
{
	ck_assert_ptr_null(swap_begin(pair_session(0), SWAP_NOW, on_suspended, NULL));
	session_pause(pair_session(0), true, true);
	pair_play_all(do_one);
	ck_assert_uint_eq(pair_session(0)->memory, SESSION_MEMORY_AWAY);
	pair_manner.filed = 0;
	give(0);
	ck_assert_uint_eq(pair_manner.stashed + pair_manner.filed, 0);
	say(HANDOVER_REPLY, 0, "");
	while (!tool.is_answered && fake_skip(fake))
		pair_play_all(do_one);
	ck_assert_int_eq(tool.code, 0);
	session_pause(pair_session(0), false, true);
	swap_end(pair_session(0), on_suspended, NULL);
	expect_saved(PAIR);
}

/* All goes to the files as well, from their memory: before the tool's answer, or behind it. */
TEST_LOOP(save, who_needs_memory_while_they_stand_still_gets_it, 0, 2)
{
	pair_manner.held = WIRE_CARRY_STASH;
	give(0);
	ck_assert_uint_gt(pair_manner.stashed, 0);
	ck_assert_uint_eq(pair_manner.filed, 0);
	ck_assert(stash_give_back(&fake->daemon));
	pair_manner.held = WIRE_CARRY_MEMORY;
	while (!pair_manner.filed) {
		while (!pair_manner.filed && pair_play_one(NULL))
			continue;
		ck_assert(pair_manner.filed || pair_answer_held());
	}
	ck_assert_uint_eq(stash_bytes(&fake->daemon), 0);
	if (_i) {
		say(HANDOVER_REPLY, 0, "");
		for (int i = 0; i < 100; i++) {
			pair_play_all(do_one);
			fake_skip(fake);
		}
		ck_assert(!tool.is_early && !tool.is_answered);
		ck_assert_uint_eq(pair_session(0)->memory, SESSION_MEMORY_LEAVES);
	}
	tool.is_lazy = true;
	pair_play_all(do_one);
	if (!_i)
		say(HANDOVER_REPLY, 0, "");
	settle();
	ck_assert(!tool.is_early);
	expect_saved(PAIR);
}

/* While it is made, or mapped, and before anything or all was copied there: all goes to the files,
 * as without a stash. */
TEST_LOOP(save, who_needs_memory_before_gets_it, 0, 4)
{
	const enum wire_type types[] = {
		WIRE_QUERY_MEMORY, WIRE_CREATE_CHUNK, WIRE_MAP_STASH, WIRE_CARRY_MEMORY};

	pair_manner.held = types[_i];
	begin(0);
	for (int i = 0; i < 1000 && !(pair_manner.stashed && types[_i] == WIRE_CARRY_MEMORY); i++) {
		while (pair_play_one(NULL))
			continue;
		if (types[_i] != WIRE_CARRY_MEMORY)
			break;
		/* The first ones wait for the end of work alone. */
		if (!pair_manner.stashed && !pair_answer_held())
			fake_skip(fake);
	}
	ck_assert(stash_give_back(&fake->daemon));
	tool.is_lazy = true;
	settle();
	ck_assert(!tool.is_early);
	ck_assert_uint_gt(pair_manner.filed, 0);
	expect_saved(PAIR);
}

/* Nobody has a claim to so much. */
TEST_LOOP(save, what_others_have_a_claim_to_is_left_alone, 0, 4)
{
	const uint64_t missing = _i % 2 ? 0 : 1, spare = guarantee_spare(&fake->daemon);
	struct session *other = pair_session(1);
	uint64_t total = fake->daemon.device.total_bytes;

	if (_i < 2)
		fake->daemon.device.total_bytes -= spare - PAIR_BYTES + missing;
	else
		other->terms.memory_guarantee = other->holdings.owned_bytes + spare - PAIR_BYTES + missing;
	ck_assert_uint_eq(guarantee_spare(&fake->daemon), PAIR_BYTES - missing);
	give(0);
	say(HANDOVER_REPLY, 0, "");
	expect_saved(PAIR);
	ck_assert_uint_eq(pair_manner.stashed, !missing);
	other->terms.memory_guarantee = 0;
	fake->daemon.device.total_bytes = total;
}

/* A request that would get a part of it otherwise. */
TEST(save, it_gives_way_to_claims)
{
	struct wire_message create = {
		.type = WIRE_CREATE_MEMORY, .memory = {.handle = 4711, .bytes = PAIR_BYTES}};

	fake->daemon.device.total_bytes -= guarantee_spare(&fake->daemon) - PAIR_BYTES;
	give_early();
	fake_request(fake, &pair[0], &create, -1);
	tool.is_lazy = true;
	expect_not_saved("needed the device memory");
	ck_assert_int_eq(fake_expect(fake, pair[0].socket, WIRE_REPLY)->reply.code, 0);
}

/* And can be saved again. */
TEST(save, a_program_is_saved_twice)
{
	for (unsigned i = 1; i <= 2; i++) {
		give(0);
		say(HANDOVER_REPLY, 0, "");
		expect_saved(i * PAIR);
		reset();
	}
}

TEST(save, who_ends_while_the_tool_stores_is_saved)
{
	give(0);
	for (int i = 0; i < PAIR; i++)
		pair_leave(i);
	pair_play_all(do_one);
	say(HANDOVER_REPLY, 0, "");
	expect_saved(PAIR);
}

/* The other one goes on. */
TEST_LOOP(save, a_set_of_which_one_ends_is_not_saved, 0, PAIR)
{
	give(0);
	pair_leave(_i);
	expect_not_saved("it goes on already");
}

TEST(save, a_tool_that_has_answered_may_go)
{
	give(0);
	say(HANDOVER_REPLY, 0, "");
	hang_up();
	settle();
	ck_assert_uint_eq(fake->daemon.counters.sessions_saved, PAIR);
}

/*
 * Not saved
 */

TEST(save, a_tool_that_fails_says_why)
{
	give(0);
	say(HANDOVER_REPLY, CUDA_ERROR_UNKNOWN, "the disk is full");
	expect_not_saved("the disk is full");
}

/* The next executor has the programs go on, with memory that changes. */
TEST(save, an_executor_that_is_replaced_disturbs_it)
{
	give(0);
	pair_kill(fake_domain(fake)->active);
	expect_not_saved("it goes on already");
}

/* The answer is there before the daemon looks. */
TEST(save, an_answer_behind_that_saves_nothing)
{
	give(0);
	pair_kill(fake_domain(fake)->active);
	say(HANDOVER_REPLY, 0, "");
	expect_not_saved("it goes on already");
}

TEST(save, a_tool_that_goes_has_saved_nothing)
{
	give(0);
	hang_up();
	expect_not_saved("");
}

TEST_LOOP(save, who_says_what_was_not_asked_has_saved_nothing, 0, HANDOVER_REPLY)
{
	if (_i)
		give(0);
	else
		begin(0);
	/* An answer, before there is anything; and all that is none. */
	say(_i ? (enum handover_step)_i : HANDOVER_REPLY, 0, "");
	expect_not_saved(_i ? "has gone" : "was not asked");
}

TEST(save, a_silent_tool_is_not_waited_for)
{
	give(0);
	for (unsigned ms = 0; fake->daemon.departure && ms < SILENCE_MS; ms += (unsigned)fake->skipped_ms) {
		fake->skipped_ms = 0;
		pair_play_all(do_one);
		fake_skip(fake);
	}
	expect_not_saved("has gone");
}

static void expect_refused(const char *why)
{
	pair_play_all(do_one);
	ck_assert(tool.is_answered);
	ck_assert_int_ne(tool.code, 0);
	ck_assert_msg(strstr(tool.text, why), "%s", tool.text);
	fake_expect_hangup(fake, tool.socket);
	ck_assert_ptr_null(fake->daemon.departure);
}

TEST_LOOP(save, who_is_not_there_is_not_saved, 0, 3)
{
	const uint64_t numbers[] = {0, 4711, UINT64_MAX};

	tool.socket = visit(geteuid(), HANDOVER_SAVE, numbers[_i]);
	expect_refused("no such session");
	settle();
}

/* Its executors have not closed it. */
TEST(save, who_is_ending_is_not_saved)
{
	pair_leave(1);
	ck_assert_ptr_nonnull(pair_session(1));
	begin(1);
	while (hear_one())
		continue;
	expect_refused("no such session");
}

/* Its executor has not opened it. */
TEST(save, who_is_beginning_is_not_saved)
{
	struct fake_client third;

	fake_hello(fake, &third);
	tool.socket = visit(geteuid(), HANDOVER_SAVE, fake_session(fake, PAIR)->number);
	while (hear_one())
		continue;
	ck_assert(tool.is_answered);
	ck_assert_msg(strstr(tool.text, "not served now"), "%s", tool.text);
	pair_play_all(NULL);
	fake_leave(fake, &third);
}

TEST(save, one_is_saved_at_a_time)
{
	int first;

	give(0);
	first = tool.socket;
	begin(1);
	while (hear_one())
		continue;
	ck_assert(tool.is_answered);
	ck_assert_int_ne(tool.code, 0);
	ck_assert_msg(strstr(tool.text, "try again"), "%s", tool.text);
	fake_expect_hangup(fake, tool.socket);
	hang_up();
	tool.socket = first;
	tool.is_answered = false;
	say(HANDOVER_REPLY, 0, "");
	expect_saved(PAIR);
}

/* The bundle has what the program has: no other user gets it, and nobody gives the service another
 * user's. */
TEST_LOOP(save, others_than_operators_are_sent_away, 0, 2)
{
	const uid_t other = geteuid() + 1;

	tool.socket = visit(other, _i ? HANDOVER_RESTORE : HANDOVER_SAVE, pair_numbers[0]);
	ck_assert_int_eq(
		fake_expect(fake, tool.socket, WIRE_HANDOVER)->handover.code, CUDA_ERROR_NOT_PERMITTED);
	fake_expect_hangup(fake, tool.socket);
	ck_assert_ptr_null(fake->daemon.departure);
	ck_assert_ptr_null(fake->daemon.arrival);
	settle();
}

/*
 * Deaths
 */

static bool is_over(void)
{
	return tool.is_answered || tool.socket < 0;
}

static void die_behind(int step, enum pair_death death)
{
	begin(0);
	for (int i = 0; i < step && !is_over(); i++)
		while (!pair_play_one(do_one) && !is_over())
			fake_skip(fake);
	pair_die(death, hang_up);
	settle();
	if (tool.socket >= 0)
		while (!tool.is_answered && fake_skip(fake))
			pair_play_all(do_one);
	settle();
	if (death == PAIR_DEATH_NONE)
		ck_assert_msg(!tool.code, "%s", tool.text);
	if (tool.is_answered)
		ck_assert_uint_eq(fake->daemon.counters.sessions_saved, tool.code ? 0 : PAIR);
}

/* Whoever dies behind whichever message: all others go on. */
START_TEST(all_others_go_on)
{
	die_behind(_i % STEPS, (enum pair_death)(_i / STEPS));
}
END_TEST

/* The files are complete last. */
START_TEST(all_others_go_on_while_files_are_filled)
{
	const enum pair_death death = (enum pair_death)(_i / STEPS);

	pair_manner.held = WIRE_CARRY_STASH;
	tool.is_lazy = true;
	die_behind(_i % STEPS, death);
	if (death == PAIR_DEATH_NONE)
		ck_assert(tool.is_early);
}
END_TEST

/* Whenever somebody needs memory: it comes back, and they go on, saved or not. */
TEST_LOOP(deaths, who_needs_memory_gets_it, 0, STEPS)
{
	bool has_said;

	pair_manner.held = WIRE_CARRY_STASH;
	tool.is_lazy = true;
	begin(0);
	for (int i = 0; i < _i && !is_over(); i++)
		while (!pair_play_one(do_one) && !is_over())
			fake_skip(fake);
	/* Behind that they go on. */
	has_said = tool.files && tool.got == tool.files;
	if (fake->daemon.stash)
		ck_assert(stash_give_back(&fake->daemon));
	while (!tool.is_answered && fake_skip(fake))
		pair_play_all(do_one);
	settle();
	ck_assert(!tool.code || has_said);
	ck_assert_uint_eq(fake->daemon.counters.sessions_saved, tool.code ? 0 : PAIR);
}

/* As many messages as are tried. */
TEST(deaths, every_message_was_there)
{
	int count = 0;

	pair_manner.held = WIRE_CARRY_STASH;
	tool.is_lazy = true;
	for (begin(0); !is_over(); count++)
		while (!pair_play_one(do_one) && !is_over())
			fake_skip(fake);
	ck_assert_int_lt(count, STEPS);
	settle();
}

int main(void)
{
	Suite *suite = suite_create("save");
	/* Daemons that died leave their descriptors open. */
	TCase *deaths = tcase_create("deaths"), *save = suite_case(suite, "save");

	fake_prepare();
	tcase_add_checked_fixture(save, set_up, tear_down);
	tcase_add_checked_fixture(deaths, set_up, tear_down);
	tcase_set_timeout(deaths, SUITE_TIMEOUT);
	suite_add(save, "save");
	suite_add(deaths, "deaths");
	for (int death = 0; death < PAIR_DEATHS; death++) {
		suite_add_sweep(deaths, all_others_go_on, death, STEPS);
		suite_add_sweep(deaths, all_others_go_on_while_files_are_filled, death, STEPS);
	}
	suite_add_tcase(suite, deaths);
	return suite_run(suite);
}
