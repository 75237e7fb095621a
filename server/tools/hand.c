// See hand.h.

#include "server/tools/hand.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/tools/ask.h"

/* Of a single message: memory may have a long way, and an executor may have to start. */
#define HEAR_SECONDS 900u

/* The first reason counts. */
static int note(struct hand *hand, int error, const char *text)
{
	if (!hand->error) {
		hand->error = error;
		snprintf(hand->text, sizeof(hand->text), "%s", text);
	}
	return -1;
}

int hand_fail(struct hand *hand, const char *format, ...)
{
	char text[HAND_TEXT];
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	return note(hand, ASK_E_REFUSED, text);
}

/* @r: of protocol/socket.h */
static int lose(struct hand *hand, int r)
{
	const int error = r == PACKET_E_CLOSED	? -ECONNRESET
			  : r == PACKET_E_AGAIN ? -ETIMEDOUT
			  : r > 0		? -EPROTO
						: r;
	char text[200];

	snprintf(text, sizeof(text), "the service does not answer: %s", strerror(-error));
	return note(hand, error, text);
}

static int send_message(struct hand *hand, const struct wire_message *message, const int *fds, unsigned count)
{
	int r;

	if (hand->error)
		return -1;
	r = message_send(hand->socket, message, fds, count);
	return r ? lose(hand, r) : 0;
}

/* A program may have thousands of pieces of pinned memory, each with a descriptor. */
static void allow_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

struct hand *hand_open(const char *path, enum handover_step step, uint64_t session)
{
	const struct wire_message message = {
		.type = WIRE_HANDOVER, .session = session, .handover = {.step = step, .text = ""}};
	struct hand *hand = calloc(1, sizeof(*hand));
	char text[HAND_TEXT];
	int r;

	if (!hand)
		return NULL;
	allow_files();
	hand->socket = -1;
	packet_close_fds(&hand->packet);
	r = socket_connect(path, HEAR_SECONDS, &hand->socket);
	if (r) {
		snprintf(text, sizeof(text), "the service at %.300s cannot be reached: %s", path,
			strerror(-r));
		note(hand, r, text);
	} else {
		send_message(hand, &message, NULL, 0);
	}
	return hand;
}

struct hand *hand_close(struct hand *hand)
{
	if (hand)
		packet_close_fds(&hand->packet);
	if (hand && hand->socket >= 0)
		close(hand->socket);
	free(hand);
	return NULL;
}

int hand_say(struct hand *hand, enum handover_step step, uint32_t files, int fd)
{
	const struct wire_message message = {
		.type = WIRE_HANDOVER, .handover = {.step = step, .files = files, .text = ""}};

	return send_message(hand, &message, &fd, fd < 0 ? 0 : 1);
}

int hand_give(struct hand *hand, const int *fds, uint32_t count)
{
	const struct wire_message message = {
		.type = WIRE_HANDOVER, .handover = {.step = HANDOVER_FILES, .text = ""}};
	int r = 0;

	for (uint32_t at = 0, some; !r && at < count; at += some) {
		some = count - at < WIRE_FDS_MAX ? count - at : WIRE_FDS_MAX;
		r = send_message(hand, &message, fds + at, some);
	}
	return r;
}

int hand_fill(struct hand *hand, uint64_t place)
{
	const struct wire_message message = {
		.type = WIRE_HANDOVER, .handover = {.step = HANDOVER_FILLED, .text = "", .place = place}};
	struct pollfd said = {.fd = hand->socket, .events = POLLIN};

	if (poll(&said, 1, 0) <= 0)
		return send_message(hand, &message, NULL, 0);
	hand_hear(hand, HANDOVER_REPLY);
	return hand_fail(hand, "the service says what was not asked");
}

int hand_reply(struct hand *hand)
{
	const struct wire_message message = {.type = WIRE_HANDOVER,
		.handover = {.step = HANDOVER_REPLY,
			.code = hand->error ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS,
			.text = hand->text}};
	int r = message_send(hand->socket, &message, NULL, 0);

	return r ? lose(hand, r) : 0;
}

int hand_hear(struct hand *hand, enum handover_step step)
{
	const struct wire_handover *what = &hand->message.handover;
	int r;

	if (hand->error)
		return -1;
	packet_close_fds(&hand->packet);
	r = packet_receive(hand->socket, &hand->packet);
	if (r)
		return lose(hand, r);
	if (wire_decode(hand->packet.bytes, hand->packet.length, &hand->message) ||
		hand->message.type != WIRE_HANDOVER)
		return lose(hand, -EPROTO);
	if (what->step == HANDOVER_REPLY && what->code)
		return hand_fail(hand, "the service refuses: %s", what->text);
	return what->step == (uint32_t)step ? 0 : lose(hand, -EPROTO);
}
