// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Executors that hang where nobody else would notice: while they start, as standbys, and between Activate and its
// answer. Whoever says nothing for a long time there, although something is expected of it, is given up. One that
// serves is watched by its clients' requests and ends (promote.c, halt.c, client_close.c). Daemon, loop thread only.
//
// Time is counted in looks, so that a service that was stopped as a whole finds everybody alive afterwards.

#ifndef FRMPS_SERVER_FAILOVER_OVERDUE_H
#define FRMPS_SERVER_FAILOVER_OVERDUE_H

struct daemon;

#define OVERDUE_LOOK_MS 10000u
/* Looks. The driver may take minutes for its start on a large machine, or for code that it compiles; while another
 * executor takes over everybody waits, and nothing of that is in it. */
#define OVERDUE_LOOKS		 60u
#define OVERDUE_LOOKS_ACTIVATING 12u

void overdue_init(struct daemon *daemon);
void overdue_deinit(struct daemon *daemon);

/** Something is expected of an executor. */
void overdue_begin(struct daemon *daemon);

/** The timer: looks at every executor. */
void overdue_look(void *context);

#endif
