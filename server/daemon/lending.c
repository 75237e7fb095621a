// See lending.h. A borrowing has a connection of its own, which ends with the answer. If the lender
// dies before that, the next life of that daemon is asked: its socket is there all the time.

#include "server/daemon/lending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/daemon/neighbour.h"
#include "server/daemon/sharing.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/reclaim.h"
#include "server/session/request.h"
#include "server/session/session.h"
#include "server/session/userlog.h"

/* Connections, one after the other, that may end without an answer. */
#define TRIES 4u
/* Pause before the next question about memory that is away. */
#define LATER_MS 20u

/* The values of an answer. */
enum { LENT_BYTES, LENT_IS_HOST, LENT_OFFSET, LENT_IS_PROGRAMS, LENT_VALUES };

struct borrowing {
	struct request *request;
	struct connection *connection;
	struct timer *timer;
	unsigned asked; /* devices before the one that is asked now, from the token's on */
	unsigned tries;
	lending_end_fn *end;
};

bool lending_may_help(const struct daemon *daemon, const uint64_t token[2])
{
	const unsigned devices = daemon_devices(daemon);

	return devices > 1 && WIRE_TOKEN_DEVICE(token) < devices;
}

/* The device that is asked now. */
static unsigned device_of(const struct borrowing *borrowing)
{
	const struct request *request = borrowing->request;

	return (WIRE_TOKEN_DEVICE(request->message.memory.token) + borrowing->asked) %
	       daemon_devices(request->session->daemon);
}

/* Return: false: all others were asked */
static bool find_next(struct borrowing *borrowing)
{
	const struct daemon *daemon = borrowing->request->session->daemon;

	while (borrowing->asked < daemon_devices(daemon) && device_of(borrowing) == daemon->heritage->number)
		borrowing->asked++;
	return borrowing->asked < daemon_devices(daemon);
}

/*
 * The borrower
 */

void lending_forget(struct request *request)
{
	struct borrowing *borrowing = request->borrowing;

	if (!borrowing)
		return;
	request->borrowing = NULL;
	request->place = REQUEST_HERE;
	connection_shutdown(borrowing->connection);
	timer_free(borrowing->timer);
	free(borrowing);
}

static void end(struct borrowing *borrowing, CUresult code, struct chunk *chunk, uint64_t bytes)
{
	struct request *request = borrowing->request;
	lending_end_fn *call = borrowing->end;

	lending_forget(request);
	call(request, code, chunk, bytes);
}

static void give_up(struct borrowing *borrowing, const char *reason)
{
	const struct request *request = borrowing->request;

	userlog_event(request->session->daemon, request->session->uid, USERLOG_memory, LOG_LEVEL_WARNING,
		"session %llu gets no memory of device %u: %s", (unsigned long long)request->session->number,
		device_of(borrowing), reason);
	end(borrowing, CUDA_ERROR_NOT_READY, NULL, 0);
}

/* Return: 0 or -errno */
static int ask(struct borrowing *borrowing);

/* The device that is asked now does not have the memory. */
static void ask_next(struct borrowing *borrowing)
{
	int r;

	borrowing->connection = connection_shutdown(borrowing->connection);
	borrowing->asked++;
	borrowing->tries = 0;
	if (!find_next(borrowing)) {
		end(borrowing, CUDA_ERROR_INVALID_VALUE, NULL, 0);
		return;
	}
	r = ask(borrowing);
	if (r < 0)
		give_up(borrowing, strerror(-r));
}

