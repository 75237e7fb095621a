// A program's request under way, at most one of a session. server/daemon/requests.h has the path of
// a request. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_REQUEST_H
#define FRMPS_SERVER_SESSION_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "protocol/wire.h"

struct borrowing;
struct chunk;
struct compiler;
struct session;
struct shared_fd;

struct request {
	TAILQ_ENTRY(request) link; /* reclaim.waiting */
	struct session *session;
	uint64_t session_id;
	struct wire_message message; /* points into bytes */
	struct shared_fd *fd;	     /* image or host memory */
	struct chunk *chunk;
	bool sent;	    /* an answer will come, from keeper or executor */
	uint32_t worker;    /* the worker that has the request, */
	uint64_t worker_id; /* and the number of the request there */
	/* place among the requests that wait for memory (reclaim.h); 0: does not wait */
	uint64_t turn;
	uint64_t refused_memory_us; /* when the keeper first had none for the request; 0: never */
	bool cancelled;
	/* RESERVE_WINDOW: taken, until a holding has the window (effect.h); else WINDOW_NONE */
	uint64_t window;
	/* compiling.h */
	bool is_text;		   /* the module must become code before an executor loads it */
	uint64_t code_bytes;	   /* bytes of the code in `fd`; 0: `fd` is no compiled code */
	char *log;		   /* of that compilation */
	bool waits_for_compiler;   /* in compiling.waiting */
	struct compiler *compiler; /* has the request; NULL: none */
	struct shared_fd *target;  /* the compiler writes code there */
	TAILQ_ENTRY(request) compile_link;
	struct borrowing *borrowing; /* lending.h; NULL: none is under way */
	_Alignas(8) uint8_t bytes[];
};

#endif
