// The probe, both sides. See probe.h. A driver that crashes, hangs, or ends its process while
// loading is an answer, too.

#include "server/probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "server/config/config.h"
#include "server/role.h"
#include "server/throwaway.h"

static void try_backend(const struct backend_ops *ops, struct probe_answer *answer)
{
	struct backend_probe probe = {0};
	CUresult code = ops->probe(&probe);

	answer->exclusive = probe.exclusive;
	memcpy(answer->unfit, probe.unfit, sizeof(answer->unfit));
	memcpy(answer->uuids, probe.uuids, sizeof(answer->uuids));
	memcpy(answer->peers, probe.peers, sizeof(answer->peers));
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

int probe_ask(const char *program, const char *backend, char *const *environment, unsigned patience_ms,
	struct probe_answer *ret_answer)
{
	char option[CONFIG_TEXT_MAX + 16], control[32];
	char *arguments[] = {(char *)"frmps-server", (char *)"--role=probe", option, control, NULL};
	const struct throwaway probe = {.program = program,
		.arguments = arguments,
		.environment = environment,
		.dump_fd = -1,
		.patience_ms = patience_ms};
	struct probe_answer answer = {0};
	int status = 0, r;

	snprintf(option, sizeof(option), "--backend=%s", backend);
	snprintf(control, sizeof(control), "--control-fd=%d", HERITAGE_CONTROL_FD);
	r = throwaway_ask(&probe, &answer, sizeof(answer), &status);
	if (r == -ETIMEDOUT)
		snprintf(answer.text, sizeof(answer.text), "the driver did not answer within %u ms",
			patience_ms);
	else if (r == -EPROTO)
		describe_death(status, &answer);
	else if (r)
		return r;
	answer.text[sizeof(answer.text) - 1] = '\0';
	*ret_answer = answer;
	return 0;
}
