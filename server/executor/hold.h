// Streams that wait in software for what may never come: the program, or a command that has not
// been issued. A hardware queue is shared with strangers, so that none waits there. What has been
// issued is waited for by the device. Serving thread.

#ifndef FRMPS_SERVER_EXECUTOR_HOLD_H
#define FRMPS_SERVER_EXECUTOR_HOLD_H

#include "server/executor/tenant.h"

/** Looks at every held stream and issues what may go on. Return: whether something moved. */
bool hold_turn(struct tenant *tenant);

/** Whether a held stream could go on because of something that rings the doorbell. For the sleep
 * protocol. */
bool hold_is_ready(const struct tenant *tenant);

/** Whether no look at a device word is under way that could still touch memory. */
bool hold_is_quiet(const struct tenant *tenant);

/** When held streams must be looked at again although nobody rings: ns, UINT64_MAX = never. */
uint64_t hold_next_look(const struct tenant *tenant, uint64_t now);

/** Whether a value fulfils the condition of a WAIT_VALUE. */
bool hold_fulfils(const struct frmps_wait_value *wait, uint64_t value);

#endif
