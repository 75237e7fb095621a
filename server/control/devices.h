// Answers to the operator's orders about devices: drain, refill (daemon/device_drain.h) and
// migrate, which moves a program to another device (daemon/depart.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_DEVICES_H
#define FRMPS_SERVER_CONTROL_DEVICES_H

struct caller;

/** Answer commands (commands.def). */
void drain_answer_drain(struct caller *caller);
void drain_answer_refill(struct caller *caller);
void migrate_answer(struct caller *caller);

#endif
