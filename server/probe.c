// The probe, both sides. See probe.h. A driver that crashes or ends its process when it is loaded is an
// answer, too.

#include "server/probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

#include "server/backend/backend.h"
#include "server/role.h"

static void try_backend(const struct backend_ops *ops, struct probe_answer *answer)
{
	struct backend_probe probe = {0};
	CUresult code = ops->probe(&probe);

	if (code == CUDA_SUCCESS)
		answer->device_count = probe.device_count;
	else if (probe.text[0])
		snprintf(answer->text, sizeof(answer->text), "%.*s", (int)sizeof(answer->text) - 1,
			probe.text);
	else
		snprintf(answer->text, sizeof(answer->text), "the %s backend does not work here (code %d)",
			ops->name, (int)code);
}

int probe_main(const struct backend_ops *ops, int answer_fd)
{
	struct probe_answer answer = {0};
	ssize_t n;

	try_backend(ops, &answer);
	n = write(answer_fd, &answer, sizeof(answer));
	return n == (ssize_t)sizeof(answer) ? 0 : 1;
}

static void run_child(const char *program, const char *backend, char *const *environment, int fd)
{
	char option[32], number[32];
	char *arguments[] = {(char *)"frmps-server", (char *)"--role=probe", option, number, NULL};

	snprintf(option, sizeof(option), "--backend=%s", backend);
	snprintf(number, sizeof(number), "--control-fd=%d", HERITAGE_CONTROL_FD);
	/* dup2 onto itself would leave the descriptor close-on-exec. */
	if (fd == HERITAGE_CONTROL_FD ? fcntl(fd, F_SETFD, 0) < 0 : dup2(fd, HERITAGE_CONTROL_FD) < 0)
		_exit(126);
	execve(program, arguments, environment);
	_exit(127);
}

static void describe_death(int status, struct probe_answer *answer)
{
	*answer = (struct probe_answer){0};
	if (WIFSIGNALED(status))
		snprintf(answer->text, sizeof(answer->text),
			"asking the driver ended the process by signal %d", WTERMSIG(status));
	else
		snprintf(answer->text, sizeof(answer->text), "asking the driver failed with exit code %d",
			WEXITSTATUS(status));
}

int probe_ask(
	const char *program, const char *backend, char *const *environment, struct probe_answer *ret_answer)
{
	struct probe_answer answer;
	int ends[2], status = 0, error;
	ssize_t n;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		run_child(program, backend, environment, ends[1]);
	error = errno;
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return -error;
	}
	do {
		n = read(ends[0], &answer, sizeof(answer));
	} while (n < 0 && errno == EINTR);
	close(ends[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (n != (ssize_t)sizeof(answer))
		describe_death(status, &answer);
	answer.text[sizeof(answer.text) - 1] = '\0';
	*ret_answer = answer;
	return 0;
}
