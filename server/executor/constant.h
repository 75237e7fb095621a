// Constants of modules and their mirrors: memory of a session whose contents are copied on when a
// command has written there. See constant.c.

#ifndef FRMPS_SERVER_EXECUTOR_CONSTANT_H
#define FRMPS_SERVER_EXECUTOR_CONSTANT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/executor/range.h"
#include "shm/order.h"

struct tenant;

/* Of a session. More constants than any program asks for by address; a take-over makes a copy for
 * each. */
#define CONSTANTS_MAX 16384u

struct constant {
	struct range mirror;
	uint64_t at; /* where kernels read the constant, in this executor's context */
	uint32_t module;
};

/* Of one session. */
struct constant_set {
	pthread_rwlock_t lock; /* of everything but the words */
	word64 low, high;      /* no mirror lies outside; 0, 0: there is none */
	struct constant *at;   /* by address, disjoint */
	uint32_t count, room;
};

void constant_set_init(struct constant_set *set);
void constant_set_deinit(struct constant_set *set);

/**
 * From now on bytes that commands write to the mirror are copied on to the constant. No effect on a
 * known constant. Module thread.
 * Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE: the mirror overlaps
 * another.
 */
CUresult constant_add(struct tenant *tenant, const struct constant *constant);

/** Forgets the constants of a module. Module thread; no command that was issued before may be in
 * flight when the module is unloaded. */
void constant_forget(struct tenant *tenant, uint32_t module);

/** Return: true if the bytes overlap the mirror of a constant of the module. Module thread. */
bool constant_touches(struct tenant *tenant, uint32_t module, uint64_t address, uint64_t bytes);

/** Copies every mirror to its constant, and waits for the copies. Main thread, before the session
 * is served.
 * Return: true if all copies succeeded. */
bool constant_refresh(struct tenant *tenant);
/** The same for constants whose mirrors overlap a range. Any thread, while the session issues
 * nothing. */
bool constant_refresh_in(struct tenant *tenant, const struct range *mirrors);

/* As below; the bytes may overlap a mirror. */
bool constant_find_among(struct constant_set *set, uint64_t address, uint64_t bytes, uint64_t *ret_to);

/**
 * Finds the constant that bytes written by a command must be copied on to.
 * @bytes: at least 1; address + bytes does not wrap
 * @ret_to: 0: nowhere
 * Return: false if the bytes cross the bounds of a mirror: no variable is like that
 */
static inline bool constant_find(struct constant_set *set, uint64_t address, uint64_t bytes, uint64_t *ret_to)
{
	*ret_to = 0;
	/* Pairs with the releases in set_bounds(). A program learns a mirror's address after the
	 * bounds have widened.
	 */
	if (address >= word_acquire(&set->high) || address + bytes <= word_acquire(&set->low))
		return true;
	return constant_find_among(set, address, bytes, ret_to);
}

/* As below; there are mirrors. */
bool constant_pointed_at_among(struct constant_set *set, const uint8_t *arguments, uint32_t bytes,
	uint32_t *offset, struct backend_copy *ret_copy);

/**
 * The next constant that arguments of a kernel point at: a word of eight bytes is an address in the
 * mirror.
 * @offset: where to look on; 0 at first
 * @ret_copy: copies the whole mirror to the constant
 * Return: false if no further constant is found
 */
static inline bool constant_pointed_at(struct constant_set *set, const uint8_t *arguments, uint32_t bytes,
	uint32_t *offset, struct backend_copy *ret_copy)
{
	return word_acquire(&set->high) != 0 &&
	       constant_pointed_at_among(set, arguments, bytes, offset, ret_copy);
}

#endif
