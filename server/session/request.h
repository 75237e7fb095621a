// A program's request under way: checked, perhaps given memory by the keeper, answered by the
// active executor, noted in the holdings, told to the standbys. Daemon, loop thread only; at most
// one per session.
//
//   request_begin ─► (ROUTE_CHUNK: keeper makes memory) ─► with the active executor ─► answered, noted,
//                      │ no keeper; no memory, but some       │ executor dies         mirrored (effect.h)
//                      ▼ is being given back (reclaim.h)      ▼
//                    thirsty                      waits for the promoted one, is sent again:
//                                                 standbys are told only of successes, so to them
//                                                 it is new. Where that one crashes at it as well,
//                                                 the session is rejected
//
// A module that an executor says is text goes to a compiler, and comes back to the executor as
// code. All about links is the compiler's alone (compiling.h).
//
// A question how much memory is free waits like that, for a moment, if its program has just freed
// some.
//
// A session that ends takes its request along: the answer of the executor is then only waited for.

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
	uint32_t worker;    /* to whom it was sent, */
	uint64_t worker_id; /* and as which request */
	uint64_t thirst;    /* its number among those that wait for memory (reclaim.h); 0: it does not */
	uint64_t refused_memory_us; /* when the keeper first had none for it; 0: it had not */
	bool cancelled;
	uint64_t window; /* RESERVE_WINDOW: taken, until a holding has it (effect.h); else WINDOW_NONE */
	/* compiling.h */
	bool is_text;		   /* it has to become code before an executor takes it */
	uint64_t code_bytes;	   /* it did: of `fd`; 0: it did not */
	char *log;		   /* of the compiler, then */
	bool waits_for_compiler;   /* in compiling.waiting */
	struct compiler *compiler; /* that has it; NULL: none */
	struct shared_fd *target;  /* where that writes code */
	TAILQ_ENTRY(request) compile_link;
	_Alignas(8) uint8_t bytes[];
};

/** Takes a program's message: checks it, answers, forwards or rejects. */
void request_begin(struct session *session, const struct wire_message *message, const struct packet *packet);

/** Sends the request to whom it is for, if it is not with anybody and can be sent. */
void request_advance(struct request *request);

/** Answers, which is the end of the request: the program may send its next one. */
void request_finish(struct request *request, const struct wire_reply *reply);

/** Sends what was with this worker when the daemon died, as worker->next_request. */
void request_send_again(struct request *request, struct worker *worker);

/** Its text has become code, which is taken over: goes on with that. */
void request_compiled(struct request *request, const struct compiled *code);

/** The session ends: the request is freed, now or when its answer comes. */
void request_cancel(struct request *request);

#endif
