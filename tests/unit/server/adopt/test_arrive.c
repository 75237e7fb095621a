// Programs come back from files: whatever the tool that restores them says, does not say, or does,
// and whatever else dies meanwhile, both programs are there, or nothing of them. The test is the
// tool, keeper, executors and clients.

#include "server/adopt/arrive.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/adopt/admit.h"
#include "server/daemon/handover.h"
#include "server/door/visitor.h"
#include "server/holder/store.h"
#include "server/session/domain.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "tests/lib/seed.h"
#include "tests/unit/server/daemon/pair.h"

/* More messages than that has. */
#define STEPS	   48
#define FILES_MOST 64
#define ROUNDS	   40

/* What is saved. */
static int bundle, files[FILES_MOST];
static uint32_t file_count;
static uint64_t givens[PAIR]; /* number of each member, in the order of the bundle */
static unsigned kept_before;  /* descriptors of the service without the programs */

/* The tool. */
static int socket_of_tool;
static enum handover_step said; /* the latest */
static bool is_over, is_back;
static int32_t code;
static char text[400];

static bool is_memory(int fd)
{
	struct stat status;

	return !fstat(fd, &status) && S_ISREG(status.st_mode);
}

/* Takes the descriptor over. Return: another file with the same bytes */
static int copy_file(int fd)
{
	static uint8_t bytes[1 << 16];
	int copy = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat status;
	off_t at = 0;
	ssize_t got;

	ck_assert_int_eq(fstat(fd, &status), 0);
	ck_assert_int_eq(ftruncate(copy, status.st_size), 0);
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		got = pread(fd, bytes, sizeof(bytes), at);
		ck_assert_int_gt(got, 0);
		ck_assert_int_eq(pwrite(copy, bytes, (size_t)got, at), got);
		at += got;
	}
	ck_assert_int_eq(fcntl(copy, F_ADD_SEALS, fcntl(fd, F_GET_SEALS)), 0);
	close(fd);
	return copy;
}

static void hang_up(void)
{
	if (socket_of_tool >= 0)
		close(socket_of_tool);
	socket_of_tool = -1;
}

/* @fds: stay the caller's */
static void say(enum handover_step step, uint32_t count, const int *fds, unsigned fd_count)
{
	struct wire_message message = {.type = WIRE_HANDOVER};

	message.session = step == HANDOVER_SAVE ? pair_numbers[0] : 0;
	message.handover = (struct wire_handover){.step = step, .files = count, .text = ""};
	/* The daemon may have hung up. */
	message_send(socket_of_tool, &message, fds, fd_count);
	said = step;
}

/* Bytes before that place are in the files. */
static void fill(uint64_t place)
{
	struct wire_message message = {.type = WIRE_HANDOVER};

	message.handover = (struct wire_handover){.step = HANDOVER_FILLED, .text = "", .place = place};
	message_send(socket_of_tool, &message, NULL, 0);
	said = HANDOVER_FILLED;
}

static void visit(enum handover_step step)
{
	int both[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both), 0);
	visitor_new(&fake->daemon, both[0]);
	socket_of_tool = both[1];
	is_over = is_back = false;
	code = 0;
	text[0] = '\0';
	say(step, 0, NULL, 0);
}

/*
 * What is saved
 */

static void keep_received(uint32_t *wanted)
{
	if (fake->message.handover.step == HANDOVER_GIVE) {
		*wanted = fake->message.handover.files;
		bundle = packet_take_fd(&fake->packet, 0);
		return;
	}
	ck_assert_uint_eq(fake->message.handover.step, HANDOVER_FILES);
	for (unsigned i = 0; i < fake->packet.fd_count; i++) {
		ck_assert_uint_lt(file_count, FILES_MOST);
		files[file_count++] = packet_take_fd(&fake->packet, i);
	}
}

