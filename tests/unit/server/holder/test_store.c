// Records: what one life puts is what the next one finds, whatever the first one was doing when it
// died.

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/holder/holder.h"
#include "server/holder/store.h"
#include "server/loop/shared_fd.h"
#include "tests/lib/suite.h"

/* Descriptors at a time. */
#define KEYS 2000

static struct legacy legacy;
static int holder;

static void set_up(void)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	holder = pair[0];
	legacy = (struct legacy){.socket = pair[1],
		.memory = memfd_create("records", 0),
		.bell = eventfd(0, EFD_NONBLOCK),
		.board = holder_board_new(),
		.fds_most = KEYS};
	ck_assert_int_ge(legacy.memory, 0);
	ck_assert_int_ge(legacy.bell, 0);
	ck_assert_ptr_nonnull(legacy.board);
}

static void tear_down(void)
{
	close(holder);
	close(legacy.socket);
	close(legacy.memory);
	close(legacy.bell);
	munmap(legacy.board, sizeof(*legacy.board));
}

/* The end of a life between two turns. */
static void commit_and_close(struct store *store)
{
	store_commit(store);
	store_close(store);
}

static struct store *open_store(void)
{
	struct store *store = store_open(&legacy);

	ck_assert_ptr_nonnull(store);
	return store;
}

/* The text under a key in a life of its own; NULL if there is none. */
static const char *find(enum record_type type, uint64_t key)
{
	static char text[RECORD_MAX];
	struct store *store = open_store();
	const struct record **records;
	size_t count = store_list(store, type, &records), bytes;
	const char *found = NULL;
	const void *payload;

	for (size_t i = 0; i < count; i++) {
		if (record_key(records[i]) != key)
			continue;
		payload = record_payload(records[i], &bytes);
		memcpy(text, payload, sizeof(text) < bytes ? sizeof(text) : bytes);
		found = text;
	}
	free(records);
	store_close(store);
	return found;
}

static const struct record *put(
	struct store *store, const struct record *old, enum record_type type, uint64_t key, const char *text)
{
	return store_put(store, old, type, key, text, strlen(text) + 1);
}

TEST(store, the_next_life_finds_what_was_put)
{
	struct store *store = open_store();
	const struct record *record = put(store, NULL, RECORD_SESSION, 7, "seven");

	put(store, NULL, RECORD_WORKER, 7, "worker");
	store_drop(store, put(store, NULL, RECORD_SESSION, 8, "eight"));
	put(store, record, RECORD_SESSION, 7, "still seven");
	commit_and_close(store);
	ck_assert_str_eq(find(RECORD_SESSION, 7), "still seven");
	ck_assert_str_eq(find(RECORD_WORKER, 7), "worker");
	ck_assert_ptr_null(find(RECORD_SESSION, 8));
}

/* Between the two stores of a replacement both are there. */
TEST(store, of_two_the_younger_counts)
{
	struct store *store = open_store();

	put(store, NULL, RECORD_SESSION, 1, "old");
	put(store, NULL, RECORD_SESSION, 1, "new");
	commit_and_close(store);
	ck_assert_str_eq(find(RECORD_SESSION, 1), "new");
	/* And the older one is gone for good. */
	ck_assert_str_eq(find(RECORD_SESSION, 1), "new");
}

/* The memory as a process leaves it that dies before the last store of a record. */
TEST(store, a_record_that_says_the_same_stays)
{
	struct store *store = open_store();
	const struct record *first = put(store, NULL, RECORD_SESSION, 7, "one");

	ck_assert_ptr_eq(put(store, first, RECORD_SESSION, 7, "one"), first);
	ck_assert_ptr_ne(put(store, first, RECORD_SESSION, 7, "two"), first);
	commit_and_close(store);
	ck_assert_str_eq(find(RECORD_SESSION, 7), "two");
}

TEST(store, a_record_that_was_not_published_is_not_there)
{
	struct store *store = open_store();
	const struct record *record = put(store, NULL, RECORD_SESSION, 1, "whole");
	char *half;

	put(store, NULL, RECORD_SESSION, 2, "half");
	/* Its first word is stored last. */
	half = (char *)(uintptr_t)record;
	half += 128;
	ck_assert_int_eq(*(uint32_t *)(void *)half, RECORD_SESSION);
	*(uint32_t *)(void *)half = RECORD_NONE;
	commit_and_close(store);
	ck_assert_str_eq(find(RECORD_SESSION, 1), "whole");
	ck_assert_ptr_null(find(RECORD_SESSION, 2));
}

/* A turn counts as a whole: before the commit the next life finds the state before the turn, with
 * everything that the turn has dropped. */
