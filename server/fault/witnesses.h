// Who tells the daemon of faults from outside: the kernel log and NVML. What names an executor is
// testimony about it; what names nobody is a line in the log, for executors see exceptions
// themselves. What is about the device itself is for device.c, if the line names this service's
// device. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_WITNESSES_H
#define FRMPS_SERVER_FAULT_WITNESSES_H

struct daemon;

/** The service runs: follows the kernel log, if the backend is a real driver. */
void witnesses_follow_log(struct daemon *daemon);
/** An executor has said which device it is: listens to NVML. Twice is fine. */
void witnesses_follow_device(struct daemon *daemon);
/** The service leaves: nothing from outside counts any more. */
void witnesses_dismiss(struct daemon *daemon);

#endif
