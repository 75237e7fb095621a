// Memory of one session at the same addresses in others: a piece of a session's memory (a chunk of
// pool.c, or a mapping of virtual.c) is mapped in other sessions of the process, its peers, whose
// kernels and copies then reach it. The service of the peer's device gets the memory from the
// service of the piece's (ImportMemory), and addresses for it (ReserveWindow).
//
//   piece ──peer_share, or the peer is in its audience──► shared with the peer
//     ▲                                                        │
//     └── peer_unshare, peer_remove: waits for the peer's ◄────┘
//         work, and unmaps
//
// All sessions of the process get its pinned memory, as natively with unified addressing: what
// there is, when they begin; what comes later, at its allocation. With a single device there are no
// pieces. Any thread.

#ifndef FRMPS_CLIENT_STATE_PEER_H
#define FRMPS_CLIENT_STATE_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct session;

/** True if a device can map memory of another one, both by their ordinals. */
bool peer_can(int device, int of);

/* The window of its session that a piece lies in: a peer reserves the whole window. */
struct peer_window {
	uint64_t base, bytes;
	bool is_host; /* of pinned memory */
};

/* The sessions that have a piece. */
enum peer_audience {
	PEER_NAMED,  /* those that peer_share() names */
	PEER_OPENED, /* those, and all to which peer_open() has opened the session's memory */
	PEER_ALL,    /* those, and all that have joined */
};

/**
 * Memory of the calling thread's session is mapped there: shares it with its audience.
 * Return: the service's error; then nothing is shared or noted
 */
CUresult peer_add(
	const struct peer_window *window, uint64_t address, uint64_t bytes, enum peer_audience audience);
/**
 * The memory is about to be unmapped in its own session: unmaps it in all others.
 * Return: the service's error; then the memory may still be mapped there, and stays noted
 */
CUresult peer_remove(uint64_t address);

/** Opens the device memory of a session, present and later, to another session, for good: a program
 * that ends its access has no access only as far as it does not try. Return: the service's error */
CUresult peer_open(struct session *from, struct session *to);

/** The calling thread's session, which begins, gets the pinned memory of all others, present and
 * later. Return: the service's error; then call peer_leave() */
CUresult peer_join(void);
/** The calling thread's session does not begin after all: its service unmaps all. */
void peer_leave(void);

/** Shares the piece that begins there. Twice is fine. CUDA_ERROR_INVALID_VALUE: there is none */
CUresult peer_share(uint64_t address, struct session *to);
/** The contrary. */
CUresult peer_unshare(uint64_t address, struct session *to);

/** Sessions that have all of these bytes by sharing: bit i: that of ordinal i. */
uint64_t peer_reach(uint64_t address, uint64_t bytes);

/** True if the calling thread's session has all of these bytes of another session, by sharing, or
 * is that session. */
bool peer_has(const struct session *owner, uint64_t address, uint64_t bytes);

/** Waits for all work that was submitted so far in the calling thread's session, and in others if
 * they share the memory at the address. */
CUresult peer_wait(uint64_t address);

#endif
