// Who a program is, as the kernel says.

#ifndef FRMPS_SERVER_SESSION_SUBJECT_H
#define FRMPS_SERVER_SESSION_SUBJECT_H

#include <sys/types.h>

#include "server/config/terms.h"

/**
 * Reads what the terms of a process go by, once, when it asks for a session. What cannot be read is
 * empty: of a process that is gone, that is in a namespace which this one does not see, or that
 * this one may not look at. Any thread; asks the kernel alone, which may have to wait for its own
 * lock of control groups.
 */
void subject_read(uid_t uid, pid_t pid, struct subject *ret_subject);

#endif
