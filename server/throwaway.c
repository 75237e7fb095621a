// See throwaway.h.

#include "server/throwaway.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/await.h"
#include "server/role.h"

/* Time limit for the end of a killed process: the driver does not give back its resources
 * before. */
#define END_MS 8000

static pid_t start(const struct throwaway *asked, int answer_fd)
{
	const struct heritage_fds fds = {
		.control = answer_fd, .words = -1, .dump = asked->dump_fd, .output = -1};
	pid_t self = getpid(), pid = fork();

	if (pid)
		return pid;
	/* The child ends with its parent. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == self && heritage_place(&fds))
		execve(asked->program, asked->arguments, asked->environment);
	_exit(127);
}

/* Others need its memory. A process that stays in the driver is left behind. Return: its status, 0:
 * still there */
static int await_end(pid_t pid, int process)
{
	int status = 0;

	if (!await_input(process, END_MS)) {
		kill(pid, SIGKILL);
		await_input(process, END_MS);
	}
	waitpid(pid, &status, WNOHANG);
	return status;
}

static int hear(const struct throwaway *asked, pid_t pid, int answer_fd, void *ret_answer, size_t size,
	int *ret_status)
{
	int process = (int)syscall(SYS_pidfd_open, pid, 0), error = errno;
	int r = process < 0 ? -error : await_answer(answer_fd, asked->patience_ms, ret_answer, size);

	if (process < 0 || r == -ETIMEDOUT)
		kill(pid, SIGKILL);
	/* The process is not in the driver yet. */
	if (process < 0) {
		waitpid(pid, NULL, 0);
		return r;
	}
	*ret_status = await_end(pid, process);
	close(process);
	return r;
}

int throwaway_ask(const struct throwaway *asked, void *ret_answer, size_t size, int *ret_status)
{
	int ends[2], r;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = start(asked, ends[1]);
	r = pid < 0 ? -errno : 0;
	close(ends[1]);
	if (!r)
		r = hear(asked, pid, ends[0], ret_answer, size, ret_status);
	close(ends[0]);
	return r;
}