static void save(void)
{
	uint32_t wanted = FILES_MOST;

	file_count = 0;
	visit(HANDOVER_SAVE);
	while (file_count < wanted) {
		pair_play_all(NULL);
		if (pair_hear(socket_of_tool))
			keep_received(&wanted);
		else
			fake_skip(fake);
	}
	/* As they were, whatever the programs do with theirs. */
	for (uint32_t i = 0; i < file_count; i++)
		if (is_memory(files[i]))
			files[i] = copy_file(files[i]);
	say(HANDOVER_REPLY, 0, NULL, 0);
	while (!pair_hear(socket_of_tool)) {
		pair_play_all(NULL);
		fake_skip(fake);
	}
	hang_up();
}

static unsigned count_kept(void)
{
	unsigned count = 0;

	fake_turn(fake);
	for (uint32_t key = 0; key < 256; key++)
		count += fake->legacy.fds[key] >= 0;
	return count;
}

static size_t count_records(enum record_type type)
{
	const struct record **records;
	size_t count = store_list(fake->daemon.store, type, &records);

	free(records);
	return count;
}

static bool is_empty(void)
{
	return TAILQ_EMPTY(&fake->daemon.sessions) && !fake->daemon.arrival;
}

static void leave_both(void)
{
	for (int i = 0; i < PAIR; i++)
		pair_leave(i);
	pair_play_all(NULL);
	while (!is_empty() && fake_skip(fake))
		pair_play_all(NULL);
}

static void read_bundle(struct handover *handover)
{
	ck_assert_int_eq(handover_read(bundle, handover), 0);
	ck_assert_uint_eq(handover->head.member_count, PAIR);
	ck_assert_uint_eq(handover->head.files, file_count);
}

/* As CRIU would: other sockets, and the same memory. */
static void make_program(int i, const struct handover_member *member)
{
	static struct session head;
	struct wire_shape shape;
	int both[2];

	admit_read_head(member, &head);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both), 0);
	close(files[head.connection_key - 1]);
	files[head.connection_key - 1] = both[0];
	pair[i].socket = both[1];
	shm_shape_init(&shape, SHM_RING_BYTES, SHM_ARENA_BYTES, SHM_BLOCKS);
	ck_assert_int_eq(shm_view_map(&pair[i].view, &shape, files[member->session.kept.client_fd - 1],
				 files[member->session.kept.server_fd - 1], SHM_SIDE_CLIENT),
		0);
	pair_is_gone[i] = false;
}

static void make_programs(void)
{
	struct handover handover;

	read_bundle(&handover);
	for (int i = 0; i < PAIR; i++) {
		givens[i] = handover.members[i].number;
		make_program(i, &handover.members[i]);
		pair_numbers[i] = 0;
	}
	handover_free(&handover);
}

static void set_up(void)
{
	pair_new();
	pair_join();
	save();
	leave_both();
	kept_before = count_kept();
	make_programs();
}

static void close_files(void)
{
	for (uint32_t i = 0; i < file_count; i++)
		close(files[i]);
	if (bundle >= 0)
		close(bundle);
	bundle = -1;
	file_count = 0;
}

static void tear_down(void)
{
	hang_up();
	close_files();
	pair_free();
}

/*
 * The tool
 */

static void give_files(void)
{
	for (uint32_t at = 0; at < file_count; at += WIRE_FDS_MAX)
		say(HANDOVER_FILES, 0, files + at,
			file_count - at < WIRE_FDS_MAX ? file_count - at : WIRE_FDS_MAX);
}

static void ask(void)
{
	say(HANDOVER_ASK, 0, &bundle, 1);
}

static void give(void)
{
	say(HANDOVER_GIVE, file_count, &bundle, 1);
	give_files();
}

/* The answer to the question: they have numbers, in the order of the bundle. */
static void note_numbers(void)
{
	for (int i = 0; i < PAIR; i++)
		pair_numbers[i] = fake->daemon.next_session - PAIR + 1 + (unsigned)i;
}

