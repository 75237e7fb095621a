// The result of a stop of the device: the kernels that have faulted, and their owners. See
// finding.c.

#ifndef FRMPS_SERVER_BACKEND_CUDA_FINDING_H
#define FRMPS_SERVER_BACKEND_CUDA_FINDING_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/backend/cuda/code.h"
#include "server/backend/cuda/debugger.h"

/* Grids with a remembered kernel during a stop; for further grids the kernel is read again. */
#define FINDING_GRIDS_MAX 128u

struct finding_grid {
	uint64_t task;
	uint64_t start; /* start of the code: a trampoline, perhaps */
	uint64_t entry; /* the kernel's code; 0: not known */
};

/* Too large for a thread's stack. */
struct finding {
	void *area;			      /* where warps are saved (warps.h) */
	struct code code[BACKEND_FAULTS_MAX]; /* kernels that faulted */
	struct backend_fault faults[BACKEND_FAULTS_MAX];
	uint32_t count;
	bool excited;	/* there was an exception */
	bool unknown;	/* something faulted that has no name here: */
	char what[160]; /* the first such */
	struct finding_grid grids[FINDING_GRIDS_MAX];
	uint32_t grid_count, grid_last; /* last: found last, for a grid has many warps */
};

/* While the device stands still, and by the thread that has stopped the device. */

/**
 * Finds the faults.
 * @states: of the multiprocessors, as many as `sms`; 0 if unreadable
 */
void finding_look(struct finding *finding, void *area, const struct debugger_state *states, uint32_t sms);

/** Return: the entry of the kernel of a grid (warps_task()); 0: unreadable */
uint64_t finding_entry(struct finding *finding, uint64_t task);
/** Return: whether the kernel of a grid is known */
bool finding_kernel(struct finding *finding, uint64_t task, struct code *ret_code);

/** True if a warp of the multiprocessor has an error. */
bool finding_is_error(const struct debugger_state *state);

/**
 * The driver's error code for the program.
 * @error: of a warp (warps.h); in_code: true if the exception is at an instruction of a known
 * kernel
 */
CUresult finding_code(uint32_t error, bool in_code);

#endif
