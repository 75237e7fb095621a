// The latest verdicts about faults (session/faults.h) as operators are told of them. Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_FAULTS_H
#define FRMPS_SERVER_CONTROL_FAULTS_H

#include <sys/types.h>

struct daemon;

/**
 * The document as a user may see it: root and the service's own user see all, others their own.
 * Return: a string of the caller's, NULL when out of memory.
 */
char *faults_json(const struct daemon *daemon, uid_t uid);

#endif
