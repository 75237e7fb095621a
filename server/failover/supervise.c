// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Processes over uv_process_t. The exit callback runs after the kernel has let the process be reaped: that is
// the fence.

#include "server/failover/supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"

struct process {
	uv_process_t handle;
	struct worker *worker;
	uint64_t killed_us;
};

static void on_close(uv_handle_t *handle)
{
	free(handle->data);
}

static void on_exit_of_child(uv_process_t *handle, int64_t status, int signal_number)
{
	struct process *process = handle->data;
	struct worker *worker = process->worker;

	log_debug("%s %d is reaped (status %lld, signal %d)%s", role_name(worker->role), (int)worker->pid,
		(long long)status, signal_number, process->killed_us ? ", it was killed" : "");
	/* From here on there is nothing to kill. */
	worker->process = NULL;
	uv_close((uv_handle_t *)handle, on_close);
	worker_reaped(worker, (int)status, signal_number);
}

/* The same file that this process runs, even if a newer one lies at its path by now. */
#define OWN_PROGRAM "/proc/self/exe"

static int spawn(struct process *process, struct worker *worker, int control_fd, int words_fd)
{
	const struct heritage *heritage = worker->daemon->heritage;
	char role[32], backend[32], device[32], level[32], control[32], words[32];
	char *arguments[] = {(char *)"frmps-server", role, backend, device, level, control,
		words_fd >= 0 ? words : NULL, NULL};
	uv_stdio_container_t stdio[] = {{.flags = UV_IGNORE}, {.flags = UV_INHERIT_FD, .data = {.fd = 1}},
		{.flags = UV_INHERIT_FD, .data = {.fd = 2}},
		{.flags = UV_INHERIT_FD, .data = {.fd = control_fd}},
		{.flags = UV_INHERIT_FD, .data = {.fd = words_fd}}};
	uv_process_options_t options = {.exit_cb = on_exit_of_child,
		.file = OWN_PROGRAM,
		.args = arguments,
		.env = heritage->environment,
		.stdio = stdio,
		.stdio_count = words_fd >= 0 ? 5 : 4};

	snprintf(role, sizeof(role), "--role=%s", role_name(worker->role));
	snprintf(backend, sizeof(backend), "--backend=%s", heritage->backend);
	snprintf(device, sizeof(device), "--device=%d", heritage->device);
	snprintf(level, sizeof(level), "--child-log-level=%d", heritage->log_level);
	snprintf(control, sizeof(control), "--control-fd=%d", HERITAGE_CONTROL_FD);
	snprintf(words, sizeof(words), "--words-fd=%d", HERITAGE_WORDS_FD);
	return uv_spawn(worker->daemon->loop, &process->handle, &options);
}

static int start(struct worker *worker, int control_fd, int words_fd)
{
	struct process *process = calloc(1, sizeof(*process));
	int r = process ? spawn(process, worker, control_fd, words_fd) : -ENOMEM;

	close(control_fd);
	if (words_fd >= 0)
		close(words_fd);
	if (!process)
		return r;
	process->handle.data = process;
	if (r < 0) {
		/* The handle was made known to the loop before the fork failed. */
		uv_close((uv_handle_t *)&process->handle, on_close);
		return r;
	}
	process->worker = worker;
	worker->process = process;
	worker->pid = process->handle.pid;
	log_debug("%s %d is started", role_name(worker->role), (int)worker->pid);
	return 0;
}

static void kill_child(struct worker *worker)
{
	struct process *process = worker->process;

	if (!process)
		return;
	process->killed_us = timer_now_us();
	uv_process_kill(&process->handle, SIGKILL);
}

const struct spawner supervise_spawner = {.start = start, .kill = kill_child};
