// What one user can take from others by asking for much: turns to be greeted, places, executors.
// And who is one user: his subordinate ones are he.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/owner.h"
#include "server/session/session.h"
#include "server/door/visitor.h"
#include "server/session/window.h"
#include "tests/unit/server/session/fixture.h"

#define GREEDY ((uid_t)1000)
#define OTHER  ((uid_t)1001)
#define FIRST  ((uid_t)100000) /* of GREEDY's subordinate users */
#define MANY   40u
#define CROWD  200u
#define SHARE  4u

/*
 * Turns
 */

/* Says Hello; nothing of it has been read. */
static int come(uid_t uid)
{
	static const uint64_t all[7] = {~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0),
		~UINT64_C(0), ~UINT64_C(0)};
	const struct wire_message hello = {.type = WIRE_HELLO,
		.id = 1,
		.hello = {.major = FRMPS_PROTOCOL_MAJOR,
			.program = "fake",
			.free_windows = {all, 7},
			.window_base = WINDOW_GRID_BASE,
			.window_bytes = WINDOW_BYTES}};
	struct visitor *visitor;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	visitor = TAILQ_LAST(&fake->daemon.visitors, visitor_list);
	visitor->peer.uid = visitor->identity.uid = uid;
	visitor->peer.owner = owner_of(uid);
	ck_assert_int_eq(message_send(pair[1], &hello, NULL, 0), 0);
	return pair[1];
}

static unsigned count_sessions(uid_t uid)
{
	const struct session *session;
	unsigned count = 0;

	TAILQ_FOREACH (session, &fake->daemon.sessions, link)
		count += session->uid == uid;
	return count;
}

TEST(turns, who_opens_many_sessions_keeps_nobody_waiting)
{
	int sockets[MANY + 1];

	boot();
	for (unsigned i = 0; i < MANY; i++)
		sockets[i] = come(GREEDY);
	sockets[MANY] = come(OTHER);
	while (!count_sessions(OTHER)) {
		unsigned before = fake->daemon.session_count;

		uv_run(&fake->loop, UV_RUN_NOWAIT);
		/* One in a round, so that what others ask meanwhile has its turn as well. */
		ck_assert_uint_le(fake->daemon.session_count, before + 1);
	}
	ck_assert_uint_le(count_sessions(GREEDY), 2);
	FAKE_RUN_WHILE(fake, count_sessions(GREEDY) < MANY);
	for (unsigned i = 0; i <= MANY; i++)
		close(sockets[i]);
	end();
}

/* They wait for their turns at the same time, and none is sent away. */
TEST(turns, a_crowd_is_served)
{
	int sockets[CROWD];

	boot();
	fake->config.clients_per_user_max = 448;
	fake->daemon.fds_max = 1u << 20;
	for (unsigned i = 0; i < CROWD; i++) {
		sockets[i] = come(GREEDY);
		/* Read, and perhaps not greeted. */
		uv_run(&fake->loop, UV_RUN_NOWAIT);
	}
	FAKE_RUN_WHILE(fake, count_sessions(GREEDY) < CROWD);
	for (unsigned i = 0; i < CROWD; i++)
		close(sockets[i]);
	end();
}

/*
 * Owners
 */

static char subuid[] = "/tmp/frmps-subuid-XXXXXX", passwd[] = "/tmp/frmps-passwd-XXXXXX";

