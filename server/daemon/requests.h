// A program's request under way: checked, perhaps given memory by the keeper, answered by the
// active executor, noted in the holdings, sent to the standbys. Daemon, loop thread only; at most
// one per session.
//
//   request_begin ─► (ROUTE_CHUNK: keeper makes memory) ─► with the active executor ─► answered, noted,
//                      │ no keeper; no memory, but some       │ executor dies         mirrored (effect.h)
//                      ▼ is being given back (reclaim.h)      ▼
//                    waiting                      waits for the promoted executor, is sent again:
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

#ifndef FRMPS_SERVER_DAEMON_REQUESTS_H
#define FRMPS_SERVER_DAEMON_REQUESTS_H

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/session/request.h"

struct compiled;
struct daemon;
struct worker;

/** Takes a program's message: checks it, answers, forwards or rejects. */
void request_begin(struct session *session, const struct wire_message *message, const struct packet *packet);

/** Sends the request to its next destination, if the request is not with anybody and can be
 * sent. */
void request_advance(struct request *request);

/** Answers with the end of the turn. */
void request_finish(struct request *request, const struct wire_reply *reply);
/** The answer is sent, which ends the request: the program may send the next. */
void request_answered(struct session *session);

/** Repeats a request that this worker had when the daemon died, as worker->next_request. */
void request_send_again(struct request *request, struct worker *worker);

/** Device memory has come back, or a keeper has: tries the requests that wait for memory, each
 * once. */
void requests_retry(struct daemon *daemon);

/** The text of the request has become code, which is taken over: goes on with the code. */
void request_compiled(struct request *request, const struct compiled *code);

/** The session ends: frees the request now, or with the answer to come. */
void request_cancel(struct request *request);

#endif
