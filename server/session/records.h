// Records of the daemon (holder/store.h): plain structs, one per thing that outlives the daemon.
// Descriptors are named by their keys, workers and domains by their numbers, 0 is none. The owners
// of the things write the records (session/changes.h, holding.h, chunk.c);
// adopt/adopt.c and adopt/inventory.c read them. All lives of the daemon run the same program, so
// no other program depends on the layout.

#ifndef FRMPS_SERVER_SESSION_RECORDS_H
#define FRMPS_SERVER_SESSION_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/config/terms.h"
#include "server/identity.h"

/* Executors of a domain that are to close a session at its end: as many as a domain has at most,
 * with all standbys that the configuration allows. */
#define KEPT_CLOSES 9u
/* Files for the memory of a swapped-out session: the kernel lets one thread at a time write to a
 * file. */
#define KEPT_SWAP_FILES 8u

/* RECORD_SERVICE, key 0: struct service_record (session/daemon.h). */

/* RECORD_DOMAIN, key: number: struct domain_record (session/domain.h). */

/* A request to a worker that is not answered. */
struct kept_call {
	uint32_t worker;
	uint64_t id;
};

/* A window (session/window.h). */
struct kept_window {
	uint64_t address, bytes;
};

struct kept_chunk {
	uint64_t handle;
	uint32_t keeper; /* number of the keeper that made the chunk */
	uint32_t fd;
	uint64_t token[2];
	uint32_t kind;	 /* enum chunk_kind */
	uint32_t lease;	 /* a descriptor */
	uint64_t place;	 /* of the content, in swap_fds of the sessions that have the chunk */
	uint64_t offset; /* of the memory in the file */
	bool is_lent, is_programs;
};

/* RECORD_SESSION, key: number; followed by the head of struct session (struct session_record). */
struct kept_session {
	uint32_t domain;
	uint32_t client_fd, server_fd, doorbell; /* descriptors */
	struct kept_chunk sink;
	/* The request under way: the packet itself is still on the program's socket. */
	uint64_t asked; /* the program's number for the request, 0: no request is with a worker */
	struct kept_call request;
	uint32_t request_fd;
	uint64_t code_bytes; /* of request_fd, if that is a text's compiled code; else 0 */
	struct kept_chunk chunk;
	struct kept_window window; /* taken by the request; no address: none */
	/* for the device memory of a session that is swapped out, or on the way; sessions that
	 * moved together have the same */
	uint32_t swap_fds[KEPT_SWAP_FILES];
};

/* RECORD_HOLDING, key: a serial number, which gives the order; followed by options, name and
 * form. */
struct kept_holding {
	uint64_t session, address, bytes, offset, memory, image_bytes, unpacked_bytes, global[2];
	int64_t value;
	uint32_t type, flags, module, function, kind, attribute;
	uint32_t fd, option_count, name_bytes; /* with the NUL */
	struct kept_chunk chunk;
	uint32_t form_bytes, reserved;
};

/* RECORD_UNPINNING, key: a serial number. Pinned memory that an executor has not released yet
 * (session/unpinning.h). Followed by the windows that this memory holds. */
struct kept_unpinning {
	uint64_t session, bytes, address, range_bytes;
	uint32_t type, flags, domain;
	uint32_t window_count;
	struct kept_call call;
};

/* RECORD_FAULT_HISTORY, key: the entry's number. */
struct kept_fault_history {
	int64_t uid;
	uint64_t faults, latest_us;
	char program[512];
};

/* RECORD_RULES, the only record of this kind: struct rules (config/terms.h) as reloaded. Without
 * the record the rules of the start hold. */

/* RECORD_EVENT, key: the event's number, which gives the order; followed by program and text, each
 * with a NUL. */
struct kept_event {
	uint64_t of_user, session;
	int64_t time_ms, uid;
	uint32_t kind;
	int32_t pid;
	bool has_program;
};

/* RECORD_DOOMED, key: a serial number. Device memory without an owner, until the keeper has
 * released the memory. */
struct kept_doomed {
	struct kept_chunk chunk;
	uint64_t release_id; /* of the ReleaseChunk in flight; 0: not sent */
};

#endif
