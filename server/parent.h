// The main process of a service with several devices. Each device has a holder and a daemon, as a
// service with one device has. This process starts the holders, starts a holder again after a
// failure, passes signals on, and speaks to the service manager for all. Single thread.

#ifndef FRMPS_SERVER_PARENT_H
#define FRMPS_SERVER_PARENT_H

/* The devices without which the service does not start. */
enum parent_needs {
	PARENT_ALL,
	PARENT_SOME, /* one; the others are served once that is possible */
};

/**
 * Becomes the parent and runs a holder for each device until all have ended.
 * @serve: the holder of device `number`; called in a child, which returns from parent_run() with
 * its result
 * Return: exit code of the process, in the parent as in each child.
 */
int parent_run(
	unsigned count, enum parent_needs needs, int (*serve)(void *context, unsigned number), void *context);

#endif
