// The program's pinned host memory: allocations in the host part of a session's window, at the same
// address in this process, on the device, and on each other device on which the process works
// (peer.h). What allocates does that in the calling thread's session; what frees, in that of the
// memory. Any thread.

#ifndef FRMPS_CLIENT_STATE_HOST_H
#define FRMPS_CLIENT_STATE_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "client/state/pool.h"
#include "protocol/cuda_abi.h"
#include "shm/layout.h"

struct backing;

/* At the end of the host part: pages of shared events. */
#define HOST_EVENTS_BYTES (UINT64_C(16) << 20)
#define HOST_EVENTS_PAGES (HOST_EVENTS_BYTES / SHM_SHARED_PAGE_BYTES)

/* Of a session. */
struct host {
	struct pool pool;
	/* Set by the thread that maps a page, one at a time; cleared by the thread that has
	 * unmapped the page. */
	_Atomic bool is_events_page[HOST_EVENTS_PAGES];
	uint64_t next_events_page;
};

/** CUDA_ERROR_OUT_OF_MEMORY. @bytes: not 0; @flags: CU_MEMHOSTALLOC_*, kept for queries. */
CUresult host_alloc(CUcontext context, uint64_t bytes, unsigned int flags, void **ret_pointer);

/**
 * Waits for the work submitted so far, then frees; NULL is no error. CUDA_ERROR_INVALID_VALUE
 * unless an allocation starts there.
 */
CUresult host_free(void *pointer);

/** Frees all memory of a context. Its work is done. */
void host_release_context(CUcontext context);

struct range;

/**
 * Allocates range->bytes of pinned memory, fills in address, room and block, and adds the range to
 * the map of ranges.
 */
CUresult host_alloc_range(struct range *range);
/** As pool_export(), of the program's pinned memory. */
int host_export(uint64_t address, int kind, struct range *ret_range);
/** Frees memory that no work uses any more. Asks the service. */
void host_free_range(uint64_t address, int kind);
/** As host_free_range(), for a range that is no longer in the map. */
void host_free_block(void *block);

/**
 * Maps a page of shared events (shm/layout.h). One call at a time.
 * @session, @source: the page of another program; 0: a new page
 * Return: CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_HANDLE: that program has no such page, or
 * has ended
 */
CUresult host_map_events(uint64_t session, uint64_t source, uint64_t *ret_address);
/** Unmaps a page that no work uses any more. */
void host_unmap_events(uint64_t address);

/**
 * Pins pages of a file in memory, for all devices, and maps them once more in this process: in a
 * RANGE_FILE.
 * @file, @bytes: as for map_host_file()
 * Return: as map_host_file(); CUDA_ERROR_OUT_OF_MEMORY also without addresses
 */
CUresult host_alloc_file(const struct backing *file, uint64_t bytes, uint64_t *ret_address);
/** Undoes that; no work uses the pages any more. Return: false: no file is pinned there */
bool host_free_file(uint64_t address);

struct heap_chunk;

/** Takes addresses of the host part, for memory with handles. @bytes: a multiple of HEAP_GRAIN.
 * Return: NULL: none are free */
struct heap_chunk *host_reserve(uint64_t bytes, uint64_t *ret_address);
/** Gives them back: nothing is mapped there. */
void host_unreserve(struct heap_chunk *chunk);

/** Called by session start. */
void host_start(void);

#endif
