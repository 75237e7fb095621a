// What a request does to what its session has: what the daemon adds to it before an executor gets
// it, and what is noted, recorded and told to standbys once it has succeeded. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_SESSION_EFFECT_H
#define FRMPS_SERVER_SESSION_EFFECT_H

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct request;

/**
 * Adds to a request what only the daemon knows: the chunk behind a handle or an array, windows.
 * Twice is fine. Return: why it cannot be
 */
CUresult effect_prepare(struct request *request);

/** The request is over: gives up what was taken for it and belongs to no holding. */
void effect_forget(struct request *request);

/**
 * The request succeeded: changes the holdings, tells standbys, records.
 */
void effect_note(struct request *request, const struct wire_reply *reply);

#endif
