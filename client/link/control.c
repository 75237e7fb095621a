// A single request at a time over a control socket, on the program's threads. The lock is only a
// queue: a thread takes no other lock inside.

#include "client/link/control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "client/link/connect.h"
#include "client/link/lost.h"
#include "client/state/backing.h"
#include "client/state/log.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/state/uncancelled.h"

void control_start(void)
{
	struct control *control = &session_self()->control;

	pthread_mutex_init(&control->lock, NULL);
	control->latest_id = 1; /* was the Hello */
}

struct control_answer *control_answer_new(void)
{
	/* Only the descriptors need a value before the first use; the rest is 70 KB. */
	struct control_answer *answer = malloc(sizeof(*answer));

	if (!answer)
		return NULL;
	answer->packet.fd_count = 0;
	for (unsigned i = 0; i < WIRE_FDS_MAX; ++i)
		answer->packet.fds[i] = -1;
	answer->message.type = WIRE_NONE;
	return answer;
}

struct control_answer *control_answer_free(struct control_answer *answer)
{
	int cancelable;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	if (answer)
		packet_close_fds(&answer->packet);
	pthread_setcancelstate(cancelable, NULL);
	free(answer);
	return NULL;
}

/* Waits until there is something to read; a hang-up counts. */
static void await_packet(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		continue;
}

/* Receives the Reply to request `id`. Return: 0, or anything else when the service is lost. */
static int receive_reply(int fd, uint64_t id, struct control_answer *answer)
{
	int r;

	for (;;) {
		await_packet(fd);
		packet_close_fds(&answer->packet);
		r = packet_receive(fd, &answer->packet);
		if (r == PACKET_E_AGAIN)
			continue;
		/* The program has too many open files. That is an answer: the caller misses the
		 * descriptor. */
		if (r == PACKET_E_NO_FDS)
			r = 0;
		if (r == 0)
			r = wire_decode(answer->packet.bytes, answer->packet.length, &answer->message);
		if (r != 0)
			return r;
		if (answer->message.type == WIRE_REPLY && answer->message.id == id)
			return 0;
		/* This service sends nothing else to a client after the handshake; a later version
		 * may. */
		client_log(CLIENT_LOG_DEBUG, "ignored %s", wire_type_name(answer->message.type));
	}
}

CUresult control_call(struct wire_message *request, struct control_answer *ret_answer)
{
	const struct connection *connection = &session_self()->connection;
	struct control *control = &session_self()->control;
	CUresult r = process_error();
	bool sent;
	int e, cancelable;

	if (r != CUDA_SUCCESS)
		return r;
	/* A thread that is cancelled here would block the others for ever. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	pthread_mutex_lock(&control->lock);
	request->id = ++control->latest_id;
	request->session = connection->session;
	e = message_send(connection->control_fd, request, NULL, 0);
	sent = e == 0;
	if (sent)
		e = receive_reply(connection->control_fd, request->id, ret_answer);
	pthread_mutex_unlock(&control->lock);
	pthread_setcancelstate(cancelable, NULL);
	/* Too long for a packet; the connection is intact. */
	if (!sent && e == PACKET_E_INVALID)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sent && e == -ENOMEM)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (e != 0)
		return lost_report(session_self(), "the control socket was closed");
	return (CUresult)ret_answer->message.reply.code;
}

/* Over the socket of the answer to TakeFile. CUDA_ERROR_ILLEGAL_STATE: nobody is at its other end
 * any more, or another file has come there. */
static CUresult hand_over(int socket, const struct backing *file, struct control_answer *answer)
{
	const struct wire_u64s *values = &answer->message.reply.values;
	int r = packet_send(socket, (const uint8_t *)"f", 1, &file->fd, 1);

	packet_close_fds(&answer->packet);
	if (r == 0)
		r = message_receive(socket, &answer->packet, &answer->message);
	if (r != 0 || answer->message.type != WIRE_REPLY)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (answer->message.reply.code)
		client_log(
			CLIENT_LOG_INFO, "the service does not take a file: %s", answer->message.reply.text);
	else if (values->count < 2 || values->at[0] != file->device || values->at[1] != file->inode)
		return CUDA_ERROR_ILLEGAL_STATE;
	return (CUresult)answer->message.reply.code;
}

static CUresult take_file(const struct backing *file, struct control_answer *answer, uint64_t *ret_file)
{
	struct wire_message request = {.type = WIRE_TAKE_FILE};
	CUresult r = control_call(&request, answer);
	int socket;

	if (r == CUDA_SUCCESS && (!answer->message.reply.values.count || !answer->packet.fd_count))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS)
		return r;
	*ret_file = answer->message.reply.values.at[0];
	socket = packet_take_fd(&answer->packet, 0);
	r = hand_over(socket, file, answer);
	uncancelled_close(socket);
	return r;
}

CUresult control_take_file(const struct backing *file, uint64_t *ret_file)
{
	struct control_answer *answer = control_answer_new();
	int cancelable;
	CUresult r;

	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	r = take_file(file, answer, ret_file);
	pthread_setcancelstate(cancelable, NULL);
	control_answer_free(answer);
	return r;
}

CUresult control_make_file(int *ret_fd, uint64_t *ret_file)
{
	struct wire_message request = {.type = WIRE_MAKE_FILE};
	struct control_answer *answer = control_answer_new();
	const struct wire_reply *reply;
	CUresult r;

	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	reply = &answer->message.reply;
	r = control_call(&request, answer);
	if (r == CUDA_SUCCESS && (!reply->values.count || !answer->packet.fd_count))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		*ret_file = reply->values.at[0];
		*ret_fd = packet_take_fd(&answer->packet, 0);
	}
	control_answer_free(answer);
	return r;
}
