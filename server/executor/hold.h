// Streams that wait in software for an event that may never come: the program, or a command that
// has not been issued. Other sessions share the hardware queues, so such waits must not be there.
// The device waits for issued commands. Serving thread.

#ifndef FRMPS_SERVER_EXECUTOR_HOLD_H
#define FRMPS_SERVER_EXECUTOR_HOLD_H

#include "server/executor/tenant.h"

/** Looks at every held stream and issues commands that may go on. Return: true if something
 * moved. */
bool hold_turn(struct tenant *tenant);

/** Return: true if a held stream could go on because of an event that rings the doorbell. For the
 * sleep protocol. */
bool hold_is_ready(const struct tenant *tenant);

/** Return: true if no look at a device word is under way that could still touch memory. */
bool hold_is_quiet(const struct tenant *tenant);

/** When to look at held streams again without a ring of the doorbell: ns, UINT64_MAX = never. */
uint64_t hold_next_look(const struct tenant *tenant, uint64_t now);

/** Return: true if the value fulfils the condition of the WAIT_VALUE. */
bool hold_fulfils(const struct frmps_wait_value *wait, uint64_t value);

#endif
