// Bundles: a session comes out as it went in, and a damaged bundle is refused or harmless.

#include "server/daemon/handover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/loop/shared_fd.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "tests/unit/server/session/fixture.h"

static struct session *session;
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

static void set_up(void)
{
	fake_with_records = true;
	join();
	map_host(0);
	map_host(8192);
	session = fake_session(fake, 0);
	ck_assert_int_eq(handover_write(session, &files, &bundle), 0);
}

static void tear_down(void)
{
	handover_free(&handover);
	handover_drop_files(&files);
	close(bundle);
	part();
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
	ck_assert_uint_eq(handover.head.number, session->number);
	ck_assert_uint_eq(handover.head.files, files.count);
	ck_assert_uint_eq(handover.head.record_count, session->holdings.count);
	memcpy(&head, handover.head.session.head, sizeof(handover.head.session.head));
	ck_assert_uint_eq(head.state, SESSION_ELSEWHERE);
	ck_assert(head.is_detached);
	ck_assert_uint_eq(head.window, session->window);
	ck_assert_str_eq(head.program, session->program);
	ck_assert(is_same_file(file_of(handover.head.session.kept.client_fd), session->client_fd->fd));
	ck_assert(is_same_file(file_of(handover.head.session.kept.server_fd), session->server_fd->fd));
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
	ck_assert_uint_gt(handover.head.session.kept.client_fd, 1000);
	free(keys);
}

static void expect_harmless(void)
{
	uint32_t *keys;
	int r = handover_read(bundle, &handover);

	if (r) {
		ck_assert_int_eq(r, -EINVAL);
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

		/* A count of files alone may be any number. */
		if (at / 4 * 4 == (off_t)offsetof(struct handover_head, files))
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

TEST(handover, a_number_without_a_file_is_refused)
{
	struct handover_head head;

	ck_assert_int_eq(pread(bundle, &head, sizeof(head), 0), (int)sizeof(head));
	head.files--;
	ck_assert_int_eq(pwrite(bundle, &head, sizeof(head), 0), (int)sizeof(head));
	ck_assert_int_eq(handover_read(bundle, &handover), -EINVAL);
}

int main(void)
{
	Suite *suite = suite_create("handover");
	TCase *tests = tcase_create("handover");

	fake_prepare();
	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "handover");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
