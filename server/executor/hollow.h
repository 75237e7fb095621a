// Pages that a program takes away: pinned memory can be a file of the program's own (TakeFile),
// which the program may make shorter at any time. The device goes on with the pages that the driver
// has pinned. A processor that touches such a page gets SIGBUS; then a page of zeros takes its
// place in this process, and the thread goes on. A call of the driver's that touches it fails.
//
// Other signals, and SIGBUS at other addresses, are for the handler that was there before.

#ifndef FRMPS_SERVER_EXECUTOR_HOLLOW_H
#define FRMPS_SERVER_EXECUTOR_HOLLOW_H

#include <stdbool.h>
#include <stdint.h>

/** Handles SIGBUS from now on, as the last of its handlers. Once in a process. */
void hollow_watch(void);

/** Whole pages of a program's file are mapped there. Main or module thread. Return: false: there
 * are too many already */
bool hollow_add(uint64_t address, uint64_t bytes);
/** They are not any more. Twice, or never added, is fine. */
void hollow_remove(uint64_t address);

#endif
