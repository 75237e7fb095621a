// What makes an executor outlast faults (on_fault = default), and know of each one early: the environment that its
// driver is opened in.

#ifndef FRMPS_SERVER_FAILOVER_EXCEPTIONS_H
#define FRMPS_SERVER_FAILOVER_EXCEPTIONS_H

#include <stdbool.h>

/**
 * The environment of an executor: that of all children, and how exceptions are handled.
 * @graceful: on_fault = default. The driver writes its dump to HERITAGE_DUMP_FD either way
 * Return: a list to be freed with exceptions_environment_free(); its entries are not the list's. NULL when
 * out of memory.
 */
char **exceptions_environment(char *const *environment, bool graceful);
/** NULL is fine. */
void exceptions_environment_free(char **environment);

#endif
