// Effects of a request on the resources of a session: the daemon adds fields before an executor
// gets the request; after success, the daemon notes and records the change, and informs standbys.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_EFFECT_H
#define FRMPS_SERVER_DAEMON_EFFECT_H

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct request;

/** The request is over: releases resources taken for the request that belong to no holding. */
void effect_forget(struct request *request);

/**
 * The request succeeded: changes the holdings, informs standbys, writes the records.
 */
void effect_note(struct request *request, const struct wire_reply *reply);

#endif
