// How much of the log one user's programs can fill.

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "server/log.h"
#include "server/session/userlog.h"
#include "tests/unit/server/session/fixture.h"

#define REFUSED 20u /* lines a minute */

static int log_ends[2];

static void boot_with_log(void)
{
	boot();
	log_init(LOG_LEVEL_INFO, "test");
	ck_assert_int_eq(pipe2(log_ends, O_CLOEXEC | O_NONBLOCK), 0);
	log_set_descriptor(log_ends[1]);
}

static void end_with_log(void)
{
	log_set_descriptor(STDERR_FILENO);
	close(log_ends[0]);
	close(log_ends[1]);
	end();
}

static char said[65536];

/* Return: lines since the last time; they are in `said` */
static unsigned read_lines(void)
{
	ssize_t n = read(log_ends[0], said, sizeof(said) - 1);
	unsigned count = 0;

	said[n < 0 ? 0 : n] = '\0';
	for (const char *at = said; (at = strchr(at, '\n')); at++)
		count++;
	return count;
}

/* Programs for which there is no room. */
static void be_refused(uid_t uid, unsigned count)
{
	struct fake_client late;

	fake->config.clients_max = 0;
	for (unsigned i = 0; i < count; i++) {
		fake_hello_as(fake, &late, uid);
		fake_expect(fake, late.socket, WIRE_REFUSE);
		fake_leave(fake, &late);
	}
}

TEST(userlog, refused_programs_of_one_user_do_not_fill_the_log)
{
	boot_with_log();
	be_refused(1001, 200);
	ck_assert_uint_eq(read_lines(), REFUSED);
	/* Another user's lines are its own. */
	be_refused(1002, 1);
	ck_assert_uint_eq(read_lines(), 1);
	ck_assert_ptr_nonnull(strstr(said, "uid 1002 is refused"));
	ck_assert_uint_eq(fake->daemon.counters.log_lines_left_out, 200 - REFUSED);
	ck_assert_uint_eq(fake->daemon.counters.sessions_refused, 201);
	end_with_log();
}

TEST(userlog, what_was_left_out_is_said_when_the_minute_is_over)
{
	boot_with_log();
	be_refused(1001, 100);
	be_refused(1002, 1);
	read_lines();
	/* The next minutes are short ones. */
	userlog_deinit(&fake->daemon);
	ck_assert_uint_eq(read_lines(), 1);
	ck_assert_ptr_nonnull(strstr(said, "80 lines about refused programs of uid 1001 are left out"));
	fake->daemon.userlog.window_ms = 1;
	userlog_event(&fake->daemon, 1001, USERLOG_refused, LOG_LEVEL_WARNING, "again");
	ck_assert_uint_eq(read_lines(), 1);
	FAKE_RUN_WHILE(fake, fake->daemon.userlog.user_count);
	ck_assert_uint_eq(read_lines(), 0);
	end_with_log();
}

/* One person with many users. */
TEST(userlog, many_users_share_the_lines_of_one)
{
	boot_with_log();
	for (uid_t uid = 1; uid <= 4 * USERLOG_USERS_MAX; uid++)
		userlog_event(&fake->daemon, uid, USERLOG_refused, LOG_LEVEL_WARNING, "of user %u", uid);
	ck_assert_uint_le(fake->daemon.userlog.user_count, USERLOG_USERS_MAX + 1);
	ck_assert_uint_eq(read_lines(), USERLOG_USERS_MAX + REFUSED);
	userlog_deinit(&fake->daemon);
	ck_assert_uint_eq(read_lines(), 1);
	end_with_log();
}

int main(void)
{
	Suite *suite = suite_create("userlog");
	TCase *tests = suite_case(suite, "userlog");

	fake_prepare();
	suite_add(tests, "userlog");
	return suite_run(suite);
}
