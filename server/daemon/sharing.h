// Resources that sessions get from each other: exported memory, pages of shared events. Only
// sessions of the same user share, in any domain. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_SHARING_H
#define FRMPS_SERVER_DAEMON_SHARING_H

#include <stdint.h>
#include <sys/types.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct chunk;
struct daemon;
struct holding;
struct shared_fd;
struct session;

/** Exports memory of the session, by handle or by the address of a mapping. @ret_values: of the
 * reply to ExportMemory */
CUresult sharing_export(struct session *session, const struct wire_memory *wish, uint64_t ret_values[4],
	struct chunk **ret_chunk);

/** The memory behind a token, if the limits of the session leave room for that memory. Return:
 * CUDA_ERROR_NOT_READY: the memory is away; from then on it is called back */
CUresult sharing_import(struct session *session, const struct wire_memory *wish, struct chunk **ret_chunk,
	uint64_t *ret_bytes);

/**
 * The memory behind a token, for the daemon of another device on which programs of the user have
 * sessions.
 * @ret_file: as of exports_lend()
 * Return: CUDA_ERROR_NOT_READY: as of sharing_import()
 */
CUresult sharing_lend(struct daemon *daemon, uid_t uid, const uint64_t token[2], struct chunk **ret_chunk,
	uint64_t *ret_bytes, struct shared_fd **ret_file);

/** A page of events that another session has mapped; NULL if there is none. */
const struct holding *sharing_find_events(const struct session *session, const struct wire_import *wish);

#endif
