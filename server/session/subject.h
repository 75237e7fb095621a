// The identity of a program, as the kernel reports it.

#ifndef FRMPS_SERVER_SESSION_SUBJECT_H
#define FRMPS_SERVER_SESSION_SUBJECT_H

#include <sys/types.h>

#include "server/config/terms.h"

/**
 * Reads the properties of a process that select its terms, once, when the process asks for a
 * session. Properties that cannot be read are empty: the process has ended, is in a namespace that
 * the daemon does not see, or the daemon may not look at the process. Any thread; asks the kernel
 * alone, which may have to wait for its own lock of control groups.
 */
void subject_read(uid_t uid, pid_t pid, struct subject *ret_subject);

#endif
