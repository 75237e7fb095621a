// Sessions that crash executors while these mirror them: rules in leave_out.c. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_STANDBY_LEAVE_OUT_H
#define FRMPS_SERVER_STANDBY_LEAVE_OUT_H

struct domain;
struct worker;

/** A worker of the domain was reaped. */
void leave_out_judge(struct domain *domain, const struct worker *worker);

/** An executor of the domain has mirrored all sessions, and lives. */
void leave_out_forget(struct domain *domain);

#endif
