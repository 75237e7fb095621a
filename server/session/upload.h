// Files that the daemon has made for a program's bytes and that no request has used yet. Nothing
// that a program made is ever opened or closed here: closing it could wait for the program. Daemon,
// loop thread only; a session owns its own.
//
// They do not outlive the daemon: a program whose file is not known gets another one. Numbers are
// of one life of the daemon, so none is taken for another.

#ifndef FRMPS_SERVER_SESSION_UPLOAD_H
#define FRMPS_SERVER_SESSION_UPLOAD_H

#include <stdint.h>

#include "protocol/wire.h"

struct shared_fd;

/* What a compiler has made of a text. */
struct compiled {
	struct shared_fd *fd; /* NULL: there is none */
	uint64_t bytes;
	char *log;
};

/* Of one session; the oldest gives way. */
#define UPLOADS_MAX 32u

struct uploads {
	struct {
		uint64_t number; /* 0: none is here */
		struct shared_fd *file;
		struct compiled code; /* of the file: the program asks for it once more */
	} at[UPLOADS_MAX];
	uint64_t latest;
};

/** An empty file. @epoch: of the daemon; @ret_number: what the program calls it. Return: NULL if
 * there can be none; a reference that is the session's */
struct shared_fd *uploads_make(struct uploads *uploads, uint32_t epoch, uint64_t *ret_number);
/** The file that a message names. Return: NULL if it names none that is there; a reference that is
 * the session's */
struct shared_fd *uploads_find(const struct uploads *uploads, const struct wire_message *message);
/** What the file that a message names was compiled to, for its next request. Takes fd and log over.
 */
void uploads_put_code(struct uploads *uploads, const struct wire_message *message, struct compiled code);
/** Takes that out again. Return: it is the caller's; without fd: there is none */
struct compiled uploads_take_code(struct uploads *uploads, const struct wire_message *message);
/** The file that a message names is used. */
void uploads_drop(struct uploads *uploads, const struct wire_message *message);
void uploads_drop_all(struct uploads *uploads);
/** How many there are. */
unsigned uploads_count(const struct uploads *uploads);

#endif
