// Processes that serve all users come before the programs: otherwise a user with many programs
// deprives the service of the processor, and so all other users. Daemon and keeper take a higher
// priority, where permitted; their children, and processes for a single user, return to the
// service's priority.

#ifndef FRMPS_SERVER_PRIORITY_H
#define FRMPS_SERVER_PRIORITY_H

#include <stdbool.h>

/** Takes a higher priority, if this process has the right to. Once, before there are threads. */
void priority_raise(void);
/** In a child, between fork and exec: returns to the service's priority. Async-signal-safe.
 * @for_good: the child runs a user's code */
void priority_restore(bool for_good);

#endif
