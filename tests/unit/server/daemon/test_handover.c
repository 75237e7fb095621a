// Bundles: sessions come out as they went in, and a damaged bundle is refused or harmless.

#include "server/daemon/handover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/build.h"
#include "server/loop/shared_fd.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "tests/unit/server/session/fixture.h"

static struct session *session;
static struct swap_group set;
static struct fake_client second;
static struct handover_files files;
static struct handover handover;
static int bundle;

static void map_host(uint64_t offset)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};

	map.range = (struct wire_range){
		.address = client.window_base + WINDOW_DEVICE_BYTES + offset, .bytes = 4096};
	fake_request(fake, &client, &map, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_serve(fake, standby, WIRE_MAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
}

/* The second has the first one's memory as well. */
static void share(void)
{
	struct wire_message create = {.type = WIRE_CREATE_MEMORY, .memory = {.handle = 9, .bytes = 2 * MIB}},
			    export_it = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = 9}},
			    import = {.type = WIRE_IMPORT_MEMORY, .memory = {.handle = 3}};

	fake_request(fake, &client, &create, -1);
	fake_make_chunk(fake, keeper, 1);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_request(fake, &client, &export_it, -1);
	fake_expect(fake, client.socket, WIRE_REPLY);
	memcpy(import.memory.token, fake->message.reply.values.at, sizeof(import.memory.token));
	fake_request(fake, &second, &import, -1);
	ck_assert_int_eq(fake_expect(fake, second.socket, WIRE_REPLY)->reply.code, 0);
}

static void write_set(uint32_t count)
{
	ck_assert_ptr_null(swap_find_group(session, &set));
	ck_assert_uint_eq(set.count, count);
	ck_assert_ptr_eq(set.at[0], session);
	ck_assert_int_eq(handover_write(&set, &files, &bundle), 0);
}

static void set_up(void)
{
	fake_with_records = true;
	join();
	map_host(0);
	map_host(8192);
	session = fake_session(fake, 0);
	write_set(1);
}

static void set_up_two(void)
{
	fake_with_records = true;
	join();
	fake_join(fake, &second, active, standby);
	session = fake_session(fake, 1);
	share();
	write_set(2);
}

static void tear_down(void)
{
	handover_free(&handover);
	handover_drop_files(&files);
	swap_free_group(&set);
	close(bundle);
	part();
}

static void tear_down_two(void)
{
	fake_leave(fake, &second);
	tear_down();
}

static bool is_same_file(int fd, int other)
{
	struct stat one, two;

	return !fstat(fd, &one) && !fstat(other, &two) && one.st_ino == two.st_ino &&
	       one.st_dev == two.st_dev;
}

static int file_of(uint32_t number)
{
	ck_assert_uint_ge(number, 1);
	ck_assert_uint_le(number, files.count);
	return files.at[number - 1]->fd;
}

TEST(handover, a_session_comes_out_as_it_went_in)
{
	const struct holding *entry;
	struct session head = {0};
	uint64_t i = 0;

	ck_assert_int_eq(handover_read(bundle, &handover), 0);
	ck_assert_uint_eq(handover.members[0].number, session->number);
	ck_assert_uint_eq(handover.head.files, files.count);
	ck_assert_uint_eq(handover.head.record_count, session->holdings.count);
	memcpy(&head, handover.members[0].session.head, sizeof(handover.members[0].session.head));
	ck_assert_uint_eq(head.state, SESSION_ELSEWHERE);
	ck_assert(head.is_detached);
	ck_assert_uint_eq(head.window, session->window);
	ck_assert_str_eq(head.program, session->program);
	ck_assert(is_same_file(file_of(handover.members[0].session.kept.client_fd), session->client_fd->fd));
	ck_assert(is_same_file(file_of(handover.members[0].session.kept.server_fd), session->server_fd->fd));
	TAILQ_FOREACH (entry, &session->holdings.entries, link) {
		const struct kept_holding *kept = handover.records[i++].kept;

		ck_assert_uint_eq(kept->type, entry->type);
		ck_assert_uint_eq(kept->address, entry->range.address);
		ck_assert(is_same_file(file_of(kept->fd), entry->fd->fd));
	}
}

