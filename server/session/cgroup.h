// The control group of a process.

#ifndef FRMPS_SERVER_SESSION_CGROUP_H
#define FRMPS_SERVER_SESSION_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CGROUP_MAX 512u

/**
 * Reads the control group of a process: of version 2, or the first of version 1 where version 2 is
 * missing.
 * @text: CGROUP_MAX bytes, the path below the root of the hierarchy
 * Return: true if the path was read and fits. Any thread; asks the kernel alone, which may have to
 * wait for its own lock of control groups.
 */
bool cgroup_of(pid_t pid, char *text);

/** The same of the contents of /proc/PID/cgroup, which are taken apart. For tests. */
bool cgroup_parse(char *lines, char *text);

#endif