static void go_on(void)
{
	if (said == HANDOVER_ASK)
		note_numbers();
	if (said == HANDOVER_RESTORE)
		ask();
	else if (said == HANDOVER_ASK)
		give();
	else if (said == HANDOVER_FILES)
		say(HANDOVER_TAKE, 0, NULL, 0);
	else if (said == HANDOVER_TAKE)
		fill(SESSION_FILLED);
	else
		is_over = is_back = true;
}

static bool tool_one(void)
{
	if (is_over || !pair_hear(socket_of_tool))
		return false;
	ck_assert_uint_eq(fake->message.handover.step, HANDOVER_REPLY);
	code = fake->message.handover.code;
	snprintf(text, sizeof(text), "%s", fake->message.handover.text);
	if (code)
		is_over = true;
	else
		go_on();
	return true;
}

/* Until the tool has nothing more to do. */
static void finish(void)
{
	pair_play_all(tool_one);
	for (int i = 0; !is_over && i < 100000 && fake_skip(fake); i++)
		pair_play_all(tool_one);
	ck_assert(is_over);
}

static bool are_at_rest(void)
{
	for (int i = 0; i < PAIR; i++)
		if (pair_is_gone[i] ? pair_session(i) != NULL : !pair_is_at_rest(i))
			return false;
	return !fake->daemon.arrival;
}

static void settle(void)
{
	pair_play_all(tool_one);
	for (int i = 0; !is_empty() && !are_at_rest() && i < 100000 && fake_skip(fake); i++)
		pair_play_all(tool_one);
	ck_assert(is_empty() || are_at_rest());
}

static void expect_served(void)
{
	struct wire_message create = {
		.type = WIRE_CREATE_MEMORY, .memory = {.handle = 4711, .bytes = PAIR_BYTES}};

	for (int i = 0; i < PAIR; i++) {
		if (pair_is_gone[i])
			continue;
		ck_assert(pair_is_at_rest(i));
		ck_assert_int_lt(word_acquire(&pair[i].view.server->state), SHM_SESSION_FAULTED);
		pair_ask(i, &create);
	}
}

static void expect_nothing_left(void)
{
	settle();
	ck_assert(is_empty());
	ck_assert_uint_eq(count_records(RECORD_SESSION), 0);
	ck_assert_uint_eq(count_records(RECORD_HOLDING), 0);
	ck_assert_uint_eq(fake_domain(fake)->windows.count, 0);
}

static void expect_refused(const char *why)
{
	finish();
	ck_assert_int_ne(code, 0);
	ck_assert_msg(strstr(text, why), "%s", text);
	fake_expect_hangup(fake, socket_of_tool);
	expect_nothing_left();
	ck_assert_uint_eq(count_kept(), kept_before);
	ck_assert_uint_eq(fake->daemon.counters.sessions_restored, 0);
}

static void await_reply(void)
{
	while (!pair_hear(socket_of_tool))
		if (fake_skip(fake))
			pair_play_all(NULL);
	ck_assert_int_eq(fake->message.handover.code, 0);
}

/* They are taken, and their files are empty. */
static void come_unfilled(void)
{
	visit(HANDOVER_RESTORE);
	while (said != HANDOVER_TAKE) {
		pair_play_all(NULL);
		if (!tool_one())
			fake_skip(fake);
	}
	await_reply();
	for (int i = 0; i < 10 && fake_skip(fake); i++)
		pair_play_all(NULL);
}

/*
 * They come
 */

TEST(restore, both_are_served_again)
{
	visit(HANDOVER_RESTORE);
	finish();
	ck_assert_msg(is_back, "%s", text);
	fake_expect_hangup(fake, socket_of_tool);
	settle();
	ck_assert_uint_eq(fake->daemon.counters.sessions_restored, PAIR);
	for (int i = 0; i < PAIR; i++) {
		const struct session *session = pair_session(i);

		ck_assert_uint_ne(session->number, givens[0]);
		ck_assert_uint_ne(session->number, givens[1]);
		ck_assert_uint_eq(session->pid, getpid());
		ck_assert_uint_eq(session->holdings.count, 2);
	}
	ck_assert_uint_ne(pair_numbers[0], pair_numbers[1]);
	expect_served();
}

