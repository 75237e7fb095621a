// A compiler process (server/compiler/) as the daemon sees it, from its start until it is reaped.
// Daemon, loop thread only.
//
//   compiler_start ──► idle ──(compiler_request)──► busy ──(its answer)──► idle …
//                        │                            │ it crashes, does not answer in time, breaks the protocol:
//                        │ compiler_end               ▼ the request has no answer, but a text that says why
//                        └───────────────────────► ended (SIGKILL sent) ──► reaped and freed
//
// Nothing of it outlives the daemon: the kernel ends it with the daemon, and the next one starts
// others. It runs with the rights of the user whose texts it compiles, so its word is no more than
// that user's: no descriptor is taken from it, and whoever asked checks what it has written.

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
	uint64_t session; /* whose texts it has; 0: nobody's yet */
	pid_t pid;
	uint64_t used_us; /* when it last had something to do */
	bool ready;	  /* it has said so */
	bool ended;	  /* it was killed, or has hung up */
	struct connection *connection;
	int pidfd; /* the watch's */
	struct watch *process;
	/* The request under way; reply NULL: there is none. */
	compiler_reply_fn *reply;
	void *context;
	uint64_t id;
	struct timer *timer;
	char why[160]; /* it is given up; empty: what its end says */
};

/** Starts one that runs as a user, for a device of that kind. Return: 0 or -errno */
int compiler_start(struct crew *crew, uid_t uid, unsigned arch, struct compiler **ret_compiler);

/** Sends it a request; it has none. The descriptors stay the caller's. */
void compiler_request(struct compiler *compiler, struct wire_message *message, struct shared_fd *const *fds,
	unsigned fd_count, compiler_reply_fn *reply, void *context);

/** Ends it; a request has no answer then. Twice is fine. */
void compiler_end(struct compiler *compiler);

/** The daemon goes: none is left. */
void compiler_end_all(struct crew *crew);

#endif
