// What the suites of graphs and captures share: short forms of calls, which fail the test when they
// fail, and nodes that most of their graphs are made of.

#ifndef FRMPS_TESTS_SYSTEM_GRAPHS_H
#define FRMPS_TESTS_SYSTEM_GRAPHS_H

#include <stddef.h>
#include <stdint.h>

#include "tests/system/driver.h"

/* Words in the memory that nodes fill and copy. */
#define WORDS 1024u

/** A stream that does not wait for the legacy stream. */
CUstream new_stream(void);
/** An event without a time. */
CUevent new_event(void);

/** Kernels: one word more by a number; words of one value. */
CUresult count_up(CUstream stream, CUdeviceptr word, uint32_t by);
CUresult fill(CUstream stream, CUdeviceptr out, uint32_t value, uint64_t count);

uint32_t word_at(CUdeviceptr address);
void expect_words(CUdeviceptr address, uint32_t count, uint32_t value);

CUDA_KERNEL_NODE_PARAMS kernel_params(const char *name, unsigned blocks, unsigned threads, void **arguments);
CUDA_MEMCPY3D copy_params(
	CUdeviceptr dst, CUdeviceptr src, void *dst_host, const void *src_host, size_t bytes);

/* Nodes behind others. All but the first and the last write WORDS words. */
CUgraphNode add_count(CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr word, uint32_t by);
CUgraphNode add_fill(CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr out, uint32_t value);
CUgraphNode add_set(CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr dst, uint32_t value);
CUgraphNode add_copy(CUgraph graph, const CUgraphNode *before, size_t count, CUDA_MEMCPY3D params);

size_t node_count(CUgraph graph);
CUgraphExec instantiate(CUgraph graph);
/** Launches it and waits. */
void run(CUgraphExec exec, CUstream stream);

/** What a host function has seen of a word. */
struct told {
	uint32_t *word;
	uint32_t seen[4], count;
};
/** That host function. @user: struct told */
void tell(void *user);

CUstreamCaptureStatus capture_status(CUstream stream);
/** Ends a capture that must have failed. */
void end_broken(CUstream stream, CUresult expected);

#endif
