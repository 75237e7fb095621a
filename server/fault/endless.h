// Work that does not end: the living executor ends the kernels; the executor is replaced only where
// that fails. See endless.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_ENDLESS_H
#define FRMPS_SERVER_FAULT_ENDLESS_H

struct domain;
struct session;

/** Work of a session is over max_kernel_seconds, and goes on. Again and again is fine. */
void endless_over_limit(struct domain *domain, struct session *session);

/** An executor has closed the session of a dead program, and had to end its kernels. */
void endless_report_orphan(struct domain *domain, const struct session *session);

#endif
