// The trial of peers (server/backend/cuda/peers.h) on a driver of the test's own. Memory of a
// device is a file, whose last byte says which device has it, and a process sees the device that
// CUDA_VISIBLE_DEVICES names. `trouble` is what is wrong between device 1 and device 2.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/peers.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/backend/fake_calls.h"

#define BYTES BACKEND_CHUNK_GRANULE

static enum {
	NONE,
	REFUSED,   /* device 1 cannot map the memory of device 2 */
	ELSEWHERE, /* what device 1 writes there does not arrive */
	STALE,	   /* device 1 reads something else there */
	DEAF,	   /* the process of device 1 ends when it maps that */
	MUTE,	   /* device 1 cannot be opened */
} trouble;

static int seen_device(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	return visible ? atoi(visible) : -1;
}

static CUresult init(unsigned int flags)
{
	(void)flags;
	return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *ret_device, int ordinal)
{
	*ret_device = ordinal;
	return trouble == MUTE && seen_device() == 1 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult primary_retain(CUcontext *ret_context, CUdevice device)
{
	(void)device;
	*ret_context = (CUcontext)(void *)&trouble;
	return CUDA_SUCCESS;
}

static CUresult context_set(CUcontext context)
{
	(void)context;
	return CUDA_SUCCESS;
}

static CUresult context_synchronize(void)
{
	return CUDA_SUCCESS;
}

static CUresult memory_create(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
	const CUmemAllocationProp *properties, unsigned long long flags)
{
	const uint8_t owner = (uint8_t)properties->location.id;
	int fd = memfd_create("chunk", 0);

	(void)flags;
	if (fd < 0 || ftruncate(fd, (off_t)bytes) || pwrite(fd, &owner, 1, (off_t)bytes - 1) != 1)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_handle = (CUmemGenericAllocationHandle)fd;
	return CUDA_SUCCESS;
}

static CUresult memory_export(void *ret_shareable, CUmemGenericAllocationHandle handle,
	CUmemAllocationHandleType type, unsigned long long flags)
{
	(void)type;
	(void)flags;
	*(int *)ret_shareable = dup((int)handle);
	return CUDA_SUCCESS;
}

static CUresult memory_import(
	CUmemGenericAllocationHandle *ret_handle, void *shareable, CUmemAllocationHandleType type)
{
	(void)type;
	*ret_handle = (CUmemGenericAllocationHandle)dup((int)(intptr_t)shareable);
	return CUDA_SUCCESS;
}

static CUresult memory_release(CUmemGenericAllocationHandle handle)
{
	close((int)handle);
	return CUDA_SUCCESS;
}

static CUresult address_reserve(
	CUdeviceptr *ret_address, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags)
{
	void *address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)alignment;
	(void)at;
	(void)flags;
	*ret_address = (CUdeviceptr)(uintptr_t)address;
	return address == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult memory_map(CUdeviceptr address, size_t bytes, size_t offset,
	CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	uint8_t owner = 0;
	bool is_meant;
	void *at = (void *)(uintptr_t)address;

	(void)flags;
	ck_assert_int_eq(pread((int)handle, &owner, 1, (off_t)bytes - 1), 1);
	is_meant = seen_device() == 1 && owner == 2;
	if (is_meant && trouble == REFUSED)
		return CUDA_ERROR_INVALID_DEVICE;
	if (is_meant && trouble == DEAF)
		_exit(3);
	at = mmap(at, bytes, PROT_READ | PROT_WRITE,
		MAP_FIXED | (is_meant && trouble == ELSEWHERE ? MAP_PRIVATE : MAP_SHARED), (int)handle,
		(off_t)offset);
	return at == MAP_FAILED ? CUDA_ERROR_MAP_FAILED : CUDA_SUCCESS;
}

static CUresult copy_to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	(void)stream;
	memcpy((void *)(uintptr_t)to, from, bytes);
	return CUDA_SUCCESS;
}

static CUresult copy_to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	(void)stream;
	memcpy(to, (const void *)(uintptr_t)from, bytes);
	if (trouble == STALE && seen_device() == 1)
		((uint8_t *)to)[bytes - 1] ^= 1;
	return CUDA_SUCCESS;
}

static void make_driver(void)
{
	driver.version = DRIVER_MINIMUM;
	driver.init = init;
	driver.device_get = device_get;
	driver.primary_retain = primary_retain;
	driver.context_set = context_set;
	driver.context_synchronize = context_synchronize;
	driver.memory_create = memory_create;
	driver.memory_export = memory_export;
	driver.memory_import = memory_import;
	driver.memory_release = memory_release;
	driver.address_reserve = address_reserve;
	driver.memory_map = memory_map;
	driver.memory_access = fake_memory_access;
	driver.copy_to_device = copy_to_device;
	driver.copy_to_host = copy_to_host;
	unsetenv("CUDA_VISIBLE_DEVICES");
}

/* Four devices, all of them peers to the driver but 0 and 3. */
static struct backend_probe four(void)
{
	struct backend_probe probe = {.device_count = 4};

	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			probe.peers[i][k] = (i == 0 && k == 3) || (i == 3 && k == 0) ? 0 : wire_peer(true, 1);
	return probe;
}

static bool is_lost(int device, int other)
{
	switch (trouble) {
	case REFUSED:
	case ELSEWHERE:
		return device == 1 && other == 2;
	case STALE: /* it does not see others' marks either */
	case DEAF:
	case MUTE:
		return device == 1 || other == 1;
	default:
		return false;
	}
}

TEST_LOOP(peers, peers_are_those_that_reach_each_other, NONE, MUTE + 1)
{
	struct backend_probe probe = four(), told = four();

	trouble = _i;
	make_driver();
	cuda_peers_try(&probe);
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			ck_assert_msg(probe.peers[i][k] == (i != k && is_lost(i, k) ? 0 : told.peers[i][k]),
				"%d to %d: %u", i, k, probe.peers[i][k]);
}

static CUresult init_fails(unsigned int flags)
{
	(void)flags;
	return CUDA_ERROR_UNKNOWN;
}

TEST(peers, a_driver_that_does_not_start_has_no_peers)
{
	struct backend_probe probe = four();

	make_driver();
	driver.init = init_fails;
	cuda_peers_try(&probe);
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			ck_assert_uint_eq(probe.peers[i][k], i == k ? wire_peer(true, 1) : 0);
}

int main(void)
{
	Suite *suite = suite_create("peers");
	TCase *tests = tcase_create("peers");

	suite_add(tests, "peers");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
