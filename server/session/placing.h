// What a session cannot have beside others: code that cannot be loaded beside what they run
// (executor/gate.c), and limits of the context that they do not have. The session goes on in an
// executor of its own, where it gets it. A load that this is not possible for is tried again for
// load_place_ms and then refused, a limit at once. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_PLACING_H
#define FRMPS_SERVER_SESSION_PLACING_H

#include "protocol/wire.h"

struct request;

/** The executor refused to load the request's code with CUDA_ERROR_SYSTEM_NOT_READY. May end the
 * request. */
void placing_begin(struct request *request, const struct wire_reply *reply);

/** A limit is asked for, and the session is served beside others. May end the request. */
void placing_begin_limit(struct request *request);

#endif
