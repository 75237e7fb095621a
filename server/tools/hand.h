// A tool's side of daemon/handover.h: messages of WIRE_HANDOVER with a daemon. Blocking. One
// thread.

#ifndef FRMPS_SERVER_TOOLS_HAND_H
#define FRMPS_SERVER_TOOLS_HAND_H

#include <stdint.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/daemon/handover.h"

/* Room for a reason, bytes. */
#define HAND_TEXT 700u

/* A conversation with a daemon. */
struct hand {
	int socket;
	struct packet packet; /* the latest received, whose descriptors are the conversation's */
	struct wire_message message;
	/* The first failure: ASK_E_REFUSED, or -errno where the service does not answer; 0: none */
	int error;
	char text[HAND_TEXT]; /* its reason, a sentence */
};

/**
 * Connects and sends the first message. Lets this process have as many descriptors as it may.
 * @session: of SAVE
 * Return: for hand_close(); NULL without memory. The first hand_hear() tells if that has worked
 */
struct hand *hand_open(const char *path, enum handover_step step, uint64_t session);
/** NULL is fine. Return: NULL */
struct hand *hand_close(struct hand *hand);

/** Notes the reason why the tool goes no further, unless there is one. Return: -1 */
int hand_fail(struct hand *hand, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Sends a message. @fd: -1: none; stays the caller's. Return: 0 or -1 */
int hand_say(struct hand *hand, enum handover_step step, uint32_t files, int fd);
/** Sends FILES. Return: 0 or -1 */
int hand_give(struct hand *hand, const int *fds, uint32_t count);
/** Sends FILLED, unless the service has ended it meanwhile. Return: 0 or -1 */
int hand_fill(struct hand *hand, uint64_t place);
/** Sends a REPLY: of success, or with the reason of the failure. Return: 0 or -1 */
int hand_reply(struct hand *hand);

/** Waits for a message. A REPLY that refuses is a failure. Return: 0 or -1 */
int hand_hear(struct hand *hand, enum handover_step step);

#endif
