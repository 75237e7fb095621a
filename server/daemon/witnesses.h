// Witnesses outside the executors report faults to the daemon: the kernel log and NVML. A report
// that names an executor is evidence about that executor; a report without a process becomes a line
// of the log, for executors see exceptions themselves. Reports about the device itself go to
// device.c, if the line names this service's device. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_WITNESSES_H
#define FRMPS_SERVER_DAEMON_WITNESSES_H

#include <stdbool.h>

struct daemon;

/** The service runs: follows the kernel log, if the backend is a real driver. */
void witnesses_follow_log(struct daemon *daemon);
/** An executor has reported its device: listens to NVML. Calling this twice is fine. */
void witnesses_follow_device(struct daemon *daemon);
/** Stops listening to NVML, which has the device open until its thread has ended. Return: true if
 * the thread has ended; else call again a little later */
bool witnesses_leave_device(struct daemon *daemon);
/** The service leaves: nothing from outside counts any more. */
void witnesses_dismiss(struct daemon *daemon);

#endif