TEST(store, a_turn_that_was_not_committed_has_not_been)
{
	struct store *store = open_store();
	const struct record *changed = put(store, NULL, RECORD_SESSION, 1, "before"),
			    *dropped = put(store, NULL, RECORD_SESSION, 2, "dropped");
	uint32_t key;

	ck_assert_int_eq(store_deposit(store, 0, &key), 0);
	store_commit(store);
	changed = put(store, changed, RECORD_SESSION, 1, "between");
	put(store, changed, RECORD_SESSION, 1, "after");
	put(store, NULL, RECORD_SESSION, 3, "new");
	store_drop(store, dropped);
	store_forget(store, key);
	store_settle(store);
	ck_assert(store_sync(store));
	store_close(store);
	ck_assert_uint_eq(word_relaxed(&legacy.board->marks[key]) % 2, 1);
	ck_assert_uint_eq(word_relaxed(&legacy.board->settled), 0);
	ck_assert_uint_eq(word_relaxed(&legacy.board->syncs), 0);
	ck_assert_str_eq(find(RECORD_SESSION, 1), "before");
	ck_assert_str_eq(find(RECORD_SESSION, 2), "dropped");
	ck_assert_ptr_null(find(RECORD_SESSION, 3));
}

/* This life sees its own turn, as it is so far. */
TEST(store, a_turn_sees_itself)
{
	struct store *store = open_store();
	const struct record *old = put(store, NULL, RECORD_SESSION, 1, "old"), **records;

	store_commit(store);
	put(store, old, RECORD_SESSION, 1, "new");
	ck_assert_uint_eq(store_list(store, RECORD_SESSION, &records), 1);
	ck_assert_str_eq(record_payload(records[0], &(size_t){0}), "new");
	store_drop(store, records[0]);
	free(records);
	ck_assert_uint_eq(store_list(store, RECORD_SESSION, &records), 0);
	free(records);
	commit_and_close(store);
	ck_assert_ptr_null(find(RECORD_SESSION, 1));
}

static void count(void *context)
{
	++*(int *)context;
}

TEST(store, what_follows_a_record_follows_the_commit)
{
	struct store *store = open_store();
	int done = 0;

	store_then(store, count, &done);
	ck_assert_int_eq(done, 0);
	store_commit(store);
	ck_assert_int_eq(done, 1);
	store_commit(store);
	ck_assert_int_eq(done, 1);
	store_then(NULL, count, &done);
	ck_assert_int_eq(done, 2);
	store_close(store);
}

static bool is_emptied;

static void empty(struct shared_fd *file)
{
	is_emptied = true;
	shared_fd_unref(file);
}

/* The next life would take an empty file for the session's. */
TEST(store, a_file_is_emptied_when_no_record_names_it)
{
	struct store *store = open_store();
	struct shared_fd *file = shared_fd_new(dup(0));

	file->on_last = empty;
	ck_assert_int_eq(shared_fd_deposit(file, store), 0);
	store_commit(store);
	shared_fd_unref(file);
	ck_assert(!is_emptied);
	store_commit(store);
	ck_assert(is_emptied);
	store_close(store);
}

TEST(store, a_commit_gives_the_holder_its_orders)
{
	struct store *store = open_store();
	uint64_t rings;
	uint32_t key;

	ck_assert_int_eq(store_deposit(store, 0, &key), 0);
	store_commit(store);
	ck_assert_int_lt(eventfd_read(legacy.bell, &rings), 0);
	store_forget(store, key);
	store_settle(store);
	store_settle(store);
	ck_assert(store_sync(store));
	store_commit(store);
	ck_assert_int_eq(eventfd_read(legacy.bell, &rings), 0);
	ck_assert_uint_eq(word_relaxed(&legacy.board->marks[key]) % 2, 0);
	ck_assert_uint_eq(word_relaxed(&legacy.board->settled), 2);
	ck_assert_uint_eq(word_relaxed(&legacy.board->syncs), 1);
	store_commit(store);
	ck_assert_int_lt(eventfd_read(legacy.bell, &rings), 0);
	store_close(store);
}

TEST(store, damage_is_noticed)
{
	struct store *store = open_store();
	size_t bytes;
	char *payload =
		(char *)(uintptr_t)record_payload(put(store, NULL, RECORD_SESSION, 1, "text"), &bytes);

	payload[1] ^= 4;
	commit_and_close(store);
	ck_assert_ptr_null(store_open(&legacy));
}

TEST(store, serials_grow_over_lives)
{
	struct store *store = open_store();
	uint64_t serial = store_serial(store);

	put(store, NULL, RECORD_HOLDING, serial, "first");
	commit_and_close(store);
	store = open_store();
	ck_assert_uint_gt(store_serial(store), serial);
	commit_and_close(store);
}

/* Freed slots are used again, in this life and the next. */
TEST(store, changing_needs_no_more_room)
{
	struct store *store = open_store();
	const struct record *record = NULL;
	struct stat before, after;
	char text[3000];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	record = put(store, record, RECORD_SESSION, 1, text);
	ck_assert_int_eq(fstat(legacy.memory, &before), 0);
	for (int life = 0; life < 3; life++) {
		const struct record **records;

		for (int i = 0; i < 1000; i++)
			record = put(store, record, RECORD_SESSION, 1, text);
		commit_and_close(store);
		store = open_store();
		ck_assert_uint_eq(store_list(store, RECORD_SESSION, &records), 1);
		record = records[0];
		free(records);
	}
	commit_and_close(store);
	ck_assert_int_eq(fstat(legacy.memory, &after), 0);
	ck_assert_int_eq(before.st_size, after.st_size);
}

