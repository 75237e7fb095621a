// A guard was hit while several programs ran: the guard's session moves, so that the next hit has a
// single author. Rules: separate.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_SEPARATE_H
#define FRMPS_SERVER_STANDBY_SEPARATE_H

#include <stdint.h>

struct wire_stray;
struct worker;

/**
 * A guard was hit: counts and reports the hit. If the author is unknown, begins to move the guard's
 * session into an executor of its own.
 * @owner: number of the session
 */
void separate_take_stray(struct worker *worker, uint64_t owner, const struct wire_stray *stray);

#endif
