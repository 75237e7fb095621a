// Answers to the operator's drain and refill (daemon/device_drain.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_DRAIN_H
#define FRMPS_SERVER_CONTROL_DRAIN_H

struct caller;

/** Answer commands (commands.def). */
void drain_answer_drain(struct caller *caller);
void drain_answer_refill(struct caller *caller);

#endif
