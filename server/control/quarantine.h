// Programs that have faulted (session/fault_history.h), as a JSON document. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_CONTROL_QUARANTINE_H
#define FRMPS_SERVER_CONTROL_QUARANTINE_H

#include <sys/types.h>

struct daemon;

/**
 * The document for a user: root and the service's own user see all programs, others their own.
 * Return: a string of the caller's, NULL when out of memory.
 */
char *quarantine_json(struct daemon *daemon, uid_t uid);

#endif
