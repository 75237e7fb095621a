// Moves variables of device code into memory of the program that loads the code. A driver puts a
// module's variables into the context, at addresses of its choice, and they end with the context.
// In the program's own memory they outlive every executor and have the same addresses everywhere.
//
// Kernels read constants in a bank of the context, at places in their instructions. A constant is
// moved nevertheless: the program gets the address of a mirror in its own memory, and writes there;
// the loader of the module copies such writes to the constant.
//
// A module has one block of memory for everything that is moved. First every cubin that may be
// loaded is looked at (relocate_look), then the block's size is known (relocate_lay_out), and each
// cubin can be rewritten for a block that exists (relocate_move). Pure functions on untrusted bytes
// that lie still; any thread.

#ifndef FRMPS_SERVER_BACKEND_RELOCATE_H
#define FRMPS_SERVER_BACKEND_RELOCATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/backend/fatbin.h"

/* Alignment of a block, and of every allocation. Variables with a larger alignment stay in the
 * context. */
#define RELOCATE_ALIGNMENT 256u
#define RELOCATE_BLOCK_MAX (UINT64_C(1) << 30)

struct relocate_variable {
	char *name;
	uint64_t bytes, alignment;
	uint64_t offset;  /* in the block, above 0: nothing begins where the allocation does */
	bool is_constant; /* the block has the constant's mirror */
	bool is_filled;	  /* the block has its first value */
	bool is_zero;	  /* that is nothing but zeros */
};

/* All zero: nothing is moved. */
struct relocate_plan {
	struct relocate_variable *at; /* by name */
	uint32_t count, room;
	uint64_t bytes;	   /* of the block; 0: there is nothing to move */
	uint8_t *first;	   /* first values of the block, for relocate_move() */
	bool is_managed;   /* the block is to be in managed memory */
	bool is_abandoned; /* nothing is moved, whatever there is */
};

/** Adds everything of a cubin that can be moved. Any bytes; nothing is moved of parts that are not
 * understood. */
void relocate_look(struct relocate_plan *plan, const uint8_t *cubin, size_t bytes);

/** Gives each variable its place. */
void relocate_lay_out(struct relocate_plan *plan);

/**
 * Rewrites a cubin for a block at an address, and adds its variables' first values to plan->first.
 * @at: a multiple of RELOCATE_ALIGNMENT
 * @ret: left unchanged if nothing is moved
 * Return: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_NOT_SUPPORTED: the cubins disagree,
 * and nothing may be moved
 */
CUresult relocate_move(struct relocate_plan *plan, uint64_t at, const uint8_t *cubin, size_t bytes,
	struct fatbin_bytes *ret);

/** NULL: not moved. */
const struct relocate_variable *relocate_find(const struct relocate_plan *plan, const char *name);

void relocate_deinit(struct relocate_plan *plan);

#endif
