// Dumps as witnesses: the driver of an executor that outlasts faults writes into its dump only when a kernel
// has faulted. One descriptor watches the dumps of all executors, because closing one of this kind waits for
// a grace period of the kernel, some ten milliseconds in which the daemon would do nothing else. Daemon, loop
// thread.

#ifndef FRMPS_SERVER_FAILOVER_DUMPS_H
#define FRMPS_SERVER_FAILOVER_DUMPS_H

struct dumps;
struct uv_loop_s;

/** Called when something was written to a dump. @id: from dumps_watch() */
typedef void dumps_fn(void *context, int id);

/** Return: NULL where that cannot be had. Then dumps are found when something else shows that there may be
 * one. */
struct dumps *dumps_new(struct uv_loop_s *loop, dumps_fn *written, void *context);
/** NULL is fine. Return: NULL. */
struct dumps *dumps_free(struct dumps *dumps);

/** @dumps: NULL is fine. @fd: stays the caller's. Return: an id that is given out once, or -1. */
int dumps_watch(struct dumps *dumps, int fd);
/** @id: -1 is fine */
void dumps_forget(struct dumps *dumps, int id);

#endif
