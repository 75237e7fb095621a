// Guests: connections that are no sessions, which is visitors and the operators that some of them
// become. Each user has a bounded number of both (visitor.c, caller.h); here is the bound for all
// users, so that what many of them leave open takes no file from sessions, and keeps nobody out.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_GUESTS_H
#define FRMPS_SERVER_SESSION_GUESTS_H

#include <sys/queue.h>
#include <sys/types.h>

struct daemon;

/* What is known here of an operator; the rest is control/'s (control/caller.h). */
struct guest {
	TAILQ_ENTRY(guest) link; /* daemon->operators */
	uid_t uid;
	pid_t pid; /* that connected; 0: in a namespace that the service does not see */
};

/** How many operators of a user are connected. */
unsigned guests_count_operators(const struct daemon *daemon, uid_t uid);

/** Somebody comes: if there are as many guests as there may be, the user who has the most loses
 * one. */
void guests_make_room(struct daemon *daemon);

#endif
