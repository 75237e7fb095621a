// The daemon's view of a compiler process (server/compiler/), from its start until the process is
// reaped. Daemon, loop thread only.
//
//   compiler_start ──► idle ──(compiler_request)──► busy ──(answer)──────► idle …
//                        │                            │ crash, no answer in time, broken protocol:
//                        │ compiler_end               ▼ instead of an answer, a text with the reason
//                        └───────────────────────► ended (SIGKILL sent) ──► reaped and freed
//
// Compilers do not outlive the daemon: the kernel ends them with the daemon, and the next daemon
// starts others. A compiler runs with the rights of the user whose texts it compiles, so its
// messages are trusted no more than that user's: the daemon takes no descriptor from a compiler,
// and the owner of the request checks the output.

#ifndef FRMPS_SERVER_WORKER_COMPILER_H
#define FRMPS_SERVER_WORKER_COMPILER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct connection;
struct crew;
struct shared_fd;
struct timer;
struct watch;
struct wire_message;
struct wire_reply;

/**
 * Receives the answer to a request, once, unless compiler_end() comes before.
 * @reply: NULL: there is none
 * @text: why
 */
typedef void compiler_reply_fn(void *context, const struct wire_reply *reply, const char *text);

struct compiler {
	TAILQ_ENTRY(compiler) link; /* crew->compilers */
	struct crew *crew;
	uid_t uid;
	unsigned arch;	  /* of the device: 10 * major + minor */
	uint64_t session; /* owner of its texts; 0: nobody yet */
	pid_t pid;
	uint64_t used_us; /* end of the latest request; at first the start */
	bool ready;	  /* Ready has arrived */
	bool ended;	  /* killed, or hung up */
	struct connection *connection;
	int pidfd; /* the watch's */
	struct watch *process;
	/* The request under way; reply NULL: there is none. */
	compiler_reply_fn *reply;
	void *context;
	uint64_t id;
	struct timer *timer;
	char why[160]; /* why the daemon ended the process; empty: its exit status has the reason */
};

/** Starts a compiler that runs as a user, for a device of that kind. Return: 0 or -errno */
int compiler_start(struct crew *crew, uid_t uid, unsigned arch, struct compiler **ret_compiler);

/** Sends a request to an idle compiler. The descriptors stay the caller's. */
void compiler_request(struct compiler *compiler, struct wire_message *message, struct shared_fd *const *fds,
	unsigned fd_count, compiler_reply_fn *reply, void *context);

/** Ends the compiler; a request has no answer then. Twice is fine. */
void compiler_end(struct compiler *compiler);

/** The daemon goes: none is left. */
void compiler_end_all(struct crew *crew);

#endif
