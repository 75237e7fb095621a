// Memory of graphs: the memory of allocation nodes. The program gets the address when it makes the
// node, so the memory belongs to the program from then on, until the last node, graph or executable
// graph with the memory is freed; the driver would share it between graphs meanwhile. Launches
// decide if the memory counts as allocated. The attributes follow the driver: memory counts from
// the first launch to a trim, even after the graph's end. Locked inside.

#ifndef FRMPS_CLIENT_GRAPH_MEMORY_H
#define FRMPS_CLIENT_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;
struct graph_memory;

/* Bytes of the memory that launches of a session have used; guarded by the lock of the memory. */
struct graph_figures {
	uint64_t there;
	uint64_t held; /* that the driver would have on the device for it: the most since the latest trim */
	uint64_t used_high, reserved_high;
};

/** CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE for 0 bytes. The graph lock is not held. */
CUresult graph_memory_new(CUcontext context, uint64_t bytes, struct graph_memory **ret_memory);
void graph_memory_ref(struct graph_memory *memory);
/** graph_memory_reap() frees memory without references. */
void graph_memory_unref(struct graph_memory *memory);
/**
 * Frees memory without references, behind its latest free. The graph lock is not held: the function
 * asks the service.
 */
void graph_memory_reap(void);

/**
 * Reaps, and stops counting memory of the calling thread's session in which no allocation lives.
 */
void graph_memory_trim(void);

/** The memory of a context's graphs is about to be freed with the context's other memory. */
void graph_memory_release_context(CUcontext context);

CUdeviceptr graph_memory_address(const struct graph_memory *memory);
uint64_t graph_memory_bytes(const struct graph_memory *memory);

/** True if the memory of some graph begins at the address. */
bool graph_memory_is(CUdeviceptr address);
/**
 * The program frees such an address outside of graphs. Reaps. @stream, @seq: the command behind
 * which the memory is free; NULL: now. CUDA_ERROR_INVALID_VALUE if it is free already.
 */
CUresult graph_memory_release(CUdeviceptr address, struct client_stream *stream, uint64_t seq);

/**
 * Checks that an allocation node may run. CUDA_ERROR_INVALID_VALUE if the node has run and no free
 * followed, CUDA_ERROR_CONTEXT_IS_DESTROYED if the memory is freed. @again: allow a second run
 * without a free
 */
CUresult graph_memory_check(const struct graph_memory *memory, bool again);
/**
 * The command that the latest free is behind: NULL if no free was in stream order. Commands of any
 * stream in front of it may still use the memory, which is at the same address in the next launch.
 */
struct client_stream *graph_memory_latest_free(const struct graph_memory *memory, uint64_t *ret_seq);
/** An allocation node is about to run. Return: true if the memory was not allocated before. */
bool graph_memory_allocate(struct graph_memory *memory);
/** Undoes graph_memory_allocate() of a node that did not run. */
void graph_memory_undo_allocate(struct graph_memory *memory);
/**
 * A free node is about to run. Return: true if the memory was allocated; then
 * graph_memory_undo_free() or graph_memory_freed() must follow, and the memory stays until then.
 */
bool graph_memory_free(CUdeviceptr address);
/** The free node did not run after all. */
void graph_memory_undo_free(CUdeviceptr address);
/** The free node is behind this command at the latest. */
void graph_memory_freed(CUdeviceptr address, struct client_stream *stream, uint64_t seq);

/** The attributes of the calling thread's session; values are bytes. */
CUresult graph_memory_get(CUgraphMem_attribute attribute, uint64_t *ret_value);
CUresult graph_memory_set(CUgraphMem_attribute attribute, uint64_t value);

#endif
