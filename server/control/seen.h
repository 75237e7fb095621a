// Knowledge of the device for one process, for our libnvidia-ml.so.1 (client/nvml/), as a JSON
// document. Daemon, loop thread only; reads, changes nothing.

#ifndef FRMPS_SERVER_CONTROL_SEEN_H
#define FRMPS_SERVER_CONTROL_SEEN_H

#include <sys/types.h>

struct daemon;

/**
 * The document.
 * @uid, @pid: of the process that asks, from the kernel
 * Return: a string of the caller's; NULL without memory, or before an executor has reported the
 * device
 */
char *seen_json(const struct daemon *daemon, uid_t uid, pid_t pid);

#endif