TEST(store, a_store_says_when_it_would_grow_too_long)
{
	struct store *store = open_store();
	struct stat status;
	char text[3000];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	ck_assert(!store_has_room(store, sizeof(text), 0));
	put(store, NULL, RECORD_SESSION, 1, text);
	ck_assert_int_eq(fstat(legacy.memory, &status), 0);
	ck_assert_uint_le(store_share(sizeof(text)), 2 * sizeof(text));
	for (uint64_t key = 2; store_has_room(store, sizeof(text), (uint64_t)status.st_size); key++)
		put(store, NULL, RECORD_SESSION, key, text);
	ck_assert(!store_has_room(store, sizeof(text) / 4, (uint64_t)status.st_size));
	ck_assert(store_has_room(store, sizeof(text), 2 * (uint64_t)status.st_size));
	commit_and_close(store);
	ck_assert_ptr_nonnull(find(RECORD_SESSION, (uint64_t)status.st_size / store_share(sizeof(text))));
}

TEST(store, where_the_store_cannot_grow_there_is_no_room)
{
	struct rlimit before, small;
	struct store *store = open_store();
	struct stat status;
	char text[60000];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	put(store, NULL, RECORD_SESSION, 1, "small");
	ck_assert_int_eq(fstat(legacy.memory, &status), 0);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){.rlim_cur = (rlim_t)status.st_size, .rlim_max = before.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	ck_assert(!store_has_room(store, sizeof(text), UINT64_MAX));
	ck_assert(store_has_room(store, sizeof("small"), UINT64_MAX));
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
	ck_assert(store_has_room(store, sizeof(text), UINT64_MAX));
	/* What it promised needs no more. */
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	put(store, NULL, RECORD_SESSION, 2, text);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
	commit_and_close(store);
	ck_assert_ptr_nonnull(find(RECORD_SESSION, 2));
}

/* Each record needs a second slot until the commit: then the turn is recorded in parts. */
TEST(store, where_the_store_cannot_grow_records_still_change)
{
	static const struct record *records[10000];
	struct store *store = open_store();
	struct rlimit before, small;
	struct stat status;
	size_t count = 0;

	put(store, NULL, RECORD_WORKER, 1, "first");
	ck_assert_int_eq(fstat(legacy.memory, &status), 0);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){.rlim_cur = (rlim_t)status.st_size, .rlim_max = before.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	/* All but one slot. */
	while (store_has_room(store, sizeof("old"), 0)) {
		ck_assert_uint_lt(count, 10000);
		records[count] = put(store, NULL, RECORD_SESSION, count, "old");
		count++;
	}
	store_drop(store, records[--count]);
	store_commit(store);
	for (size_t i = 0; i < count; i++)
		put(store, records[i], RECORD_SESSION, i, "new");
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
	commit_and_close(store);
	ck_assert_str_eq(find(RECORD_SESSION, 0), "new");
	ck_assert_str_eq(find(RECORD_SESSION, count - 1), "new");
}

TEST(store, without_a_store_nothing_is_kept)
{
	uint32_t key = 1;

	ck_assert_ptr_null(store_put(NULL, NULL, RECORD_SESSION, 1, "x", 2));
	store_drop(NULL, NULL);
	ck_assert_int_eq(store_deposit(NULL, 0, &key), 0);
	ck_assert_uint_eq(key, 0);
	store_forget(NULL, 3);
	store_settle(NULL);
}

TEST(store, a_received_descriptor_is_taken_once)
{
	struct store *store = open_store();
	uint32_t keys[2];

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(store_receive(store, memfd_create("received", MFD_CLOEXEC), &keys[i]), 0);
	ck_assert_uint_ne(keys[0], keys[1]);
	close(store_take(store, keys[0]));
	ck_assert_int_eq(store_take(store, keys[0]), -1);
	/* Nobody takes this one: it is closed, and its key is free once that is committed. */
	store_return(store, keys[1]);
	store_return(store, keys[1]);
	ck_assert_int_eq(store_take(store, keys[1]), -1);
	store_forget(store, keys[0]);
	commit_and_close(store);
}

TEST(store, keys_are_used_again)
{
	struct store *store = open_store();
	uint32_t first, second, third;

	/* One of an earlier life, whose descriptor was never kept. */
	store_forget(store, 5000);
	ck_assert_int_eq(store_deposit(store, 0, &first), 0);
	ck_assert_int_eq(store_deposit(store, 0, &second), 0);
	ck_assert_uint_ne(first, 0);
	ck_assert_uint_ne(first, second);
	store_forget(store, first);
	store_forget(store, first);
	/* Records may name the key until the commit. */
	ck_assert_int_eq(store_deposit(store, 0, &third), 0);
	ck_assert_uint_ne(third, first);
	store_commit(store);
	ck_assert_int_eq(store_deposit(store, 0, &third), 0);
	ck_assert_uint_eq(third, first);
	commit_and_close(store);
}

int main(void)
{
	Suite *suite = suite_create("store");
	TCase *tests = suite_case(suite, "store");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "store");
	return suite_run(suite);
}
