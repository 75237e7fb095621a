// Formers: executors in which kernels may run that can write to the sinks of a session which
// another one serves by now. What is found there is no proof against anybody as long as there are
// any (executor/suspect.c). Each list is whole: it takes the place of the one before. Daemon, loop
// thread only.
//
//   of the same domain   an executor that was replaced, until it is reaped
//   of another domain    one that has let the session go, until it has closed it
//                        (session/linger.c): a look that is under way, loads that wait and a fault
//                        that was contained put that off, and others' kernels run there all the
//                        time

#ifndef FRMPS_SERVER_SESSION_FORMERS_H
#define FRMPS_SERVER_SESSION_FORMERS_H

#include <stdint.h>

struct domain;
struct worker;

/* More than a domain has, and the one that its session came from. */
#define FORMERS_MAX 16u

struct formers {
	uint32_t pids[FORMERS_MAX];
	uint32_t count;
};

/** Those of the sessions that an executor serves, or is about to. */
void formers_list(const struct worker *worker, struct formers *ret_formers);

/** One of them is none any more, and lives: whoever serves the domain hears of it. */
void formers_tell(const struct domain *domain);

#endif