TEST(handover, numbers_become_keys)
{
	uint32_t *keys = calloc(files.count + 1, sizeof(*keys)), number;

	for (uint32_t i = 1; i <= files.count; i++)
		keys[i] = 1000 + i;
	ck_assert_int_eq(handover_read(bundle, &handover), 0);
	number = handover.records[0].kept->fd;
	handover_translate(&handover, keys);
	ck_assert_uint_eq(handover.records[0].kept->fd, 1000 + number);
	ck_assert_uint_eq(handover.records[0].kept->chunk.fd, 0);
	ck_assert_uint_gt(handover.members[0].session.kept.client_fd, 1000);
	free(keys);
}

static void expect_harmless(void)
{
	uint32_t *keys;
	int r = handover_read(bundle, &handover);

	if (r) {
		ck_assert(r == -EINVAL || r == -ESTALE);
		handover_free(&handover);
		return;
	}
	keys = calloc((size_t)handover.head.files + 1, sizeof(*keys));
	ck_assert_ptr_nonnull(keys);
	handover_translate(&handover, keys);
	free(keys);
	handover_free(&handover);
}

TEST(handover, a_damaged_bundle_is_refused_or_harmless)
{
	struct stat status;

	ck_assert_int_eq(fstat(bundle, &status), 0);
	for (off_t at = 0; at < status.st_size; at += at < 4096 ? 4 : 1) {
		const uint8_t wrong = 0xff;
		uint8_t right;

		/* A count of files alone may be any number. Another build's bundle is refused as
		 * such. */
		if (at / 4 * 4 == (off_t)offsetof(struct handover_head, files) ||
			at / 8 * 8 == (off_t)offsetof(struct handover_head, build))
			continue;
		ck_assert_int_eq(pread(bundle, &right, 1, at), 1);
		ck_assert_int_eq(pwrite(bundle, &wrong, 1, at), 1);
		expect_harmless();
		ck_assert_int_eq(pwrite(bundle, &right, 1, at), 1);
	}
}

TEST(handover, a_short_bundle_is_refused)
{
	struct stat status;

	ck_assert_int_eq(fstat(bundle, &status), 0);
	for (off_t size = status.st_size - 1; size > 0; size -= 7) {
		ck_assert_int_eq(ftruncate(bundle, size), 0);
		ck_assert_int_eq(handover_read(bundle, &handover), -EINVAL);
		handover_free(&handover);
	}
}

TEST(handover, another_builds_bundle_is_refused_as_such)
{
	struct handover_head head;

	ck_assert_int_eq(pread(bundle, &head, sizeof(head), 0), (int)sizeof(head));
	ck_assert_uint_eq(head.build, build_hash());
	head.build ^= 1;
	/* Nothing else is read of it. */
	head.member_count = 0;
	ck_assert_int_eq(pwrite(bundle, &head, sizeof(head), 0), (int)sizeof(head));
	ck_assert_int_eq(handover_read(bundle, &handover), -ESTALE);
}

/* Connections and processes are such. */
TEST(handover, descriptors_are_what_the_records_say)
{
	struct session head = {0};

	ck_assert_int_eq(handover_read(bundle, &handover), 0);
	memcpy(&head, handover.members[0].session.head, sizeof(handover.members[0].session.head));
	ck_assert_uint_ne(head.connection_key, 0);
	ck_assert_uint_ne(head.process_key, 0);
	for (uint32_t i = 1; i <= files.count; i++) {
		ck_assert(handover_fits(&handover, i, file_of(i)));
		ck_assert_int_eq(handover_fits(&handover, i, bundle),
			i != head.connection_key && i != head.process_key);
	}
	ck_assert(!handover_fits(&handover, head.connection_key, file_of(head.process_key)));
	ck_assert(!handover_fits(&handover, head.process_key, file_of(head.connection_key)));
}

