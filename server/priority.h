// Processes that all users wait for come before the programs that they serve: otherwise whoever
// runs many programs keeps the service from a processor, and others with it. Daemon and keeper take
// a higher priority, where they may; what they start, and what runs for one user, has that of the
// service again.

#ifndef FRMPS_SERVER_PRIORITY_H
#define FRMPS_SERVER_PRIORITY_H

#include <stdbool.h>

/** Takes a higher priority, if this process has the right to. Once, before there are threads. */
void priority_raise(void);
/** In a child, between fork and exec: that of the service again. Async-signal-safe. @for_good: it
 * runs what a user brings along */
void priority_restore(bool for_good);

#endif
