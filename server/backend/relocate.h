// Moves variables of device code into memory of the program that loads it. A driver puts a module's
// variables into the context, at addresses of its choice, and they end with the context. In the
// program's own memory they outlive every executor and have one address in all of them.
//
// Kernels read constants in a bank of the context, at places that are in their instructions. A
// constant is moved nevertheless: the program gets the address of a mirror in its own memory, and
// writes there; whoever loads the module copies from there to the constant what was written.
//
// A module has one block of memory for all that is moved. First every cubin that may be loaded is
// looked at (relocate_look), then the block's size is known (relocate_lay_out), and each of them
// can be rewritten for a block that is there (relocate_move). Pure functions on untrusted bytes
// that lie still; any thread.

#ifndef FRMPS_SERVER_BACKEND_RELOCATE_H
#define FRMPS_SERVER_BACKEND_RELOCATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/backend/fatbin.h"

/* A block is this much aligned, which every allocation is. Variables that want more stay where they
 * are. */
#define RELOCATE_ALIGNMENT 256u
#define RELOCATE_BLOCK_MAX (UINT64_C(1) << 30)

struct relocate_variable {
	char *name;
	uint64_t bytes, alignment;
	uint64_t offset;  /* in the block, above 0: nothing begins where the allocation does */
	bool is_constant; /* a mirror of it is in the block */
	bool is_filled;	  /* its first value is in the block's */
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

/** Adds what can be moved of a cubin. Any bytes; of what is not understood nothing is moved. */
void relocate_look(struct relocate_plan *plan, const uint8_t *cubin, size_t bytes);

/** Gives each variable its place. */
void relocate_lay_out(struct relocate_plan *plan);

/**
 * Rewrites a cubin for a block at an address, and adds its variables' first values to plan->first.
 * @at: a multiple of RELOCATE_ALIGNMENT
 * @ret: left alone if nothing in it is moved
 * Return: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_NOT_SUPPORTED: the cubins are not of
 * one mind, and none may be moved
 */
CUresult relocate_move(struct relocate_plan *plan, uint64_t at, const uint8_t *cubin, size_t bytes,
	struct fatbin_bytes *ret);

/** NULL if it is not moved. */
const struct relocate_variable *relocate_find(const struct relocate_plan *plan, const char *name);

void relocate_deinit(struct relocate_plan *plan);

#endif
