// A program's request under way, at most one of a session. server/daemon/requests.h has the path of
// a request. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_REQUEST_H
#define FRMPS_SERVER_SESSION_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "protocol/wire.h"
#include "server/session/chunk.h"

struct borrowing;
struct compiler;
struct session;
struct shared_fd;

/* Who has a request. */
enum request_place {
	REQUEST_HERE,	     /* the daemon, until there is what the next step needs */
	REQUEST_AT_WORKER,   /* a keeper or executor, which will answer */
	REQUEST_QUEUES,	     /* the daemon, in compiling.waiting */
	REQUEST_AT_COMPILER, /* a compiler, which will answer */
	REQUEST_AT_LENDER,   /* the daemon of another device */
	REQUEST_ANSWERED,    /* the daemon: the answer leaves at the end of the turn */
	REQUEST_CANCELLED,   /* a keeper or executor, whose answer frees the request */
};

struct request {
	TAILQ_ENTRY(request) link; /* reclaim.waiting */
	struct session *session;
	uint64_t session_id;
	struct wire_message message; /* points into bytes */
	struct shared_fd *fd;	     /* image or host memory */
	struct chunk *chunk;
	enum request_place place;
	uint32_t worker;    /* the worker that has the request, or has answered in this turn, */
	uint64_t worker_id; /* and the number of the request there */
	/* place among the requests that wait for memory (reclaim.h); 0: does not wait */
	uint64_t turn;
	uint64_t refused_memory_us; /* when the keeper first had none for the request; 0: never */
	/* RESERVE_WINDOW: taken, until a holding has the window (effect.h); else WINDOW_NONE */
	uint64_t window;
	/* compiling.h */
	bool is_text;		   /* the module must become code before an executor loads it */
	uint64_t code_bytes;	   /* bytes of the code in `fd`; 0: `fd` is no compiled code */
	char *log;		   /* of that compilation */
	struct compiler *compiler; /* REQUEST_AT_COMPILER */
	struct shared_fd *target;  /* the compiler writes code there */
	TAILQ_ENTRY(request) compile_link;
	struct borrowing *borrowing; /* REQUEST_AT_LENDER: lending.h; else NULL */
	_Alignas(8) uint8_t bytes[];
};

/** True if a worker has the request, or made a chunk of device memory for it. */
static inline bool request_is_under_way(const struct request *request)
{
	return request->place == REQUEST_AT_WORKER || chunk_is_own(request->chunk);
}

#endif