/* And again in the next life of the daemon. */
TEST(lives, their_records_are_those_of_the_daemon)
{
	visit(HANDOVER_RESTORE);
	finish();
	ck_assert_msg(is_back, "%s", text);
	settle();
	ck_assert_int_eq(fake_come_back(fake), 0);
	settle();
	expect_served();
}

/* Its addresses are theirs. */
TEST(restore, who_is_there_stays)
{
	struct fake_client other;
	uint64_t number;

	/* As in a service that has just begun. */
	fake_domain(fake)->windows.next = fake_domain(fake)->windows.first;
	fake_hello(fake, &other);
	pair_play_all(NULL);
	fake_welcome(fake, &other);
	number = fake_session(fake, 0)->number;
	visit(HANDOVER_RESTORE);
	finish();
	ck_assert_msg(is_back, "%s", text);
	settle();
	expect_served();
	for (int i = 0; i < PAIR; i++)
		ck_assert(domain_is_alone(pair_session(i)->domain));
	ck_assert_ptr_eq(daemon_find_session(&fake->daemon, number)->domain, fake_domain(fake));
	fake_leave(fake, &other);
}

/* As of any program. */
TEST(restore, nothing_is_left_of_them_when_they_end)
{
	visit(HANDOVER_RESTORE);
	finish();
	ck_assert_msg(is_back, "%s", text);
	settle();
	leave_both();
	ck_assert_uint_eq(count_kept(), kept_before);
}

TEST(restore, memory_comes_as_far_as_the_files_have_it)
{
	pair_manner.filed = 0;
	come_unfilled();
	for (int i = 0; i < PAIR; i++)
		ck_assert_int_eq(pair_session(i)->memory, SESSION_MEMORY_RETURNS);
	fill(0);
	pair_play_all(NULL);
	fill(PAIR_BYTES - 1);
	pair_play_all(NULL);
	ck_assert_uint_eq(pair_manner.filed, 0);
	fill(PAIR_BYTES);
	pair_play_all(NULL);
	ck_assert_uint_eq(pair_manner.filed, 1);
	ck_assert_uint_eq(fake->daemon.counters.sessions_restored, 0);
	fill(SESSION_FILLED);
	finish();
	ck_assert_msg(is_back, "%s", text);
	settle();
	ck_assert_uint_eq(pair_manner.filed, 1);
	ck_assert_uint_eq(fake->daemon.counters.sessions_restored, PAIR);
	expect_served();
}

/* The successor gets all of it, and no more than the files have. */
TEST(restore, another_executor_begins_anew)
{
	pair_manner.filed = 0;
	come_unfilled();
	pair_kill(fake_domain(fake)->active);
	pair_play_all(NULL);
	ck_assert_uint_eq(pair_manner.filed, 0);
	fill(SESSION_FILLED);
	finish();
	ck_assert_msg(is_back, "%s", text);
	settle();
	ck_assert_uint_eq(pair_manner.filed, 1);
	expect_served();
}

/* Who saves them, or takes them elsewhere, would have a part of them. */
TEST(restore, they_do_not_leave_before_they_are_whole)
{
	int tool;

	come_unfilled();
	tool = socket_of_tool;
	visit(HANDOVER_SAVE);
	is_over = false;
	pair_play_all(NULL);
	ck_assert(pair_hear(socket_of_tool));
	ck_assert_msg(
		strstr(fake->message.handover.text, "being restored"), "%s", fake->message.handover.text);
	hang_up();
	socket_of_tool = tool;
	fill(SESSION_FILLED);
	finish();
	ck_assert_msg(is_back, "%s", text);
	settle();
	expect_served();
}

/*
 * They do not come
 */

static off_t of_head(size_t offset)
{
	return (off_t)offset;
}

