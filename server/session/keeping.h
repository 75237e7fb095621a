// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The keeper of the device memory, as the daemon has it: one at a time, started again when it ends, and with
// it everything that needs the memory. Therefore one that hangs is only ended where that costs nobody his memory:
// programs that need no more of it run on without a keeper. Daemon, loop thread only. (What a keeper does:
// server/keeper/keeper.h.)

#ifndef FRMPS_SERVER_SESSION_KEEPING_H
#define FRMPS_SERVER_SESSION_KEEPING_H

struct daemon;
struct worker;

void keeping_init(struct daemon *daemon);
void keeping_deinit(struct daemon *daemon);

/** Starts a keeper, or sees to it that it is tried again; then daemon->keeper is NULL. */
void keeping_start(struct daemon *daemon);
/** It is ready: whoever waits for memory asks it. */
void keeping_ready(struct daemon *daemon);
/** It has owed an answer for too long, and does still (failover/overdue.c); at each look. */
void keeping_overdue(struct daemon *daemon);
/** It has been reaped; the service does not stop. */
void keeping_gone(struct daemon *daemon, const struct worker *keeper);

#endif
