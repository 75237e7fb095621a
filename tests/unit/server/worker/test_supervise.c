// What a child is told at its start. The children of this test are this test: they run its program.

#include "server/worker/supervise.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/worker/crew.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"

#define TOLD_BYTES 4096

/* The child: says its options. */
static int say(int count, char **arguments)
{
	char told[TOLD_BYTES] = "";

	for (int i = 1; i < count; i++) {
		strncat(told, arguments[i], sizeof(told) - strlen(told) - 2);
		strcat(told, " ");
	}
	return write(HERITAGE_CONTROL_FD, told, strlen(told)) > 0 ? 0 : 1;
}

/* Starts one and hears its options. */
static void start(enum role role, enum proof_state proof, char *ret_told)
{
	struct heritage heritage = {
		.backend = "cuda", .backend_option = "cuda", .environment = environ, .proof.state = proof};
	struct crew crew = {.heritage = &heritage};
	struct worker worker = {.crew = &crew, .role = role};
	struct heritage_fds fds = {.words = -1, .dump = -1, .output = -1};
	int pair[2];
	ssize_t n;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fds.control = pair[1];
	if (role == ROLE_EXECUTOR)
		fds.words = dup(STDERR_FILENO);
	ck_assert_int_eq(supervise_spawner.start(&worker, &fds), 0);
	n = read(pair[0], ret_told, TOLD_BYTES - 1);
	ck_assert_int_gt(n, 0);
	ret_told[n] = '\0';
	close(pair[0]);
	free(worker.process);
}

/* The keeper runs no kernels. */
static const struct {
	enum role role;
	enum proof_state proof;
	bool told;
} starts[] = {{ROLE_EXECUTOR, PROOF_FAILED, true}, {ROLE_EXECUTOR, PROOF_GOOD, false},
	{ROLE_EXECUTOR, PROOF_NONE, false}, {ROLE_KEEPER, PROOF_FAILED, false}};

TEST_LOOP(supervise, executors_learn_that_nothing_is_proved, 0, sizeof(starts) / sizeof(starts[0]))
{
	char told[TOLD_BYTES];

	start(starts[_i].role, starts[_i].proof, told);
	ck_assert_ptr_nonnull(strstr(told, "--backend=cuda "));
	ck_assert_int_eq(strstr(told, "--unproved ") != NULL, starts[_i].told);
}

int main(int count, char **arguments)
{
	Suite *suite = suite_create("supervise");
	TCase *tests = tcase_create("supervise");

	if (count > 1 && strncmp(arguments[1], "--role=", 7) == 0)
		return say(count, arguments);
	suite_add(tests, "supervise");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
