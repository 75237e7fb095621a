// What makes the driver of an executor handle exceptions as for a debugger: the environment that it
// is opened in.

#ifndef FRMPS_SERVER_WORKER_EXCEPTIONS_H
#define FRMPS_SERVER_WORKER_EXCEPTIONS_H

/**
 * The environment of an executor: that of all children, and how exceptions are handled.
 * Return: a list to be freed with exceptions_environment_free(); its entries are not the list's.
 * NULL when out of memory.
 */
char **exceptions_environment(char *const *environment);
/** NULL is fine. */
void exceptions_environment_free(char **environment);

#endif
