// The operator's command `migrate`: a program goes on on another device of the service
// (daemon/depart.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_MIGRATE_H
#define FRMPS_SERVER_CONTROL_MIGRATE_H

struct caller;

void migrate_answer(struct caller *caller);

#endif
