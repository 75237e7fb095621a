// Previous executors: kernels may still run in them that can write to the sinks of a session which
// another executor serves by now. While there are any, a guard hit in these sinks is no proof
// against a session (executor/suspect.c). Each list is whole and replaces the list before. Daemon,
// loop thread only.
//
//   of the same domain   an executor that was replaced, until it is reaped
//   of another domain    an executor that a session has left, until it has closed the session
//                        (session/linger.c): an examination that is under way, loads that wait and
//                        a contained fault delay the close, and kernels of others run there all
//                        the time

#ifndef FRMPS_SERVER_SESSION_FORMERS_H
#define FRMPS_SERVER_SESSION_FORMERS_H

#include <stdint.h>

struct domain;
struct worker;

/* More than the executors of a domain, and the executor that the session came from. */
#define FORMERS_MAX 16u

struct formers {
	uint32_t pids[FORMERS_MAX];
	uint32_t count;
};

/** Lists the previous executors of the sessions that `worker` serves, or is about to serve. */
void formers_list(const struct worker *worker, struct formers *ret_formers);

/** An executor that lives is no longer a previous executor: sends the new list to the executor that
 * serves the domain. */
void formers_tell(const struct domain *domain);

#endif