static void change_bundle(off_t at, const void *bytes, size_t count)
{
	bundle = copy_file(bundle);
	ck_assert_int_eq(pwrite(bundle, bytes, count, at), (ssize_t)count);
}

TEST(refused, another_builds_bundle_is_refused)
{
	const uint64_t build = 4711;

	change_bundle(of_head(offsetof(struct handover_head, build)), &build, sizeof(build));
	visit(HANDOVER_RESTORE);
	expect_refused("another build");
}

TEST_LOOP(refused, a_bundle_that_is_none_is_refused, 0, 4)
{
	int pipes[2], garbage = memfd_create("garbage", MFD_CLOEXEC);

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	visit(HANDOVER_RESTORE);
	pair_play_all(NULL);
	pair_hear(socket_of_tool);
	if (_i == 1)
		ck_assert_int_eq(ftruncate(garbage, 1 << 20), 0);
	if (_i < 2)
		say(HANDOVER_ASK, 0, &garbage, 1);
	else if (_i == 2)
		say(HANDOVER_ASK, 0, pipes, 1);
	else
		say(HANDOVER_ASK, 0, NULL, 0);
	expect_refused(_i == 1 ? "another build" : "cannot be read");
	close(garbage);
	close(pipes[0]);
	close(pipes[1]);
}

/* It would have the memory of whoever else has no files for it. */
TEST(refused, who_comes_has_its_memory_in_files)
{
	const enum session_memory here = SESSION_MEMORY_HERE;

	change_bundle(of_head(sizeof(struct handover_head) + offsetof(struct handover_member, session) +
			      offsetof(struct session_record, head) + offsetof(struct session, memory)),
		&here, sizeof(here));
	visit(HANDOVER_RESTORE);
	expect_refused("cannot be read");
}

/* Members that were not asked about. */
TEST_LOOP(refused, it_is_the_bundle_that_was_asked_about, 0, 2)
{
	const uint64_t number = 4711;

	visit(HANDOVER_RESTORE);
	pair_play_all(NULL);
	pair_hear(socket_of_tool);
	if (_i) {
		ask();
		pair_play_all(NULL);
		ck_assert(pair_hear(socket_of_tool));
		ck_assert_int_eq(fake->message.handover.code, 0);
		change_bundle(
			of_head(sizeof(struct handover_head) + offsetof(struct handover_member, number)),
			&number, sizeof(number));
	}
	/* The first record is of the first member; without a question, none is known. */
	give();
	said = HANDOVER_GIVE;
	expect_refused(_i ? "cannot be" : "cannot be taken");
}

TEST_LOOP(refused, descriptors_are_as_many_as_promised, 0, 3)
{
	struct wire_message message = {.type = WIRE_HANDOVER};

	visit(HANDOVER_RESTORE);
	pair_play_all(NULL);
	pair_hear(socket_of_tool);
	ask();
	pair_play_all(NULL);
	ck_assert(pair_hear(socket_of_tool));
	message.handover = (struct wire_handover){.step = HANDOVER_GIVE,
		.files = file_count + (_i == 0) - (_i == 1),
		/* One that is in the shared table comes from a device. */
		.transfer = _i == 2,
		.text = ""};
	ck_assert_int_eq(message_send(socket_of_tool, &message, &bundle, 1), 0);
	expect_refused("cannot be taken");
}

TEST(refused, more_descriptors_are_too_many)
{
	int more[WIRE_FDS_MAX];

	visit(HANDOVER_RESTORE);
	pair_play_all(NULL);
	pair_hear(socket_of_tool);
	ask();
	pair_play_all(NULL);
	ck_assert(pair_hear(socket_of_tool));
	say(HANDOVER_GIVE, file_count, &bundle, 1);
	for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
		more[i] = bundle;
	for (uint32_t at = 0; at <= file_count; at += WIRE_FDS_MAX)
		say(HANDOVER_FILES, 0, more, WIRE_FDS_MAX);
	finish();
	ck_assert_int_ne(code, 0);
	expect_nothing_left();
	ck_assert_uint_eq(count_kept(), kept_before);
}