/* It may be anywhere by the next time. */
static void await(struct borrowing *borrowing)
{
	struct request *request = borrowing->request;
	const uint64_t waited_us = timer_now_us() - request->session->asked_us;

	if (waited_us / 1000 >= LENDING_PATIENCE_MS) {
		end(borrowing, CUDA_ERROR_NOT_READY, NULL, 0);
		return;
	}
	lending_forget(request);
	reclaim_await_for(request, LATER_MS);
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct borrowing *borrowing = context;
	const struct request *request = borrowing->request;
	const struct wire_reply *reply = &message->reply;
	struct chunk *chunk;

	if (message->type != WIRE_REPLY || (!reply->code && reply->values.count < LENT_VALUES)) {
		give_up(borrowing, "its daemon gives no answer that makes sense");
		return;
	}
	if (reply->code == CUDA_ERROR_INVALID_VALUE)
		ask_next(borrowing);
	else if (reply->code == CUDA_ERROR_NOT_READY)
		await(borrowing);
	else if (reply->code)
		end(borrowing, (CUresult)reply->code, NULL, 0);
	if (reply->code)
		return;
	chunk = chunk_new_borrowed(request->session->daemon,
		reply->values.at[LENT_IS_HOST] ? CHUNK_HOST : CHUNK_BORROWED, request->message.memory.token,
		packet_take_fd(packet, 0), packet_take_fd(packet, 1));
	if (chunk) {
		chunk->offset = reply->values.at[LENT_OFFSET];
		chunk->fd->is_programs = reply->values.at[LENT_IS_PROGRAMS];
	}
	end(borrowing, chunk ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, chunk, reply->values.at[LENT_BYTES]);
}

static void on_timer(void *context)
{
	give_up(context, "its daemon does not answer");
}

static void on_closed(void *context, const char *reason);

static int ask(struct borrowing *borrowing)
{
	const struct request *request = borrowing->request;
	const uint64_t *token = request->message.memory.token;
	struct daemon *daemon = request->session->daemon;
	const struct wire_message message = {.type = WIRE_LEND_MEMORY,
		.id = 1,
		.lend = {.token = {token[0], token[1]}, .uid = request->session->uid}};
	int fd = neighbour_connect(daemon, device_of(borrowing));

	if (fd < 0)
		return fd;
	borrowing->connection =
		connection_new(daemon->loop, CONNECTION_OURS, fd, 1, on_message, on_closed, borrowing);
	if (!borrowing->connection)
		return -ENOMEM;
	return connection_send(borrowing->connection, &message, NULL, 0) ? -ECONNRESET : 0;
}

static void on_closed(void *context, const char *reason)
{
	struct borrowing *borrowing = context;

	borrowing->connection = connection_shutdown(borrowing->connection);
	if (++borrowing->tries == TRIES || ask(borrowing) < 0)
		give_up(borrowing, reason);
}

void lending_borrow(struct request *request, lending_end_fn *end_call)
{
	struct borrowing *borrowing = calloc(1, sizeof(*borrowing));
	int r;

	if (!borrowing) {
		end_call(request, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
		return;
	}
	*borrowing = (struct borrowing){.request = request, .end = end_call};
	request->borrowing = borrowing;
	request->place = REQUEST_AT_LENDER;
	find_next(borrowing);
	borrowing->timer = timer_new(request->session->daemon->loop, on_timer, borrowing);
	r = ask(borrowing);
	if (!r)
		timer_start(borrowing->timer, LENDING_PATIENCE_MS);
	if (r < 0)
		give_up(borrowing, strerror(-r));
}

/*
 * The lender
 */

static CUresult lend(struct daemon *daemon, uid_t uid, const struct wire_lend *wish,
	uint64_t values[LENT_VALUES], struct shared_fd *fds[2])
{
	struct chunk *chunk;
	CUresult code;

	if (uid != geteuid())
		return CUDA_ERROR_NOT_PERMITTED;
	code = sharing_lend(daemon, (uid_t)wish->uid, wish->token, &chunk, &values[LENT_BYTES], &fds[1]);
	if (code)
		return code;
	values[LENT_IS_HOST] = chunk_is_host(chunk);
	values[LENT_OFFSET] = chunk->offset;
	values[LENT_IS_PROGRAMS] = chunk->fd->is_programs;
	fds[0] = shared_fd_ref(chunk->fd);
	return CUDA_SUCCESS;
}

void lending_lend(
	struct daemon *daemon, struct connection *connection, uid_t uid, const struct wire_message *message)
{
	struct wire_message answer = {.type = WIRE_REPLY, .id = message->id};
	struct shared_fd *fds[2] = {NULL, NULL};
	uint64_t values[LENT_VALUES];

	answer.reply.code = (int32_t)lend(daemon, uid, &message->lend, values, fds);
	if (!answer.reply.code)
		answer.reply.values = (struct wire_u64s){values, LENT_VALUES};
	/* Without an answer the borrower sees the end of the connection. */
	connection_send(connection, &answer, fds, answer.reply.code ? 0 : 2);
	shared_fd_unref(fds[0]);
	shared_fd_unref(fds[1]);
}
