// The trampolines of this process's context (backend/trampoline_image.h): loaded when the context
// is made, because the driver's load waits for everything that runs. Each set is a library of the
// driver: a set for kernels without constants, and some with a bank of constants each, for a single
// module at a time.
//
// Opened and closed with the context; the module thread takes and gives banks; trampoline_carries()
// is for any thread.

#ifndef FRMPS_SERVER_BACKEND_CUDA_TRAMPOLINE_H
#define FRMPS_SERVER_BACKEND_CUDA_TRAMPOLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/backend/cuda/driver.h"

struct trampoline_set;

struct trampoline {
	CUkernel kernel;
	CUfunction function;
	uint32_t carried; /* bytes of parameters; the address is in the last 8 */
};

/**
 * Loads the trampolines.
 * @shared: bytes of shared memory that a block can have
 * Return: true if code can be entered through them; if not, the log has the reason
 */
bool trampolines_open(int shared);
void trampolines_close(void);

/**
 * A set with a bank of constants; NULL: in use.
 * @number: of the bank; 0: any
 * @owner: whose module it is for. Owners begin at different banks, so that a program from another
 * device seldom finds its bank in use
 */
struct trampoline_set *trampolines_take_bank(uint32_t number, uint64_t owner);
/** From 1 on. A bank of a number lies at the same address in every executor. */
uint32_t trampolines_bank_number(const struct trampoline_set *set);
/** NULL is fine. */
void trampolines_give_bank(struct trampoline_set *set);
/** Where the bank lies on the device. */
uint64_t trampolines_bank(const struct trampoline_set *set);

/**
 * The trampoline for a kernel.
 * @set: NULL: the kernel reads no constants
 * @carried: bytes of parameters, with the address NULL: there is none
 */
const struct trampoline *trampolines_find(
	const struct trampoline_set *set, uint32_t registers, uint32_t barriers, uint32_t carried);

/** Bytes that a grid carries which begins at an address; 0: no trampoline begins there. */
uint32_t trampoline_carries(uint64_t entry);

#endif
