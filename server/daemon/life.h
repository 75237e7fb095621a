// The life of a session: made for a Hello or from a record, opened in executors, ended.
// session/session.h has the states. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_LIFE_H
#define FRMPS_SERVER_DAEMON_LIFE_H

#include <stdint.h>
#include <sys/types.h>

#include "protocol/wire.h"
#include "server/session/session.h"

struct connection;
struct daemon;
struct domain;
struct worker;

/* Outcome of session_new(): the program was refused; the connection is still the caller's. */
#define SESSION_E_REFUSED 1

/** The number of a session to be made. */
uint64_t session_take_number(struct daemon *daemon);

/**
 * Makes a session for a checked Hello and asks for it to be opened.
 * @connection: taken over on success
 * @ret_code, @ret_text: for SESSION_E_REFUSED, the answer to the program (static text or the
 * domain's)
 * Return: 0 or SESSION_E_REFUSED
 */
int session_new(struct domain *domain, struct connection *connection, const struct session_peer *peer,
	const struct wire_hello *hello, int32_t *ret_code, const char **ret_text);

/**
 * Makes a session of an earlier life of the daemon again, without holdings and without the request
 * under way.
 * @domain: named by the record
 * Return: never NULL; a session that lacks descriptors is given_up, and not open any more
 */
struct session *session_adopt(struct domain *domain, uint64_t number, const struct session_record *record);
/* Repeats a request of an earlier life to a worker, as worker->next_request. */
void session_open_again(struct session *session, struct worker *worker);
void session_close_again(struct session *session, struct worker *worker);
/** Marks a session that cannot be taken over: it ends after the adoption of the others. Twice is
 * fine. */
void session_give_up(struct session *session, const char *why);
/** Ends a session that is given_up. */
void session_end_given_up(struct session *session);
/**
 * A session in ELSEWHERE becomes one that is served here: its program's connection, process and
 * files are the daemon's from now on. Return: false: the session is given_up
 */
bool session_take_over(struct session *session);
/** Call for a closing session after session_close_again(): frees the session if no worker has
 * it. */
void session_closing_again(struct session *session);

/** Sends OpenSession if the session still waits for it and an executor serves. */
void session_open(struct session *session);
/** Welcome is sent: the session is served, unless its executor has been lost meanwhile. */
void session_welcomed(struct session *session);

/** The only end for a bad program: one log line, one counter, one disconnect. */
void session_reject(struct session *session, const char *reason);

/** Closes a session. @patience_ms: time for its work to end. Twice is fine. */
void session_end(struct session *session, uint32_t patience_ms);

/** Ends a session here that is another device's: its program notices nothing. The session is SERVED
 * or ELSEWHERE. */
void session_leave(struct session *session);

/** Ends a session that is not CLOSING: the program gets CUDA_ERROR_MPS_CLIENT_TERMINATED and a
 * reason, its work gets no time. */
void session_terminate(struct session *session, const char *reason);

/** Refuses a session that is still OPENING. */
void session_refuse(struct session *session, int32_t code, const char *text);

/** Ends the sessions of a domain; NULL: all. Programs get code and reason. @state: as of
 * session_finish() */
void sessions_end_all(
	struct daemon *daemon, const struct domain *domain, uint32_t state, int32_t code, const char *reason);

#endif
