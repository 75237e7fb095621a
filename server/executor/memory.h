// Memory requests of clients: MapMemory, UnmapMemory, MapHost, UnmapHost, QueryMemory,
// ReserveWindow, ReleaseWindow. Main thread; unmapping answers later. Pinned memory that was freed
// stays pinned until nothing runs (deferred.h).

#ifndef FRMPS_SERVER_EXECUTOR_MEMORY_H
#define FRMPS_SERVER_EXECUTOR_MEMORY_H

#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/executor/job.h"

struct pace;
struct range;
struct tenant;

void memory_handle(struct job *job);

/** Takes addresses for the session's device memory. Main thread. */
CUresult memory_reserve(struct tenant *tenant, uint64_t address, uint64_t bytes);
/** The same for pinned memory: keeps everything else in this process away from the addresses. */
CUresult memory_reserve_host(struct tenant *tenant, uint64_t address, uint64_t bytes);

/** Undoes the mappings of device memory of a session that is not served any more. Module thread.
 * Return: false: call again (pace_step()) */
bool memory_unmap_device(struct tenant *tenant, struct pace *pace);

/** Unpins a range that the session freed. Module thread, when nothing runs. */
void memory_unpin(struct tenant *tenant, const struct range *range);

/**
 * Unpins one of the ranges that a session had at its end; with the last range the addresses are
 * released as well. Module thread, when nothing runs. Return: bytes of the range; 0: there was
 * none.
 */
uint64_t memory_unpin_next(struct tenant *tenant);

/** Bytes of all ranges that the session has pinned. */
uint64_t memory_pinned_bytes(struct tenant *tenant);

#endif
