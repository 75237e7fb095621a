// See part.h. Runs on the program's threads.

#include "client/state/part.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/state/device.h"

/* Bits of a mask. */
#define UNITS_MOST 64u

/* Where the part is in a resource, behind a mark by which the library knows its own. */
#define MARK	UINT64_C(0x66726d70732d736d)
#define MARK_AT 4
#define PART_AT 12

_Static_assert(MARK_AT + sizeof(uint64_t) == PART_AT, "one behind the other");
_Static_assert(PART_AT + sizeof(struct part) <= sizeof(((CUdevResource *)0)->_internal_padding),
	"the part has room");

struct CUdevResourceDesc_st {
	struct part part;
	struct CUdevResourceDesc_st *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUdevResourceDesc_st *descriptions; /* guarded by lock; only grows */

static uint64_t low_bits(uint32_t count)
{
	return count ? UINT64_MAX >> (UNITS_MOST - count) : 0;
}

static uint64_t inside(const struct part *part)
{
	return part->mask & low_bits(part->units);
}

static bool has_beside(const struct part *part)
{
	return part->mask != inside(part);
}

uint32_t part_count(const struct part *part)
{
	return (uint32_t)__builtin_popcountll(inside(part)) * part->granule +
	       (has_beside(part) ? part->beside : 0);
}

CUresult part_of_device(int ordinal, struct part *ret_part)
{
	const struct client_device *device = device_get(ordinal);
	int count = 0;
	struct part part = {.device = ordinal, .granule = device->sm_granule};
	CUresult r = device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &count);

	if (r != CUDA_SUCCESS)
		return r;
	if (!part.granule || !device->sm_units || device->sm_units > UNITS_MOST)
		return CUDA_ERROR_NOT_SUPPORTED;
	/* A share is of whole units. */
	part.units = (uint32_t)count / part.granule;
	if (part.units >= device->sm_units) {
		part.units = device->sm_units;
		part.beside = (uint32_t)count - part.units * part.granule;
	}
	part.mask = low_bits(part.units + (part.beside && part.units < UNITS_MOST));
	*ret_part = part;
	return CUDA_SUCCESS;
}

void part_show(const struct part *part, CUdevResource *ret_resource)
{
	CUdevResource resource = {.type = CU_DEV_RESOURCE_TYPE_SM, .sm = {.smCount = part_count(part)}};
	const uint64_t mark = MARK;

	if (!part->is_piece)
		resource.sm.minSmPartitionSize = resource.sm.smCoscheduledAlignment = part->granule;
	memcpy((char *)&resource + MARK_AT, &mark, sizeof(mark));
	memcpy((char *)&resource + PART_AT, part, sizeof(*part));
	*ret_resource = resource;
}

static CUresult read_part(const CUdevResource *resource, struct part *ret_part)
{
	uint64_t mark;

	memcpy(&mark, (const char *)resource + MARK_AT, sizeof(mark));
	if (resource->type != CU_DEV_RESOURCE_TYPE_SM || mark != MARK)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	memcpy(ret_part, (const char *)resource + PART_AT, sizeof(*ret_part));
	/* The program has changed it. */
	return resource->sm.smCount == part_count(ret_part) ? CUDA_SUCCESS
							    : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

/* Moves the first units of a part to another one. */
static void move_units(struct part *from, uint32_t units, struct part *to)
{
	to->mask = 0;
	while (units--) {
		const uint64_t first = from->mask & -from->mask;

		to->mask |= first;
		from->mask ^= first;
	}
}

static void show_rest(const struct part *rest, CUdevResource *ret_rest)
{
	if (rest->mask)
		part_show(rest, ret_rest);
	else
		*ret_rest = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_INVALID};
}

/* Units that each group gets; 0: a single group is to have everything, for its size is more than
 * all units. */
static uint32_t units_of_group(const struct part *of, unsigned int least)
{
	const uint32_t units = least ? (least - 1) / of->granule + 1 : 1;

	return units <= (uint32_t)__builtin_popcountll(inside(of)) ? units : 0;
}

CUresult part_split(CUdevResource *ret_groups, unsigned int *groups, const CUdevResource *of,
	CUdevResource *ret_rest, unsigned int flags, unsigned int least)
{
	struct part rest, group;
	uint32_t units, most;
	CUresult r = read_part(of, &rest);

	if (r != CUDA_SUCCESS)
		return r;
	if (ret_groups && !*groups)
		return CUDA_ERROR_INVALID_VALUE;
	if (rest.is_piece)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	/* The flags exclude each other. A group of whole units has what either is for. */
	if (flags > CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	if (least > part_count(&rest))
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	units = units_of_group(&rest, least);
	most = units ? (uint32_t)__builtin_popcountll(inside(&rest)) / units : 1;
	if (!ret_groups || *groups > most)
		*groups = most;
	if (!ret_groups)
		return CUDA_SUCCESS;
	rest.is_piece = 1;
	group = rest;
	for (unsigned int i = 0; i < *groups; ++i) {
		if (units)
			move_units(&rest, units, &group);
		else
			rest.mask = 0;
		part_show(&group, &ret_groups[i]);
	}
	if (ret_rest)
		show_rest(&rest, ret_rest);
	return CUDA_SUCCESS;
}

static CUresult add(struct part *sum, const struct part *part)
{
	if (part->device != sum->device)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	sum->mask |= part->mask;
	return CUDA_SUCCESS;
}

static CUresult sum_up(const CUdevResource *resources, unsigned int count, struct part *ret_sum)
{
	struct part part;
	CUresult r = read_part(&resources[0], ret_sum);

	for (unsigned int i = 1; r == CUDA_SUCCESS && i < count; ++i) {
		r = read_part(&resources[i], &part);
		if (r == CUDA_SUCCESS)
			r = add(ret_sum, &part);
	}
	return r;
}

static bool is_same(const struct part *a, const struct part *b)
{
	return a->mask == b->mask && a->units == b->units && a->granule == b->granule &&
	       a->beside == b->beside && a->device == b->device;
}

/* Under the lock. */
static struct CUdevResourceDesc_st *find(const struct part *part)
{
	struct CUdevResourceDesc_st *one = descriptions;

	while (one && !is_same(&one->part, part))
		one = one->next;
	return one;
}

/* Under the lock. */
static struct CUdevResourceDesc_st *make(const struct part *part)
{
	struct CUdevResourceDesc_st *one = malloc(sizeof(*one));

	if (!one)
		return NULL;
	*one = (struct CUdevResourceDesc_st){.part = *part, .next = descriptions};
	descriptions = one;
	return one;
}

CUresult part_describe(const CUdevResource *resources, unsigned int count, CUdevResourceDesc *ret_description)
{
	struct CUdevResourceDesc_st *one;
	struct part sum;
	CUresult r = sum_up(resources, count, &sum);

	if (r != CUDA_SUCCESS)
		return r;
	sum.is_piece = 0;
	pthread_mutex_lock(&lock);
	one = find(&sum);
	if (!one)
		one = make(&sum);
	pthread_mutex_unlock(&lock);
	if (!one)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_description = one;
	return CUDA_SUCCESS;
}

CUresult part_described(CUdevResourceDesc description, int device, struct part *ret_part)
{
	const struct CUdevResourceDesc_st *one;

	if (!description)
		return part_of_device(device, ret_part);
	pthread_mutex_lock(&lock);
	for (one = descriptions; one && one != description; one = one->next)
		;
	pthread_mutex_unlock(&lock);
	if (!one || one->part.device != device)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_part = one->part;
	return CUDA_SUCCESS;
}
