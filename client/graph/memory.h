// Memory of graphs: what allocation nodes stand for. The address of such a node is known when the
// node is made, so the memory is the program's from then on, until the last node, graph or
// executable graph with it is gone; the driver would share it between graphs meanwhile. Whether it
// counts as allocated follows the launches, and so do the attributes: they are the driver's, for
// which memory is there from the first launch to a trim, whatever became of the graph. Locked
// inside.

#ifndef FRMPS_CLIENT_GRAPH_MEMORY_H
#define FRMPS_CLIENT_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;
struct graph_memory;

/** CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE for 0 bytes. The graph lock is not held. */
CUresult graph_memory_new(CUcontext context, uint64_t bytes, struct graph_memory **ret_memory);
void graph_memory_ref(struct graph_memory *memory);
/** What is unused then is freed by graph_memory_reap(). */
void graph_memory_unref(struct graph_memory *memory);
/** Frees what nobody refers to any more, behind its latest free. The graph lock is not held: the
 * service is asked. */
void graph_memory_reap(void);

/** Reaps, and no longer counts what no allocation lives in. */
void graph_memory_trim(void);

/** The memory of a context's graphs is about to be freed with the context's other memory. */
void graph_memory_release_context(CUcontext context);

CUdeviceptr graph_memory_address(const struct graph_memory *memory);
uint64_t graph_memory_bytes(const struct graph_memory *memory);

/** Whether an address is the beginning of some graph's memory. */
bool graph_memory_is(CUdeviceptr address);
/** The program frees such an address outside of graphs. Reaps. @stream, @seq: the command that it
 * is free behind; NULL: it is. CUDA_ERROR_INVALID_VALUE if it is free. */
CUresult graph_memory_release(CUdeviceptr address, struct client_stream *stream, uint64_t seq);

/** Whether an allocation node may run. CUDA_ERROR_INVALID_VALUE if it has run and nobody has freed
 * it since, CUDA_ERROR_CONTEXT_IS_DESTROYED if the memory is gone. @again: it may although nobody
 * has freed it */
CUresult graph_memory_check(const struct graph_memory *memory, bool again);
/** The command that the latest free is behind: NULL if the memory was never freed in stream order.
 * What runs on any stream in front of it may still use the memory, which is at the same address in
 * the next launch. */
struct client_stream *graph_memory_latest_free(const struct graph_memory *memory, uint64_t *ret_seq);
/** An allocation node is about to run. Return: whether that changes anything. */
bool graph_memory_allocate(struct graph_memory *memory);
/** An allocation node that changed something did not run after all. */
void graph_memory_take_back(struct graph_memory *memory);
/** A free node is about to run. Return: as above; then one of the next two follows, and the memory
 * stays until that. */
bool graph_memory_free(CUdeviceptr address);
/** The free node did not run after all. */
void graph_memory_keep(CUdeviceptr address);
/** The free node is behind this command at the latest. */
void graph_memory_freed(CUdeviceptr address, struct client_stream *stream, uint64_t seq);

/** The attributes; values are bytes. */
CUresult graph_memory_get(CUgraphMem_attribute attribute, uint64_t *ret_value);
CUresult graph_memory_set(CUgraphMem_attribute attribute, uint64_t value);

#endif
