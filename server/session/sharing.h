// What sessions get from each other: exported device memory, pages of shared events. Only sessions
// of the same user do, whichever domains they are in. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_SHARING_H
#define FRMPS_SERVER_SESSION_SHARING_H

#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct chunk;
struct holding;
struct session;

/** Device memory of the session by handle or address. @ret_values: those of the reply to
 * ExportMemory */
CUresult sharing_export(const struct session *session, const struct wire_memory *wish, uint64_t ret_values[4],
	struct chunk **ret_chunk);

/** The memory that a token proves the right to, if the session may have that much more. */
CUresult sharing_import(struct session *session, const struct wire_memory *wish, struct chunk **ret_chunk,
	uint64_t *ret_bytes);

/** A page of events that another session has mapped; NULL if there is none. */
const struct holding *sharing_find_events(const struct session *session, const struct wire_import *wish);

#endif
