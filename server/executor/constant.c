// Kernels read a constant in a bank of the context, at a place that is in their instructions, so
// constants cannot be moved as other variables are (server/backend/relocate.c). Instead the program
// has a *mirror*, in the block of the program's own memory with the module's variables, filled with
// the first value when the module is loaded. A program that asks for a constant's address gets the
// mirror's, in every executor, and the mirror's value outlives all executors:
//
//   FindGlobal   module thread: the constant's own address in this context is looked up and noted
//                here, in the active executor and in the standby
//   a command    serving thread: bytes that a copy, a set or a memory operation writes to a mirror
//                are copied on to the constant on the same stream, before the command's mark: a
//                command that is ordered behind this command, on any stream, is behind both. In
//                graphs the node includes the copy (backend_node.onto)
//   Activate     main thread of the executor that takes over: every constant gets the mirror's
//                value before any command runs. A command in flight is repeated after that, with
//                the copy behind it
//
// Copies and kernels that read from the mirror's address read the mirror. Such a kernel may also
// store there: CuPy fills a constant so. Behind each launch with an argument that points into a
// mirror, the whole mirror is copied on in the same way; a graph whose kernel has pointers to two
// constants is refused. Stores of kernels that load the pointer from memory are not copied on. A
// constant whose address no program has asked for has its first value in every executor.
//
// A copy into a box in a mirror is copied on as the same box, so that bytes between its rows, which
// another stream may be writing, are left alone.

#include "server/executor/constant.h"

#include <stdlib.h>
#include <string.h>

#include "server/executor/tenant.h"
#include "server/grow.h"
#include "server/search.h"

/* Copies before a wait for their mark: below the depth at which the driver's queue blocks. */
#define BATCH 256u

void constant_set_init(struct constant_set *set)
{
	*set = (struct constant_set){.count = 0};
	pthread_rwlock_init(&set->lock, NULL);
}

void constant_set_deinit(struct constant_set *set)
{
	free(set->at);
	pthread_rwlock_destroy(&set->lock);
}

/* The first that ends behind an address. Locked. */
static uint32_t find_place(const struct constant_set *set, uint64_t address)
{
	return search_above(
		set->at, set->count, sizeof(*set->at), offsetof(struct constant, mirror.end), address);
}

/* Locked. */
static void set_bounds(struct constant_set *set)
{
	word_release(&set->low, set->count ? set->at[0].mirror.start : 0);
	word_release(&set->high, set->count ? set->at[set->count - 1].mirror.end : 0);
}

static bool make_room(struct constant_set *set)
{
	return set->count < CONSTANTS_MAX && grow(&set->at, set->count, &set->room, sizeof(*set->at));
}

static bool is_same(const struct constant *a, const struct constant *b)
{
	return a->mirror.start == b->mirror.start && a->mirror.end == b->mirror.end && a->at == b->at &&
	       a->module == b->module;
}

/* Locked. */
static CUresult insert(struct constant_set *set, const struct constant *constant)
{
	uint32_t place = find_place(set, constant->mirror.start);
	const struct constant *next = &set->at[place];

	if (place < set->count && next->mirror.start < constant->mirror.end)
		return is_same(next, constant) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (!make_room(set))
		return CUDA_ERROR_OUT_OF_MEMORY;
	memmove(&set->at[place + 1], &set->at[place], (set->count - place) * sizeof(*set->at));
	set->at[place] = *constant;
	set->count++;
	set_bounds(set);
	return CUDA_SUCCESS;
}

CUresult constant_add(struct tenant *tenant, const struct constant *constant)
{
	struct constant_set *set = &tenant->constants;
	CUresult code;

	pthread_rwlock_wrlock(&set->lock);
	code = insert(set, constant);
	pthread_rwlock_unlock(&set->lock);
	return code;
}

void constant_forget(struct tenant *tenant, uint32_t module)
{
	struct constant_set *set = &tenant->constants;
	uint32_t left = 0;

	pthread_rwlock_wrlock(&set->lock);
	for (uint32_t i = 0; i < set->count; i++)
		if (set->at[i].module != module)
			set->at[left++] = set->at[i];
	set->count = left;
	set_bounds(set);
	pthread_rwlock_unlock(&set->lock);
}

