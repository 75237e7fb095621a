// See compiler.h.

#include "server/worker/compiler.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/timer.h"
#include "server/loop/watch.h"
#include "server/role.h"
#include "server/worker/crew.h"
#include "server/worker/worker.h"

/* A compiler has one request at a time. */
#define QUEUE_MAX 4u

static struct compiler *compiler_free(struct compiler *compiler)
{
	TAILQ_REMOVE(&compiler->crew->compilers, compiler, link);
	connection_shutdown(compiler->connection);
	watch_free(compiler->process);
	timer_free(compiler->timer);
	free(compiler);
	return NULL;
}

static void end(struct compiler *compiler)
{
	if (!compiler->ended)
		syscall(SYS_pidfd_send_signal, compiler->pidfd, SIGKILL, NULL, 0);
	compiler->ended = true;
}

static void give_up(struct compiler *compiler, const char *why)
{
	if (!compiler->ended)
		snprintf(compiler->why, sizeof(compiler->why), "%s", why);
	end(compiler);
}

void compiler_end(struct compiler *compiler)
{
	compiler->reply = NULL;
	timer_stop(compiler->timer);
	end(compiler);
}

/* The owner of the request may end the compiler, or the daemon. */
static void answer(struct compiler *compiler, const struct wire_reply *reply, const char *text)
{
	compiler_reply_fn *send = compiler->reply;

	compiler->reply = NULL;
	timer_stop(compiler->timer);
	compiler->used_us = timer_now_us();
	send(compiler->context, reply, text);
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct compiler *compiler = context;

	(void)packet;
	if (message->type == WIRE_REPLY && compiler->reply && message->id == compiler->id)
		answer(compiler, &message->reply, "");
	else if (message->type == WIRE_LOST)
		give_up(compiler, message->trouble.text);
	else if (message->type == WIRE_READY && !compiler->ready)
		compiler->ready = true;
	else
		give_up(compiler, "it broke the protocol");
}

/* The process's end follows, by itself or not, and gives the reason. */
static void on_closed(void *context, const char *reason)
{
	(void)reason;
	end(context);
}

static void on_late(void *context)
{
	struct compiler *compiler = context;
	char text[sizeof(compiler->why)];

	snprintf(text, sizeof(text), "it did not end within %llu s",
		(unsigned long long)(compiler->crew->compile_ms / 1000));
	give_up(compiler, text);
}

static void describe_end(const struct compiler *compiler, const siginfo_t *info, char *text, size_t size)
{
	if (compiler->why[0])
		snprintf(text, size, "%s", compiler->why);
	else if (info->si_code == CLD_EXITED && info->si_status == HERITAGE_EXIT_IDENTITY)
		snprintf(text, size, "it cannot run as the user of its program");
	else if (info->si_code == CLD_EXITED)
		snprintf(text, size, "it ended with status %d", info->si_status);
	else
		snprintf(text, size, "it was ended by signal %d (%s)", info->si_status,
			strsignal(info->si_status));
}

static void on_end(void *context)
{
	struct compiler *compiler = context;
	siginfo_t info = {0};
	char text[200];

	/* The compiler is our own child, and nobody else's: the holder could not distinguish it
	 * from an executor. */
	waitid(P_PIDFD, (id_t)compiler->pidfd, &info, WEXITED | WNOHANG);
	/* The compiler's answer may be unread. */
	connection_drain(compiler->connection);
	describe_end(compiler, &info, text, sizeof(text));
	log_debug("compiler %d is reaped: %s", (int)compiler->pid, text);
	compiler->ended = true;
	if (compiler->reply)
		answer(compiler, NULL, text);
	compiler_free(compiler);
}

/* @socket: taken over. Return: 0 or -errno */
static int start(struct compiler *compiler, int socket)
{
	const struct crew *crew = compiler->crew;

	compiler->pid = crew->spawner->start_compiler(compiler, socket, &compiler->pidfd);
	if (compiler->pid < 0)
		return compiler->pid;
	compiler->process = watch_new(crew->loop, compiler->pidfd, on_end, compiler);
	if (compiler->process)
		return 0;
	/* Nobody will see the end of the process. */
	kill(compiler->pid, SIGKILL);
	return -ENOMEM;
}

int compiler_start(struct crew *crew, uid_t uid, unsigned arch, struct compiler **ret_compiler)
{
	struct compiler *compiler = calloc(1, sizeof(*compiler));
	int pair[2], r;

	if (!compiler)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		free(compiler);
		return -errno;
	}
	*compiler = (struct compiler){
		.crew = crew, .uid = uid, .arch = arch, .pidfd = -1, .used_us = timer_now_us()};
	TAILQ_INSERT_TAIL(&crew->compilers, compiler, link);
	/* The compiler's user owns the process. */
	compiler->connection = connection_new(
		crew->loop, CONNECTION_OUTSIDE, pair[0], QUEUE_MAX, on_message, on_closed, compiler);
	compiler->timer = timer_new(crew->loop, on_late, compiler);
	if (compiler->connection) {
		r = start(compiler, pair[1]);
	} else {
		close(pair[1]);
		r = -ENOMEM;
	}
	if (r < 0)
		compiler_free(compiler);
	else
		*ret_compiler = compiler;
	return r;
}

void compiler_request(struct compiler *compiler, struct wire_message *message, struct shared_fd *const *fds,
	unsigned fd_count, compiler_reply_fn *reply, void *context)
{
	compiler->reply = reply;
	compiler->context = context;
	message->id = ++compiler->id;
	timer_start(compiler->timer, compiler->crew->compile_ms);
	/* A process that has ended is noticed by its end. */
	if (connection_send(compiler->connection, message, fds, fd_count))
		end(compiler);
}

void compiler_end_all(struct crew *crew)
{
	struct compiler *compiler;

	while ((compiler = TAILQ_FIRST(&crew->compilers))) {
		compiler_end(compiler);
		compiler_free(compiler);
	}
}
