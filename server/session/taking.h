// Files in memory of a program's own, which it shares with others, on their way into the service.
// The daemon takes no descriptor from a program (loop/discard.h), so a process beside it does:
//
//   program ──descriptor──► process ──the descriptor of a file in memory──► daemon
//           ◄───Reply──────         ◄──────────hangs up─────────────────────
//
// The process looks at the file without asking its file system, and passes it on if that is tmpfs.
// Whatever else came closes with the process: the file system of a program may keep the process for
// as long as it likes, and such processes are counted (loop/aside.h). When the program has its
// Reply, the daemon has the file.
//
// The file stays the program's: its size may change at any moment, others may write to it, and a
// call that opens it once more, or takes its lock, may wait for the program. The service maps it,
// and asks for its size and its seals. shared_fd.h marks it.
// Daemon, loop thread only; the process aside.

#ifndef FRMPS_SERVER_SESSION_TAKING_H
#define FRMPS_SERVER_SESSION_TAKING_H

#include <stdint.h>
#include <sys/types.h>

struct shared_fd;
struct taking;
struct uv_loop_s;

/** Called once, unless taking_free() comes first. @file: a reference, the callee's; NULL: there is
 * none. The callee calls taking_free(). */
typedef void taking_fn(void *context, uint64_t number, struct shared_fd *file);

/**
 * Starts to take a file. @user: whose program it is; @number: for `taken`; @ret_socket: the
 * program's end, the caller's. Return: NULL: no process or no memory
 */
struct taking *taking_new(struct uv_loop_s *loop, uid_t user, uint64_t number, taking_fn *taken,
	void *context, int *ret_socket);
/** The program hears that its file is taken, or, before that is so, nothing. NULL is fine. Return:
 * NULL. */
struct taking *taking_free(struct taking *taking);

#endif