/* All that is not the next step. @_i: what was said before, and what is said then */
TEST_LOOP(refused, what_was_not_awaited_is_refused, 0, 5 * (HANDOVER_REPLY + 1))
{
	const int before = _i / (HANDOVER_REPLY + 1);
	const enum handover_step step = (enum handover_step)(_i % (HANDOVER_REPLY + 1));

	visit(HANDOVER_RESTORE);
	pair_play_all(NULL);
	pair_hear(socket_of_tool);
	if (before >= 1)
		ask();
	pair_play_all(NULL);
	if (before >= 1)
		ck_assert(pair_hear(socket_of_tool));
	if (before >= 2)
		say(HANDOVER_GIVE, file_count, &bundle, 1);
	if (before >= 3)
		give_files();
	pair_play_all(NULL);
	if (before >= 3)
		await_reply();
	if (before >= 4) {
		say(HANDOVER_TAKE, 0, NULL, 0);
		await_reply();
	}
	/* That is the next step; a question may be asked again. */
	if ((before < 2 && step == HANDOVER_ASK) || (before == 1 && step == HANDOVER_GIVE) ||
		(before == 2 && step == HANDOVER_FILES) || (before == 3 && step == HANDOVER_TAKE) ||
		(before == 4 && step == HANDOVER_FILLED)) {
		hang_up();
		expect_nothing_left();
		return;
	}
	say(step, 0, NULL, 0);
	/* Of all answers, that is the last. */
	said = HANDOVER_NOTHING;
	expect_refused(before == 0 && step == HANDOVER_GIVE ? "cannot be read" : "not awaited");
}

TEST(refused, one_comes_at_a_time)
{
	int first;

	visit(HANDOVER_RESTORE);
	pair_play_all(NULL);
	pair_hear(socket_of_tool);
	first = socket_of_tool;
	visit(HANDOVER_RESTORE);
	finish();
	ck_assert_int_ne(code, 0);
	ck_assert_msg(strstr(text, "try again"), "%s", text);
	fake_expect_hangup(fake, socket_of_tool);
	hang_up();
	socket_of_tool = first;
	is_over = false;
	said = HANDOVER_RESTORE;
	go_on();
	finish();
	ck_assert_msg(is_back, "%s", text);
	settle();
	expect_served();
}

/* A daemon of the service has a key, and no right to come from files. */
TEST(refused, files_are_no_device)
{
	visit(HANDOVER_HELLO);
	fake_expect_hangup(fake, socket_of_tool);
	expect_nothing_left();
}

/*
 * Deaths
 */

/* Return: whether there were so many messages */
static bool play_steps(int count)
{
	for (int i = 0; i < count; i++)
		while (!pair_play_one(tool_one))
			if (is_over || !fake_skip(fake))
				return false;
	return true;
}

/* Whoever dies behind whichever message: both are served, or nothing is left. */
START_TEST(they_come_all_or_not_at_all)
{
	const enum pair_death death = (enum pair_death)(_i / STEPS);
	bool is_filled;

	visit(HANDOVER_RESTORE);
	play_steps(_i % STEPS);
	/* The daemon has not read the latest message. */
	is_filled = said == HANDOVER_FILLED;
	pair_die(death, hang_up);
	is_over |= socket_of_tool < 0;
	finish();
	/* The tool ends: what only it has of the programs is closed. */
	hang_up();
	close_files();
	settle();
	if (!is_filled && (death == PAIR_DEATH_DAEMON || death == PAIR_DEATH_TOOL))
		expect_nothing_left();
	if (death == PAIR_DEATH_NONE)
		ck_assert_msg(is_back, "%s", text);
	if (is_back)
		ck_assert(are_at_rest());
	else if (!is_filled)
		expect_nothing_left();
	if (is_empty())
		expect_nothing_left();
	else
		expect_served();
}
END_TEST

/*
 * Damage
 */

