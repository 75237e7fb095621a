// Memory of one device at the same addresses on others: a piece of device memory of a session
// (a chunk of memory.c, or a mapping of virtual.c) is mapped in other sessions of the process, its
// peers, whose kernels and copies then reach it. The service of the peer's device gets the memory
// from the service of the piece's (ImportMemory), and addresses for it (ReserveWindow).
//
//   piece ──peer_share, or its session's memory is open to a session──► shared with that session
//     ▲                                                                        │
//     └── peer_unshare, peer_remove: waits for the peer's work, and unmaps ◄───┘
//
// With a single device there are no pieces. Any thread.

#ifndef FRMPS_CLIENT_STATE_PEER_H
#define FRMPS_CLIENT_STATE_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct session;

/** True if a device can map memory of another one, both by their ordinals. */
bool peer_can(int device, int of);

/**
 * Memory of the calling thread's session is mapped there.
 * @is_open: shares it with each session to which the memory is open: a chunk
 * Return: the service's error; then nothing is shared or noted
 */
CUresult peer_add(uint64_t address, uint64_t bytes, bool is_open);
/**
 * The memory is about to be unmapped in its own session: unmaps it in all others.
 * Return: the service's error; then the memory may still be mapped there, and stays noted
 */
CUresult peer_remove(uint64_t address);

/** Opens the chunks of a session, present and later ones, to another session, for good: a program
 * that ends its access has no access only as far as it does not try. Return: the service's error */
CUresult peer_open(struct session *from, struct session *to);

/** Shares the piece that begins there. Twice is fine. CUDA_ERROR_INVALID_VALUE: there is none */
CUresult peer_share(uint64_t address, struct session *to);
/** The contrary. */
CUresult peer_unshare(uint64_t address, struct session *to);

/** Sessions that have all of these bytes by sharing: bit i: that of ordinal i. */
uint64_t peer_reach(uint64_t address, uint64_t bytes);

/** Waits for all work that was submitted so far in the calling thread's session, and in others if
 * they share the memory at the address. */
CUresult peer_wait(uint64_t address);

#endif
