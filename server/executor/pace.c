// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Rests between calls of the driver. See pace.h.

#include "server/executor/pace.h"

void pace_begin(struct pace *pace)
{
	pace->since = clock_now();
}

void pace_step(struct pace *pace)
{
	uint64_t worked = clock_now() - pace->since;
	struct timespec rest = {.tv_nsec = (long)(worked < PACE_REST_NS ? worked : PACE_REST_NS)};

	if (worked < PACE_WORK_NS)
		return;
	/* Cut short by a signal: others had less of it. */
	nanosleep(&rest, NULL);
	pace_begin(pace);
}
