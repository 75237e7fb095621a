// The main process of a service with several devices. Each device has a holder and a daemon, as a
// service with one device has. This process starts the holders, starts a holder again after a
// failure, passes signals on, and speaks to the service manager for all. Single thread.

#ifndef FRMPS_SERVER_PARENT_H
#define FRMPS_SERVER_PARENT_H

/**
 * Becomes the parent and runs a holder for each device until all have ended.
 * @serve: the holder of device `number`; called in a child, which returns from parent_run() with
 * its result
 * Return: exit code of the process, in the parent as in each child.
 */
int parent_run(unsigned count, int (*serve)(void *context, unsigned number), void *context);

#endif
