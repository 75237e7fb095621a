// The trampolines of this process's context (backend/trampoline_image.h): loaded when the context
// is made, because the driver's load waits for everything that runs. Each set is a library of the
// driver: a set for kernels without constants, and some with a bank of constants each. Several
// modules have their constants in one bank. Some more are for kernels without constants that need
// more local memory than a context has at first: launches through these make the driver get that,
// once, which waits for everything that runs.
//
// Opened and closed with the context; the module thread takes and gives room in banks;
// trampoline_carries() is for any thread.

#ifndef FRMPS_SERVER_BACKEND_CUDA_TRAMPOLINE_H
#define FRMPS_SERVER_BACKEND_CUDA_TRAMPOLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/backend/cuda/driver.h"

struct trampoline_set;

struct trampoline {
	CUkernel kernel;
	CUfunction function;
	uint32_t carried; /* bytes of parameters; the address is in the last 8 */
	uint32_t local;	  /* bytes of local memory for each thread; 0: what the context has at first */
};

/**
 * Loads the trampolines.
 * @shared: bytes of shared memory that a block can have
 * @local: bytes of local memory that each thread of the context has at first
 * Return: true if code can be entered through them; if not, the log has the reason
 */
bool trampolines_open(int shared, size_t local);
void trampolines_close(void);

/* Room for a module's constants. */
struct trampoline_room {
	struct trampoline_set *set; /* with the bank; NULL: no room */
	uint32_t bank;		    /* number of the bank, from 1 on: at the same address in every executor */
	uint32_t offset, bytes;
};

/**
 * Takes room in a bank.
 * @bytes: 1 to TRAMPOLINE_BANK_BYTES
 * @most: the highest offset that is possible; @owner: whose constants these are. Owners begin at
 * different banks and offsets, so that a program from another device seldom finds its room in use
 * Return: false: there is none
 */
bool trampolines_take_room(uint32_t bytes, uint32_t most, uint64_t owner, struct trampoline_room *ret);
/** Takes the room that another executor has. @room: all but the set. Return: false: in use */
bool trampolines_take_same_room(struct trampoline_room *room);
/** All zero is fine. */
void trampolines_give_room(const struct trampoline_room *room);
/** The room's address on the device. */
uint64_t trampolines_room_at(const struct trampoline_room *room);

/**
 * The trampoline for a kernel.
 * @set: NULL: the kernel reads no constants
 * @local: bytes of local memory that each of its threads needs
 * @carried: bytes of parameters, with the address
 * Return: NULL: there is none
 */
const struct trampoline *trampolines_find(const struct trampoline_set *set, uint32_t local,
	uint32_t registers, uint32_t barriers, uint32_t carried);

/** Bytes that a grid carries which begins at an address; 0: no trampoline begins there. */
uint32_t trampoline_carries(uint64_t entry);

#endif
