// Values of a session that are in the context of its executor alone, and end with that executor.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_RESIDUE_H
#define FRMPS_SERVER_STANDBY_RESIDUE_H

#include <stdbool.h>

struct holding;
struct session;

/** True if a variable lies in the context. Moved variables and mirrors of constants are the
 * program's own memory. @global: of type FIND_GLOBAL */
bool residue_is_in_context(const struct session *session, const struct holding *global);

/**
 * True if the next executor would find values missing and end the session (executor/takeover.c):
 * the program has asked for a variable in the context, or has run a kernel that may write there.
 * What the executor issues later may change the answer.
 */
bool residue_is_there(const struct session *session);

#endif
