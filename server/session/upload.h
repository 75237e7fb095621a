// Files that the daemon has made for a program's bytes and that no request has used yet. The daemon
// never opens or closes a file that a program made here: closing could wait for the program.
// Daemon, loop thread only; each session owns its uploads.
//
// Uploads do not outlive the daemon: a program whose file is not known gets another. Numbers are of
// one life of the daemon, so a number of an earlier life names no file.

#ifndef FRMPS_SERVER_SESSION_UPLOAD_H
#define FRMPS_SERVER_SESSION_UPLOAD_H

#include <stdint.h>

#include "protocol/wire.h"

struct shared_fd;

/* The result of compiling a text. */
struct compiled {
	struct shared_fd *fd; /* NULL: there is none */
	uint64_t bytes;
	char *log;
};

/* Of one session; the oldest makes room. */
#define UPLOADS_MAX 32u

struct uploads {
	struct {
		uint64_t number; /* 0: none is here */
		struct shared_fd *file;
		struct compiled code; /* of the file: for the program's next request */
	} at[UPLOADS_MAX];
	uint64_t latest;
};

/** Makes an empty file. @epoch: of the daemon; @ret_number: the program's name for the file.
 * Return: the session's reference, NULL without memory or descriptors */
struct shared_fd *uploads_make(struct uploads *uploads, uint32_t epoch, uint64_t *ret_number);
/** The file that a message names. Return: the session's reference, NULL if no such file exists */
struct shared_fd *uploads_find(const struct uploads *uploads, const struct wire_message *message);
/** Stores the compiled code of the file that a message names, for the next request. Takes fd and
 * log over. */
void uploads_put_code(struct uploads *uploads, const struct wire_message *message, struct compiled code);
/** Removes and returns that code. Return: the caller's; without fd: there is none */
struct compiled uploads_take_code(struct uploads *uploads, const struct wire_message *message);
/** The file that a message names is used. */
void uploads_drop(struct uploads *uploads, const struct wire_message *message);
void uploads_drop_all(struct uploads *uploads);
/** How many there are. */
unsigned uploads_count(const struct uploads *uploads);

#endif