bool constant_touches(struct tenant *tenant, uint32_t module, uint64_t address, uint64_t bytes)
{
	struct constant_set *set = &tenant->constants;
	bool touches = false;

	pthread_rwlock_rdlock(&set->lock);
	for (uint32_t i = find_place(set, address); !touches && i < set->count; i++) {
		if (set->at[i].mirror.start >= address + bytes)
			break;
		touches = set->at[i].module == module;
	}
	pthread_rwlock_unlock(&set->lock);
	return touches;
}

bool constant_find_among(struct constant_set *set, uint64_t address, uint64_t bytes, uint64_t *ret_to)
{
	const struct constant *one;
	bool fits = true;
	uint32_t place;

	pthread_rwlock_rdlock(&set->lock);
	place = find_place(set, address);
	one = place < set->count ? &set->at[place] : NULL;
	if (one && one->mirror.start < address + bytes) {
		fits = range_holds(&one->mirror, address, bytes);
		*ret_to = fits ? one->at + (address - one->mirror.start) : 0;
	}
	pthread_rwlock_unlock(&set->lock);
	return fits;
}

/* A copy, for free(). Return: false without memory. */
static bool list(struct constant_set *set, struct constant **ret, uint32_t *ret_count)
{
	pthread_rwlock_rdlock(&set->lock);
	*ret_count = set->count;
	*ret = malloc((set->count + 1) * sizeof(**ret));
	if (*ret && set->count)
		memcpy(*ret, set->at, set->count * sizeof(**ret));
	pthread_rwlock_unlock(&set->lock);
	return *ret;
}

static struct backend_copy refreshing(const struct constant *constant)
{
	return (struct backend_copy){.dst = constant->at,
		.src = constant->mirror.start,
		.width = constant->mirror.end - constant->mirror.start,
		.height = 1,
		.depth = 1};
}

bool constant_pointed_at_among(struct constant_set *set, const uint8_t *arguments, uint32_t bytes,
	uint32_t *offset, struct backend_copy *ret_copy)
{
	bool found = false;

	pthread_rwlock_rdlock(&set->lock);
	for (; !found && *offset + sizeof(uint64_t) <= bytes; *offset += sizeof(uint64_t)) {
		uint64_t address;
		uint32_t place;

		memcpy(&address, arguments + *offset, sizeof(address));
		place = find_place(set, address);
		found = place < set->count && address >= set->at[place].mirror.start;
		if (found)
			*ret_copy = refreshing(&set->at[place]);
	}
	pthread_rwlock_unlock(&set->lock);
	return found;
}

static uint32_t keep_those_in(struct constant *constants, uint32_t count, const struct range *mirrors)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < count; i++)
		if (constants[i].mirror.start < mirrors->end && mirrors->start < constants[i].mirror.end)
			constants[kept++] = constants[i];
	return kept;
}

bool constant_refresh(struct tenant *tenant)
{
	return constant_refresh_in(tenant, &(struct range){0, UINT64_MAX});
}

bool constant_refresh_in(struct tenant *tenant, const struct range *mirrors)
{
	struct backend_copy copies[BATCH];
	struct constant *constants;
	uint32_t count;
	bool fine = list(&tenant->constants, &constants, &count);

	count = fine ? keep_those_in(constants, count, mirrors) : 0;

	for (uint32_t done = 0; fine && done < count; done += BATCH) {
		uint32_t some = count - done < BATCH ? count - done : BATCH;

		for (uint32_t i = 0; fine && i < some; i++) {
			copies[i] = refreshing(&constants[done + i]);
			/* The client may have freed memory that a mirror lies in. */
			fine = tenant_admits_anywhere(tenant, copies[i].src, copies[i].width);
		}
		fine = fine && variable_carry_out(tenant->executor, copies, some);
	}
	free(constants);
	return fine;
}
