// What sessions get from each other: exported device memory, pages of shared events. Only sessions of the
// same user do, whichever domains they are in. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_SHARING_H
#define FRMPS_SERVER_SESSION_SHARING_H

#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct client;
struct holding;

/** Device memory of the client by handle or address. @ret_values: those of the reply to ExportMemory */
CUresult sharing_export(const struct client *client, const struct wire_memory *wish, uint64_t ret_values[4]);

/** The memory that a token proves the right to, if the client may have that much more. */
CUresult sharing_import(
	const struct client *client, const struct wire_memory *wish, const struct holding **ret_entry);

/** A page of events that another session has mapped; NULL if there is none. */
const struct holding *sharing_find_events(const struct client *client, const struct wire_import *wish);

#endif