TEST(handover, a_number_without_a_file_is_refused)
{
	struct handover_head head;

	ck_assert_int_eq(pread(bundle, &head, sizeof(head), 0), (int)sizeof(head));
	head.files--;
	ck_assert_int_eq(pwrite(bundle, &head, sizeof(head), 0), (int)sizeof(head));
	ck_assert_int_eq(handover_read(bundle, &handover), -EINVAL);
}

/*
 * A set
 */

/* What both have is in the bundle once, and belongs to the one who made it. */
TEST(two, sessions_that_share_come_out_as_they_went_in)
{
	ck_assert_int_eq(handover_read(bundle, &handover), 0);
	ck_assert_uint_eq(handover.head.member_count, 2);
	ck_assert_uint_eq(handover.members[0].number, session->number);
	ck_assert_uint_eq(handover.members[1].number, fake_session(fake, 0)->number);
	ck_assert_uint_eq(handover.head.record_count, 2);
	ck_assert_uint_eq(handover.records[0].kept->session, handover.members[1].number);
	ck_assert_uint_eq(handover.records[1].kept->session, handover.members[0].number);
	ck_assert_uint_ne(handover.records[0].kept->chunk.fd, 0);
	ck_assert_uint_eq(handover.records[0].kept->chunk.fd, handover.records[1].kept->chunk.fd);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(handover.members[i].memory_bytes, 2 * MIB);
		ck_assert_uint_eq(handover.members[i].owned_bytes, i ? 2 * MIB : 0);
	}
}

/* Their records follow. */
TEST(two, sessions_get_other_numbers)
{
	/* One of them is the other one's of before. */
	const uint64_t numbers[] = {fake_session(fake, 0)->number, 4711};

	ck_assert_int_eq(handover_read(bundle, &handover), 0);
	handover_renumber(&handover, numbers);
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_uint_eq(handover.members[i].number, numbers[i]);
		ck_assert_uint_eq(handover_find_member(&handover, numbers[i]), i);
	}
	ck_assert_uint_eq(handover.records[0].kept->session, numbers[1]);
	ck_assert_uint_eq(handover.records[1].kept->session, numbers[0]);
	ck_assert_uint_eq(handover_find_member(&handover, session->number), 2);
}

static void expect_refused(off_t at, const void *bytes, size_t count)
{
	ck_assert_int_eq(pwrite(bundle, bytes, count, at), (ssize_t)count);
	ck_assert_int_eq(handover_read(bundle, &handover), -EINVAL);
}

static off_t of_member(int i, size_t offset)
{
	return (off_t)(sizeof(struct handover_head) + (size_t)i * sizeof(struct handover_member) + offset);
}

TEST_LOOP(two, what_is_no_set_is_refused, 0, 6)
{
	const uint32_t none = 0, many = HANDOVER_MEMBERS_MOST + 1;
	const uint64_t nobody = 0, stranger = 4711, first = session->number;
	const uid_t another = getuid() + 1;
	const off_t uid = (off_t)(offsetof(struct session_record, head) + offsetof(struct session, uid));

	if (_i == 0)
		expect_refused(offsetof(struct handover_head, member_count), &none, sizeof(none));
	else if (_i == 1)
		expect_refused(offsetof(struct handover_head, member_count), &many, sizeof(many));
	else if (_i == 2)
		expect_refused(
			of_member(1, offsetof(struct handover_member, number)), &nobody, sizeof(nobody));
	/* Twice the same one; one whose records are of nobody. */
	else if (_i == 3)
		expect_refused(of_member(1, offsetof(struct handover_member, number)), &first, sizeof(first));
	else if (_i == 4)
		expect_refused(
			of_member(1, offsetof(struct handover_member, number)), &stranger, sizeof(stranger));
	/* Users do not share. */
	else
		expect_refused(of_member(1, (size_t)uid), &another, sizeof(another));
}

int main(void)
{
	Suite *suite = suite_create("handover");
	TCase *tests = tcase_create("handover"), *two = tcase_create("two");

	fake_prepare();
	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_add_checked_fixture(two, set_up_two, tear_down_two);
	suite_add(tests, "handover");
	suite_add(two, "two");
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, two);
	return suite_run(suite);
}
