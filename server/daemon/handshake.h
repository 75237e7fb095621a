// The handshake of a program and the daemon: decides if the program may have a session, and
// describes the session to the program. Pure but for the sockets that the caller names.

#ifndef FRMPS_SERVER_DAEMON_HANDSHAKE_H
#define FRMPS_SERVER_DAEMON_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/wire.h"

struct connection;
struct daemon;
struct session;
struct subject;

/**
 * Checks that this version can serve a Hello, apart from room.
 * @ret_code, @ret_text: for a refusal, the answer to the program
 * Return: 0, or 1 to refuse
 */
int handshake_check(const struct wire_hello *hello, int32_t *ret_code, const char **ret_text);

/** Copies a program's name: at most @size - 1 bytes, nothing that could garble a log line. */
void handshake_copy_name(char *copy, size_t size, const char *name);

/** Copies the identity of a program in the same way: from the Hello, or else the program's name.
 * @copy: SESSION_IDENTITY_MAX bytes */
void handshake_identity(char *copy, const struct wire_hello *hello);

/**
 * Sends the description of the device, which is known, to a program, on the terms that the program
 * would have.
 * Return: 0, or an outcome of connection_send(), or -errno.
 */
int handshake_describe(struct daemon *daemon, struct connection *connection, const struct subject *subject,
	const struct wire_hello *hello);

/** True if a Hello wants a description, and no session. */
bool handshake_wants_description(const struct daemon *daemon, const struct wire_hello *hello);

/** Sends Welcome with the three descriptors. Return: 0, or an outcome of connection_send(), or
 * -errno. */
int handshake_welcome(struct session *session);

#endif