static void write_file(char *path, const char *text)
{
	int fd = mkostemp(path, O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void read_files(void)
{
	write_file(passwd, "root:x:0:0::/root:/bin/sh\ngreedy:x:1000:1000::/:/bin/sh\n");
	write_file(subuid, "greedy:100000:65536\n1001:200000:10\nof a directory server:300000:10\n"
			   "nonsense\n:1:2\n1003:400000:0\n");
	owner_read_from(subuid, passwd);
}

static void forget_files(void)
{
	owner_read_from(NULL, NULL);
	unlink(subuid);
	unlink(passwd);
}

TEST(owners, subordinate_users_are_their_owners)
{
	read_files();
	ck_assert_uint_eq(owner_of(0), 0);
	ck_assert_uint_eq(owner_of(GREEDY), GREEDY);
	ck_assert_uint_eq(owner_of(FIRST - 1), FIRST - 1);
	ck_assert_uint_eq(owner_of(FIRST), GREEDY);
	ck_assert_uint_eq(owner_of(FIRST + 65535), GREEDY);
	ck_assert_uint_eq(owner_of(FIRST + 65536), FIRST + 65536);
	ck_assert_uint_eq(owner_of(200009), 1001);
	ck_assert_uint_eq(owner_of(200010), 200010);
	ck_assert_uint_eq(owner_of(300005), 300000);
	ck_assert_uint_eq(owner_of(400000), 400000);
	forget_files();
}

TEST(owners, subordinate_users_have_one_share_together)
{
	struct fake_client clients[3];

	read_files();
	boot();
	fake->config.clients_per_user_max = 2;
	fake_hello_as(fake, &clients[0], FIRST);
	fake_hello_as(fake, &clients[1], FIRST + 1);
	ck_assert_uint_eq(fake->daemon.session_count, 2);
	fake_hello_as(fake, &clients[2], FIRST + 2);
	fake_expect(fake, clients[2].socket, WIRE_REFUSE);
	close(clients[2].socket);
	fake_hello_as(fake, &clients[2], OTHER);
	ck_assert_uint_eq(fake->daemon.session_count, 3);
	for (int i = 0; i < 3; i++)
		close(clients[i].socket);
	end();
	forget_files();
}

/*
 * Executors
 */

static struct domain_refusal refusal;
static struct domain *domains[16];
static unsigned domain_count;

/* A domain of its own for a program. Return: whether there is one */
static bool make_domain(uid_t uid, bool ordered)
{
	struct domain *domain =
		domain_of(&fake->daemon, &(struct identity){.uid = uid}, "it has faults", ordered, &refusal);

	if (!domain)
		return false;
	domains[domain_count++] = domain;
	/* It stays, though nobody is in it. */
	for (unsigned i = 0; i < domain_count; i++)
		timer_stop(domains[i]->idle);
	return true;
}

/* The first executors of all are somebody else's. */
static void boot_for_other(void)
{
	boot();
	ck_assert(make_domain(OTHER, false));
}

TEST(executors, a_user_has_bounded_executors)
{
	boot_for_other();
	fake->config.executors_per_user_max = SHARE;
	for (unsigned i = 0; i < SHARE; i++) {
		ck_assert(make_domain(GREEDY, false));
		/* A program is on its way into it. */
		domains[1 + i]->arrival = (struct move *)&refusal;
	}
	ck_assert(!make_domain(GREEDY, false));
	ck_assert_str_eq(refusal.text, DOMAIN_NO_SHARE);
	ck_assert(make_domain(OTHER, false));
	/* What the configuration wants is no part of his share. */
	ck_assert(make_domain(GREEDY, true));
	for (unsigned i = 0; i < SHARE; i++)
		domains[1 + i]->arrival = NULL;
	end();
}

/* Executors that nobody uses go for those that somebody needs. */
TEST(executors, idle_executors_make_room)
{
	read_files();
	boot();
	fake->config.executors_per_user_max = SHARE;
	domains[0] = domain_of(&fake->daemon, &(struct identity){.uid = FIRST}, NULL, false, &refusal);
	domains[1] = domain_of(&fake->daemon, &(struct identity){.uid = FIRST + 1}, NULL, false, &refusal);
	ck_assert(domains[0] && domains[1]);
	ck_assert_ptr_nonnull(
		domain_of(&fake->daemon, &(struct identity){.uid = FIRST + 2}, NULL, false, &refusal));
	ck_assert(domains[0]->life == DOMAIN_RETIRES || domains[1]->life == DOMAIN_RETIRES);
	end();
	forget_files();
}

/* The device lets one process have a context. */
TEST(executors, one_executor_at_a_time_where_the_device_wants_it)
{
	fake = fake_new(1);
	fake->heritage.exclusive = true;
	fake_ready(fake, &fake->children[0]);
	fake_warm(fake, &fake->children[1]);
	fake_serve(fake, &fake->children[1], WIRE_ACTIVATE);
	fake_hello(fake, &client);
	fake_open(fake, &fake->children[1]);
	ck_assert_uint_eq(domain_executors_wanted(fake_domain(fake)), 1);
	/* No spare one, none for a second user, and none for one program alone. */
	ck_assert_uint_eq(fake->child_count, 2);
	ck_assert(!make_domain(FIRST, false));
	ck_assert_int_eq(refusal.code, CUDA_ERROR_MPS_SERVER_NOT_READY);
	ck_assert_str_eq(refusal.text, DOMAIN_NO_CONTEXT);
	fake_welcome(fake, &client);
	/* The second user's starts when the first one's has ended, and not when it is killed. */
	fake_leave(fake, &client);
	fake_turn(fake);
	ck_assert(make_domain(FIRST, false));
	fake_turn(fake);
	ck_assert(fake->children[1].killed);
	ck_assert_uint_eq(fake->child_count, 2);
	fake_reap(fake, &fake->children[1], SIGKILL);
	ck_assert_uint_eq(fake->child_count, 3);
	ck_assert_ptr_eq(fake->children[2].worker->domain, domains[0]);
	end();
}

/* A program that faults again and again has executors made again and again. */
TEST(executors, executors_of_a_user_start_one_after_the_other)
{
	boot_for_other();
	for (unsigned i = 0; i < 3; i++)
		ck_assert(make_domain(GREEDY, false));
	ck_assert_uint_eq(fake->child_count, 4);
	/* Nobody else waits for that. */
	ck_assert(make_domain(OTHER, false));
	ck_assert_uint_eq(fake->child_count, 5);
	fake_ready(fake, &fake->children[3]);
	ck_assert_uint_eq(fake->child_count, 6);
	/* One that dies makes way as well. */
	fake_reap(fake, &fake->children[5], SIGKILL);
	ck_assert_uint_eq(fake->child_count, 7);
	end();
}

int main(void)
{
	Suite *suite = suite_create("fair");
	TCase *turns, *owners, *executors;

	fake_prepare();
	turns = suite_case(suite, "turns");
	owners = suite_case(suite, "owners");
	executors = suite_case(suite, "executors");
	suite_add(turns, "turns");
	suite_add(owners, "owners");
	suite_add(executors, "executors");
	return suite_run(suite);
}
