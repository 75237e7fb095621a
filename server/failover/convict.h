// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// After the fence: what is known of the loss is collected and put before the judge, and each session gets its
// recover code. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAILOVER_CONVICT_H
#define FRMPS_SERVER_FAILOVER_CONVICT_H

struct domain;
struct worker;

/* Unexplained losses after which commands that were in doubt in each of them are not repeated again. */
#define CONVICT_UNEXPLAINED_MAX 3u

/**
 * Judges the loss of `worker`, which was the active executor and is reaped: fills in the promotion's verdict
 * and every session's `recover`, and remembers what the next loss is compared with.
 */
void convict(struct domain *domain, const struct worker *worker);

#endif
