// Guests: connections that are no sessions, namely visitors and operators. Each user has a bounded
// number of both (visitor.c, caller.h). This file has the bound for all users: connections that
// many users leave open take no file from sessions, and keep nobody out. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_GUESTS_H
#define FRMPS_SERVER_SESSION_GUESTS_H

#include <sys/queue.h>
#include <sys/types.h>

struct daemon;

/* The fields of an operator that sessions know; control/ has the others (control/caller.h). */
struct guest {
	TAILQ_ENTRY(guest) link; /* daemon->operators */
	uid_t uid;
	pid_t pid; /* that connected; 0: in a namespace that the service does not see */
};

/** How many operators of a user are connected. */
unsigned guests_count_operators(const struct daemon *daemon, uid_t uid);

/** A connection comes: at the bound, the user with the most guests loses a guest. */
void guests_make_room(struct daemon *daemon);

#endif
