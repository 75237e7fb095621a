// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Programs whose kernels fault, or whose requests crash executors, again and again: from quarantine_faults proved
// faults on they get executors of their own, where only they are hurt. A program is known by its user and its
// name, because a program that comes back is another process; another user's program of the same name is another
// program. Remembered until the service ends. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_OFFENDER_H
#define FRMPS_SERVER_SESSION_OFFENDER_H

#include <stdbool.h>
#include <sys/types.h>

struct client;
struct daemon;

/** A fault was proved to be this one's. */
void offender_note(struct daemon *daemon, const struct client *client);
/** Whether a program that says this name is to be kept alone. */
bool offender_is_quarantined(const struct daemon *daemon, uid_t uid, const char *program);
/** Forgets everybody. */
void offender_forget_all(struct daemon *daemon);

#endif
