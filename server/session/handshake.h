// The first words between a program and the daemon: may it have a session, and what it is told of
// it. Pure but for the sockets that the caller names.

#ifndef FRMPS_SERVER_SESSION_HANDSHAKE_H
#define FRMPS_SERVER_SESSION_HANDSHAKE_H

#include <stdint.h>

#include "protocol/command.h"
#include "protocol/wire.h"

/* Feature bits that this service understands. */
#define HANDSHAKE_FEATURES                                                                                   \
	(FRMPS_FEATURE_TEXT | FRMPS_FEATURE_LIMIT | FRMPS_FEATURE_SMS | FRMPS_FEATURE_PARTITION |            \
		FRMPS_FEATURE_PRIORITY | FRMPS_FEATURE_WINDOWS | FRMPS_FEATURE_HOST)

struct session;

/**
 * Whether a Hello can be served by this version, apart from room.
 * @ret_code, @ret_text: what to refuse it with
 * Return: 0, or 1 to refuse
 */
int handshake_check(const struct wire_hello *hello, int32_t *ret_code, const char **ret_text);

/** Copies a program's name: at most @size - 1 bytes, nothing that could garble a log line. */
void handshake_copy_name(char *copy, size_t size, const char *name);

/** Copies what a program is in the same way: what it says, or its name. @copy: SESSION_IDENTITY_MAX
 * bytes */
void handshake_identity(char *copy, const struct wire_hello *hello);

/** Sends Welcome with its three descriptors. Return: 0, or an outcome of connection_send(), or
 * -errno. */
int handshake_welcome(struct session *session);

#endif
