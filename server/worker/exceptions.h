// The environment in which an executor opens its driver, so that the driver handles exceptions as
// for a debugger.

#ifndef FRMPS_SERVER_WORKER_EXCEPTIONS_H
#define FRMPS_SERVER_WORKER_EXCEPTIONS_H

/**
 * The environment of an executor: of that of all children what a user may read, and how exceptions
 * are handled.
 * Return: a list to be freed with exceptions_environment_free(), without its entries. NULL when out
 * of memory.
 */
char **exceptions_environment(char *const *environment);
/** NULL is fine. */
void exceptions_environment_free(char **environment);

#endif
