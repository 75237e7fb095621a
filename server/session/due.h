// Work that is due at the end of the loop's turn. Calls go down only: a room that finds something
// for a room above to do marks the domain, the session or the daemon, and the end of the turn does
// the work (service.c). A mark that is set twice is done once, and what a mark means is read from
// the state at the end of the turn. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_DUE_H
#define FRMPS_SERVER_SESSION_DUE_H

#include "server/session/session.h"

/* Of a domain, in the order in which the end of the turn does them. */
enum domain_due {
	DOMAIN_DUE_TROUBLE = 1 << 0, /* the active executor is in trouble: moves and swaps are called off */
	DOMAIN_DUE_REFUSE = 1 << 1,  /* no executor can start: sessions that wait for one are refused */
	DOMAIN_DUE_SERVE = 1 << 2,   /* an executor serves: sessions and requests that waited go on */
	DOMAIN_DUE_END = 1 << 3,     /* retiring, without sessions and workers: the domain is freed */
};

/* Of a session. */
enum session_due {
	SESSION_DUE_REJECT = 1 << 0,  /* no executor can serve the session */
	SESSION_DUE_GO_ON = 1 << 1,   /* the request under way may go on */
	SESSION_DUE_ABANDON = 1 << 2, /* the session ends: so does an operator's order about it */
};

/* Of the daemon. */
enum daemon_due {
	DAEMON_DUE_DOMAINS = 1 << 0,   /* a domain has something due */
	DAEMON_DUE_SESSIONS = 1 << 1,  /* a session has */
	DAEMON_DUE_MEMORY = 1 << 2,    /* device memory came back: who waits for some tries again */
	DAEMON_DUE_DEPARTURE = 1 << 3, /* something that the departure waits for has come */
	DAEMON_DUE_STOP = 1 << 4,      /* an operator ends the service */
	DAEMON_DUE_LEAVE = 1 << 5,     /* the service cannot do its work, or has done it */
};

void due_domain(struct domain *domain, enum domain_due due);
void due_session(struct session *session, enum session_due due);
void due_daemon(struct daemon *daemon, enum daemon_due due);

/**
 * The program gets an answer at the end of the turn. Only then does the session go on (service.c):
 * until then the record says that the program waits, so that the next life of the daemon answers
 * again rather than never.
 */
void due_answer(struct session *session, enum session_answer answer);

#endif
