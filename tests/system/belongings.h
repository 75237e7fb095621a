// What a program has of everything that lies in device memory or names it, for tests that take the
// device away from it. In children only.

#ifndef FRMPS_TESTS_SYSTEM_BELONGINGS_H
#define FRMPS_TESTS_SYSTEM_BELONGINGS_H

#include <stdint.h>

#include "tests/system/driver.h"
#include "tests/system/program.h"

/* Some 140 MiB, which are not all of one piece. */
struct belongings {
	CUdeviceptr big, second, small, counter;
	CUdeviceptr host; /* host memory with a handle, which stays where it is */
	CUgraphExec graph;
	CUgraphNode node; /* of it, which counts, and changes with each use */
	CUDA_KERNEL_NODE_PARAMS params;
	CUstream stream;
	uint32_t counted, by, launched;
};

/* Exit status of a program whose session was terminated. */
#define BELONGINGS_TAKEN 4

void belongings_make(struct belongings *own);
/** Uses all of it, and looks at each byte. Return: exit status: 0 it is all there and works, 2 it
 * is not, 3 told an error, BELONGINGS_TAKEN */
int belongings_use(struct belongings *own);

/** A child: makes them, and at each order uses them, as often as belongings_rounds says, which is
 * set before it starts. Reports behind each. */
int belongings_keeper(int progress, int orders);
extern int belongings_rounds;
/** The same at all times, with kernels on the device, until it is ordered to end. */
int belongings_busy(int progress, int orders);
/** Sets belongings_rounds, starts a child, and waits for its first report. */
struct child belongings_begin(child_function *function, int times);

/** Children with what cannot leave the device, until they are ordered to end: an array; a texture
 * object over linear memory; kernels that keep something in the context; a kernel that runs. */
int array_keeper(int progress, int orders);
int texture_keeper(int progress, int orders);
int held_tallier(int progress, int orders);
int kernel_keeper(int progress, int orders);

/** Device memory of so many words, word i of which is belongings_word(i). */
CUdeviceptr belongings_filled(uint64_t count);
uint32_t belongings_word(uint64_t i);

#endif
