// Groups of multiprocessors: green contexts of the driver. They share memory, modules and functions
// with the context of the executor; a stream of a group runs its kernels on the group's
// multiprocessors alone.
//
// Measured (H100, driver 580.159.04): the device has 15 units of 8, and 12 that are in none. Units
// can be put together at will, and with the 12. Making a group takes 1.4 to 2.2 ms, and waits for
// all that runs, as does every launch meanwhile; 6 MiB of device memory. A stream in a group takes
// 10 us and waits for nothing. A launch costs the same. The driver refuses cooperative grids that
// do not fit the group. A graph's kernels stay in the context in which their nodes were made
// (graph.c). Local memory belongs to the context: a kernel that has run outside a group does not
// wait for local memory in a group. Multiprocessors in 2 instead of 8 would be possible, but not
// with clusters of more than 2 blocks.
//
// The module thread makes groups. A user of a group knows that the group was made (backend.h).

#include "server/backend/cuda/cuda.h"
#include "shm/order.h"

struct group {
	uint64_t sms;
	CUgreenCtx green;
	CUcontext context;
	CUstream stream;
};

static CUdevResource units[BACKEND_SM_UNITS_MAX];
static unsigned int unit_count; /* with those outside all units */
static CUdevice device;
static struct group groups[BACKEND_SM_GROUPS_MAX];
static word32 group_count; /* released when the group before is whole */

void cuda_sms_read(CUdevice of, struct backend_device *description)
{
	CUdevResource all = {0};
	CUdevResource outside = {0};
	unsigned int count = BACKEND_SM_UNITS_MAX;

	if (!driver.device_resource || !driver.resource_split || !driver.resource_describe ||
		!driver.green_create || !driver.green_destroy || !driver.green_context ||
		!driver.green_stream)
		return;
	if (driver.device_resource(of, &all, CU_DEV_RESOURCE_TYPE_SM) ||
		driver.resource_split(units, &count, &all, &outside, 0, all.sm.minSmPartitionSize) ||
		!count || !units[0].sm.smCount)
		return;
	unit_count = count;
	if (outside.sm.smCount && count < BACKEND_SM_UNITS_MAX)
		units[unit_count++] = outside;
	device = of;
	description->sm_units = count;
	description->sm_granule = units[0].sm.smCount;
}

static const struct group *find(uint64_t sms)
{
	/* Pairs with the release in cuda_sms_make(). */
	uint32_t count = word_acquire(&group_count);

	for (uint32_t i = 0; i < count; i++)
		if (groups[i].sms == sms)
			return &groups[i];
	return NULL;
}

static CUresult make(uint64_t sms, struct group *group)
{
	CUdevResource chosen[BACKEND_SM_UNITS_MAX];
	unsigned int count = 0;
	CUdevResourceDesc description;
	CUresult code;

	for (unsigned int i = 0; i < unit_count; i++)
		if (sms >> i & 1)
			chosen[count++] = units[i];
	code = driver.resource_describe(&description, chosen, count);
	if (!code)
		code = driver.green_create(&group->green, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
	if (!code)
		code = driver.green_context(&group->context, group->green);
	if (!code)
		code = driver.green_stream(&group->stream, group->green, CU_STREAM_NON_BLOCKING, 0);
	group->sms = sms;
	/* Another try may succeed. */
	if (code && group->green)
		driver.green_destroy(group->green);
	if (code)
		*group = (struct group){0};
	return code;
}

CUresult cuda_sms_make(uint64_t sms)
{
	uint32_t count = word_relaxed(&group_count);
	CUresult code;

	if (!unit_count)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!sms || sms & ~BACKEND_SMS(0, unit_count))
		return CUDA_ERROR_INVALID_VALUE;
	if (find(sms))
		return CUDA_SUCCESS;
	if (count == BACKEND_SM_GROUPS_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = make(sms, &groups[count]);
	if (!code)
		word_release(&group_count, count + 1);
	return code;
}

CUcontext cuda_sms_context(uint64_t sms)
{
	const struct group *group = find(sms);

	return group ? group->context : NULL;
}

CUstream cuda_sms_stream(uint64_t sms)
{
	const struct group *group = find(sms);

	return group ? group->stream : NULL;
}

CUresult cuda_sms_stream_create(uint64_t sms, int32_t priority, CUstream *ret_stream)
{
	const struct group *group = find(sms);

	return group ? driver.green_stream(ret_stream, group->green, CU_STREAM_NON_BLOCKING, priority)
		     : CUDA_ERROR_INVALID_VALUE;
}
