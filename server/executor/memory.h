// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Memory requests of clients: MapMemory, UnmapMemory, MapHost, UnmapHost, QueryMemory. Main thread; unmapping
// answers later.

#ifndef FRMPS_SERVER_EXECUTOR_MEMORY_H
#define FRMPS_SERVER_EXECUTOR_MEMORY_H

#include "server/executor/job.h"

struct session;

void memory_handle(struct job *job);

/** Undoes every mapping of a session that is not served any more. Module thread: unpinning may wait. */
void memory_deinit(struct session *session);

#endif
