// The service's address: a listening SOCK_SEQPACKET socket at a path. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DOOR_LISTENER_H
#define FRMPS_SERVER_DOOR_LISTENER_H

#include <stddef.h>
#include <stdint.h>

struct daemon;
struct listener;

/* Outcome: the socket is not available; the text has the reason. */
#define LISTENER_E_PATH 1

/**
 * Binds and listens. A socket that nobody listens on any more is replaced, a socket in use is not.
 * The directory is made if only its last part is missing (mode 0755). Mode of the socket: 0666 for
 * root's service, 0600 for a user's own. Return: 0, LISTENER_E_PATH, -errno
 */
int listener_new(struct daemon *daemon, const char *path, struct listener **ret_listener, char *ret_text,
	size_t text_size);

/** Takes the sockets of an earlier life of the daemon. Return: 0 or -errno. */
int listener_adopt(struct daemon *daemon, const char *path, uint32_t socket_key, uint32_t lock_key,
	struct listener **ret_listener);

/** Closes, and removes the path if the socket there is still this one. NULL is fine. Return:
 * NULL. */
struct listener *listener_free(struct listener *listener);

#endif
