// A program's request under way: checked, perhaps given memory by the keeper, answered by the
// active executor, noted in the holdings, sent to the standbys. Daemon, loop thread only; at most
// one per session.
//
//   request_begin ─► (ROUTE_CHUNK: keeper makes memory) ─► with the active executor ─► answered, noted,
//                      │ no keeper; no memory, but some       │ executor dies         mirrored (effect.h)
//                      ▼ is being given back (reclaim.h)      ▼
//                    thirsty                      waits for the promoted executor, is sent again:
//                                                 standbys get only successes, so to them the
//                                                 request is new. If the request crashes that
//                                                 executor as well, the session is rejected
//
// A module that is text, as an executor answers, goes to a compiler, and comes back to the executor
// as code. All about links is the compiler's alone (compiling.h).
//
// A question for the free memory waits like that, for a moment, if the program has just freed
// memory.
//
// The end of a session cancels its request: the daemon then only waits for the executor's answer.

#ifndef FRMPS_SERVER_SESSION_REQUEST_H
#define FRMPS_SERVER_SESSION_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "protocol/socket.h"
#include "protocol/wire.h"

struct chunk;
struct compiled;
struct compiler;
struct session;
struct shared_fd;
struct worker;

struct request {
	TAILQ_ENTRY(request) link; /* reclaim.thirsty */
	struct session *session;
	uint64_t session_id;
	struct wire_message message; /* points into bytes */
	struct shared_fd *fd;	     /* image or host memory */
	struct chunk *chunk;
	bool sent;	    /* an answer will come, from keeper or executor */
	uint32_t worker;    /* the worker that has the request, */
	uint64_t worker_id; /* and the number of the request there */
	/* place among the requests that wait for memory (reclaim.h); 0: does not wait */
	uint64_t thirst;
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
	_Alignas(8) uint8_t bytes[];
};

/** Takes a program's message: checks it, answers, forwards or rejects. */
void request_begin(struct session *session, const struct wire_message *message, const struct packet *packet);

/** Sends the request to its next destination, if the request is not with anybody and can be
 * sent. */
void request_advance(struct request *request);

/** Answers, which ends the request: the program may send the next. */
void request_finish(struct request *request, const struct wire_reply *reply);

/** Repeats a request that this worker had when the daemon died, as worker->next_request. */
void request_send_again(struct request *request, struct worker *worker);

/** The text of the request has become code, which is taken over: goes on with the code. */
void request_compiled(struct request *request, const struct compiled *code);

/** The session ends: frees the request now, or with the answer to come. */
void request_cancel(struct request *request);

#endif
