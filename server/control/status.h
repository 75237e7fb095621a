// The service's state as a JSON document. Daemon, loop thread only; reads, changes nothing.

#ifndef FRMPS_SERVER_CONTROL_STATUS_H
#define FRMPS_SERVER_CONTROL_STATUS_H

#include <sys/types.h>

struct daemon;

/**
 * The document for `uid`: root and the service's own user see everything, others their own domain.
 * Return: a string of the caller's, NULL when out of memory.
 */
char *status_json(const struct daemon *daemon, uid_t uid);

#endif
