// What programs send and nobody wants: neither descriptors nor threads stay behind, however slowly
// it closes.

#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/loop/discard.h"
#include "server/door/visitor.h"
#include "tests/lib/fds.h"
#include "tests/lib/mute.h"
#include "tests/lib/slow.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define TIMES 20

static unsigned count_threads(void)
{
	DIR *directory = opendir("/proc/self/task");
	unsigned count = 0;

	ck_assert_ptr_nonnull(directory);
	for (const struct dirent *entry; (entry = readdir(directory));)
		count += entry->d_name[0] != '.';
	closedir(directory);
	return count;
}

static void connect_pair(int pair[2])
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
}

/* The descriptor is on its way in a packet. */
static void send_one(int socket, int fd)
{
	const struct wire_message query = {.type = WIRE_QUERY_MEMORY, .id = 1};

	ck_assert_int_eq(message_send(socket, &query, &fd, 1), 0);
	close(fd);
}

/* In a socket of its own: what lingers then is not what was sent. */
static int wrap(int fd)
{
	int pair[2];

	connect_pair(pair);
	send_one(pair[1], fd);
	close(pair[1]);
	return pair[0];
}

static void discard_unread(int pair[2])
{
	discard_socket(pair[0]);
}

/* Somebody else has the socket, and closes it later. */
static void discard_deposited(int pair[2])
{
	int deposited = dup(pair[0]);

	discard_socket(pair[0]);
	close(deposited);
}

/* A descriptor that lingers, and one that holds such a one. */
static const struct {
	bool is_wrapped;
	void (*discard)(int pair[2]);
} rows[] = {{false, discard_unread}, {true, discard_unread}, {false, discard_deposited},
	{true, discard_deposited}};

TEST_LOOP(discard, what_lingers_leaves_nothing, 0, sizeof(rows) / sizeof(rows[0]))
{
	unsigned threads = count_threads(), fds = fds_count();
	int silent[TIMES], pair[2], slow;

	for (int i = 0; i < TIMES; i++) {
		slow = slow_new(&silent[i]);
		connect_pair(pair);
		send_one(pair[1], rows[_i].is_wrapped ? wrap(slow) : slow);
		rows[_i].discard(pair);
		close(pair[1]);
	}
	while (count_threads() > threads)
		sched_yield();
	ck_assert_uint_eq(fds_count(), fds + TIMES);
	for (int i = 0; i < TIMES; i++)
		close(silent[i]);
}

/* With something before it that ends the connection, or without. */
static void be_strange(struct fake *fake, bool is_second)
{
	int pair[2], file = mute_open();

	ck_assert_int_ge(file, 0);
	connect_pair(pair);
	if (is_second)
		send_one(pair[1], dup(STDERR_FILENO));
	send_one(pair[1], file);
	mute_begin();
	visitor_new(&fake->daemon, pair[0]);
	fake_expect_hangup(fake, pair[1]);
	close(pair[1]);
}

/* A stranger needs nothing but a connection: he may come as often as he likes. */
TEST_LOOP(discard, what_a_stranger_sends_is_not_even_taken, 0, 2)
{
	struct fake *fake = fake_new(1);
	unsigned threads, fds;

	if (mute_new()) {
		threads = count_threads();
		fds = fds_count();
		for (int i = 0; i < TIMES; i++) {
			be_strange(fake, _i);
			while (count_threads() > threads)
				sched_yield();
			mute_stop();
		}
		ck_assert_uint_eq(fds_count(), fds);
		mute_end();
	}
	fake_free(fake);
}

int main(void)
{
	Suite *suite = suite_create("discard");
	TCase *tests = suite_case(suite, "discard");

	fake_prepare();
	suite_add(tests, "discard");
	return suite_run(suite);
}