static uint32_t random_word(void)
{
	static uint32_t state;
	static bool is_seeded;

	if (!is_seeded)
		state = seed_of(2031);
	is_seeded = true;
	state = state * UINT32_C(1664525) + UINT32_C(1013904223);
	return state >> 8;
}

static uint32_t some(uint32_t count)
{
	return random_word() % count;
}

/* Of all but the builds' number. Half of the changes are behind the members, which are large. */
static void damage_bundle(void)
{
	const uint32_t build = offsetof(struct handover_head, build),
		       members = sizeof(struct handover_head) + PAIR * sizeof(struct handover_member);
	struct stat status;

	bundle = copy_file(bundle);
	ck_assert_int_eq(fstat(bundle, &status), 0);
	for (unsigned changes = 1 + some(16); changes; changes--) {
		const uint8_t bytes[] = {0, 1, 0xff, (uint8_t)random_word()};
		const uint32_t size = (uint32_t)status.st_size,
			       at = some(2) ? some(members) : members + some(size - members);

		if (at < build || at >= build + sizeof(uint64_t))
			ck_assert_int_eq(pwrite(bundle, &bytes[some(4)], 1, at), 1);
	}
}

/* Puts them in the places of each other. */
static void mix_files(void)
{
	for (unsigned changes = 1 + some(4); changes; changes--) {
		const uint32_t one = some(file_count), two = some(file_count);
		const int fd = files[one];

		files[one] = files[two];
		files[two] = fd;
	}
}

/* Whatever comes of it, the daemon goes on, and others with it. */
static void restore_damaged(bool are_files, bool has_next_life)
{
	struct wire_message create = {
		.type = WIRE_CREATE_MEMORY, .memory = {.handle = 4711, .bytes = PAIR_BYTES}};
	struct fake_client other;

	set_up();
	fake_hello(fake, &other);
	pair_play_all(NULL);
	fake_welcome(fake, &other);
	if (are_files)
		mix_files();
	else
		damage_bundle();
	visit(HANDOVER_RESTORE);
	finish();
	if (has_next_life)
		ck_assert_int_eq(fake_come_back(fake), 0);
	pair_play_all(NULL);
	fake_request(fake, &other, &create, -1);
	pair_play_all(NULL);
	ck_assert_int_eq(fake_expect(fake, other.socket, WIRE_REPLY)->reply.code, 0);
	fake_leave(fake, &other);
	tear_down();
}

TEST_LOOP(bundles, what_is_damaged_hurts_nobody_else, 0, 2)
{
	for (unsigned round = 0; round < ROUNDS; round++)
		restore_damaged(_i, false);
}

TEST_LOOP(bundles_in_lives, what_is_damaged_hurts_no_next_life, 0, 2)
{
	for (unsigned round = 0; round < ROUNDS; round++)
		restore_damaged(_i, true);
}

int main(void)
{
	Suite *suite = suite_create("arrive");
	TCase *restore = suite_case(suite, "restore"), *refused = suite_case(suite, "refused"),
	      *bundles = suite_case(suite, "bundles");
	/* Daemons that died leave their descriptors open. */
	TCase *lives = tcase_create("lives"), *more = tcase_create("bundles in lives");

	fake_prepare();
	tcase_add_checked_fixture(restore, set_up, tear_down);
	tcase_add_checked_fixture(refused, set_up, tear_down);
	tcase_add_checked_fixture(lives, set_up, tear_down);
	tcase_set_timeout(lives, SUITE_TIMEOUT);
	suite_add(restore, "restore");
	suite_add(refused, "refused");
	for (int death = 0; death < PAIR_DEATHS; death++)
		suite_add_sweep(lives, they_come_all_or_not_at_all, death, STEPS);
	suite_add(lives, "lives");
	suite_add(bundles, "bundles");
	suite_add_tcase(suite, lives);
	tcase_set_timeout(more, SUITE_TIMEOUT);
	suite_add(more, "bundles_in_lives");
	suite_add_tcase(suite, more);
	return suite_run(suite);
}
