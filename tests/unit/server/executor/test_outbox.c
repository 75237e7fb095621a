// Messages to the daemon that the kernel does not take: each arrives, once, in its order, with its
// descriptor. The test is the daemon, and the kernel where a message is sent.

#include "server/executor/outbox.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/clock.h"
#include "tests/lib/scarce.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fixture.h"

#define MESSAGES 6u

/* Sending fails for so many times, behind so many that go well. */
static unsigned fails, passes;
static int error;

/* In place of the C library's. */
ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
	if (passes) {
		passes--;
	} else if (fails) {
		fails--;
		errno = error;
		return -1;
	}
	return syscall(SYS_sendmsg, socket, message, flags);
}

/* Longer than what malloc() may have at hand of a size. */
static char text[4096];

static void answer(uint64_t id)
{
	const struct wire_message reply = {.type = WIRE_REPLY, .id = id, .reply = {.text = text}};

	memset(text, 't', sizeof(text) - 1);
	executor_send(&fixture.executor, &reply);
}

static struct packet packet;

/* Return: the number of the answer that has come; 0: none has */
static uint64_t heard(void)
{
	struct wire_message message;

	packet_close_fds(&packet);
	if (packet_receive(fixture.control[1], &packet))
		return 0;
	ck_assert_int_eq(wire_decode(packet.bytes, packet.length, &message), 0);
	return message.id;
}

/* With _i: behind how many. */
TEST_LOOP(outbox, every_answer_arrives_once_and_in_its_order, 0, MESSAGES + 1)
{
	static const int errors[] = {ENOBUFS, ENOMEM, EAGAIN, ETOOMANYREFS};
	uint64_t next = 1;

	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		passes = (unsigned)_i;
		fails = 2;
		error = errors[i];
		for (unsigned k = 0; k < MESSAGES; k++)
			answer(next + k);
		while (outbox_step(&fixture.executor, 0) != UINT64_MAX)
			continue;
		for (unsigned k = 0; k < MESSAGES; k++)
			ck_assert_uint_eq(heard(), next++);
		ck_assert_uint_eq(heard(), 0);
	}
}

/* The main thread does not wait for something else then. */
TEST(outbox, the_main_thread_is_woken)
{
	uint64_t count;

	fails = 1;
	error = ENOBUFS;
	answer(1);
	ck_assert_int_eq(read(fixture.executor.board.kick, &count, sizeof(count)), sizeof(count));
}

/* Rather than that somebody waits for ever. */
TEST(outbox, an_executor_that_can_neither_send_nor_keep_ends)
{
	int status;
	pid_t pid;

	if (!SCARCE_POSSIBLE)
		return;
	pid = fork();
	if (pid == 0) {
		fails = 1;
		error = ENOBUFS;
		scarce_begin();
		answer(1);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void set_up(void)
{
	fails = passes = 0;
	fixture_open_default();
}

int main(void)
{
	Suite *suite = suite_create("outbox");
	TCase *tests = suite_case(suite, "outbox");

	tcase_add_checked_fixture(tests, set_up, fixture_close);
	suite_add(tests, "outbox");
	return suite_run(suite);
}
