// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Children as processes: spawn with exactly what struct heritage says, kill, reap. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAILOVER_SUPERVISE_H
#define FRMPS_SERVER_FAILOVER_SUPERVISE_H

#include "server/failover/worker.h"

/* The real spawner: this program again, in another role. */
extern const struct spawner supervise_spawner;

#endif
