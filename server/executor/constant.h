// Constants of modules and their mirrors: what of a session's memory has to be copied on when a
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

/* Of one session. More of whose addresses a program asks than any has; a copy each at a
 * takeover. */
#define CONSTANTS_MAX 16384u

struct constant {
	struct range mirror;
	uint64_t at; /* where kernels read it, in this executor's context */
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
 * From now on what commands write to a mirror goes on to the constant. Knows it already: nothing
 * happens. Module thread. Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE:
 * its mirror overlaps another's.
 */
CUresult constant_add(struct tenant *tenant, const struct constant *constant);

/** Forgets those of a module. Module thread; no command that was issued before may be under way
 * when the module is unloaded. */
void constant_forget(struct tenant *tenant, uint32_t module);

/** Whether some bytes overlap the mirror of one of a module's constants. Module thread. */
bool constant_touches(struct tenant *tenant, uint32_t module, uint64_t address, uint64_t bytes);

/** Gives every constant the value of its mirror, and waits for it. Main thread, before the session
 * is served.
 * Return: whether all have it. */
bool constant_refresh(struct tenant *tenant);
/** The same of those whose mirrors lie in a range, some of their bytes at least. Any thread, while
 * the session issues nothing. */
bool constant_refresh_in(struct tenant *tenant, const struct range *mirrors);

/* As below; some mirror may be meant. */
bool constant_find_among(struct constant_set *set, uint64_t address, uint64_t bytes, uint64_t *ret_to);

/**
 * Where else bytes have to go that a command writes.
 * @bytes: at least one; they do not wrap
 * @ret_to: 0: nowhere
 * Return: false if they are not all inside of a mirror or all outside of every one: no variable is
 * like that
 */
static inline bool constant_find(struct constant_set *set, uint64_t address, uint64_t bytes, uint64_t *ret_to)
{
	*ret_to = 0;
	/* Pairs with the releases in set_bounds(). Who may name a mirror was told of it after they
	 * widened.
	 */
	if (address >= word_acquire(&set->high) || address + bytes <= word_acquire(&set->low))
		return true;
	return constant_find_among(set, address, bytes, ret_to);
}

/* As below; there are mirrors. */
bool constant_pointed_at_among(struct constant_set *set, const uint8_t *arguments, uint32_t bytes,
	uint32_t *offset, struct backend_copy *ret_copy);

/**
 * The next constant that arguments of a kernel point at: words of eight bytes that are an address
 * in its mirror.
 * @offset: where to look on; 0 at first
 * @ret_copy: gives the constant the value of its whole mirror
 * Return: false if there is none any more
 */
static inline bool constant_pointed_at(struct constant_set *set, const uint8_t *arguments, uint32_t bytes,
	uint32_t *offset, struct backend_copy *ret_copy)
{
	return word_acquire(&set->high) != 0 &&
	       constant_pointed_at_among(set, arguments, bytes, offset, ret_copy);
}

#endif
