// Files for a program's bytes that the daemon has made, and a program's own that a process beside
// the daemon has taken (taking.h), while no request has used them yet.
// Daemon, loop thread only; each session owns its uploads.
//
// Uploads do not outlive the daemon: a program whose file is not known gets another. Numbers are of
// one life of the daemon, so a number of an earlier life names no file.

#ifndef FRMPS_SERVER_SESSION_UPLOAD_H
#define FRMPS_SERVER_SESSION_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol/wire.h"

struct shared_fd;
struct taking;
struct uv_loop_s;

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
		struct taking *taking; /* the file is awaited */
		struct compiled code;  /* of the file: for the program's next request */
	} at[UPLOADS_MAX];
	uint64_t latest;
};

/** Makes an empty file. @epoch: of the daemon; @ret_number: the program's name for the file.
 * Return: the session's reference, NULL without memory or descriptors */
struct shared_fd *uploads_make(struct uploads *uploads, uint32_t epoch, uint64_t *ret_number);
/** Awaits a file of the program's own. @epoch, @ret_number: as above; @user: the program's;
 * @ret_socket: for the program, the caller's. Return: true on success; false without a process,
 * memory or descriptors */
bool uploads_take(struct uploads *uploads, struct uv_loop_s *loop, uint32_t epoch, uid_t user,
	uint64_t *ret_number, int *ret_socket);
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
/** How many there are, with those that are awaited. */
unsigned uploads_count(const struct uploads *uploads);

#endif
