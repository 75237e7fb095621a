// Who a program is, as the kernel says.

#ifndef FRMPS_SERVER_SESSION_SUBJECT_H
#define FRMPS_SERVER_SESSION_SUBJECT_H

#include <sys/types.h>

#include "server/config/terms.h"

/**
 * Reads what the terms of a process go by. What cannot be read, of a process that is gone or that is in a place which this
 * one does not see, is empty. Any thread; asks the kernel alone, and waits for nobody.
 */
void subject_read(uid_t uid, pid_t pid, struct subject *ret_subject);

/** The terms of a process, by the same. */
void subject_terms(const struct rules *rules, uid_t uid, pid_t pid, struct terms *ret_terms);

#endif
