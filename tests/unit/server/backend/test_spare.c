// Device memory that an executor keeps for the driver's tables of pages
// (server/backend/cuda/memory.c), on a driver of the test's own, whose device has few granules and
// needs one for the tables of each mapping.

#include "server/backend/backend.h"
#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/driver.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/backend/fake_calls.h"

#define GRANULE BACKEND_CHUNK_GRANULE
#define AT	UINT64_C(0x100000000000)

static unsigned room, mapped;
static uint64_t sizes[64]; /* by handle: granules; 0: released */

static CUresult memory_create(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
	const CUmemAllocationProp *properties, unsigned long long flags)
{
	unsigned granules = (unsigned)(bytes / GRANULE);

	(void)properties;
	(void)flags;
	if (granules > room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	room -= granules;
	for (unsigned i = 1; i < 64; i++)
		if (!sizes[i]) {
			sizes[i] = granules;
			*ret_handle = i;
			return CUDA_SUCCESS;
		}
	ck_abort_msg("too many handles");
}

static CUresult memory_release(CUmemGenericAllocationHandle handle)
{
	room += (unsigned)sizes[handle];
	sizes[handle] = 0;
	return CUDA_SUCCESS;
}

/* What is imported is somebody else's: its release gives nothing back. */
static CUresult memory_import(
	CUmemGenericAllocationHandle *ret_handle, void *descriptor, CUmemAllocationHandleType type)
{
	(void)descriptor;
	(void)type;
	*ret_handle = 0;
	return CUDA_SUCCESS;
}

static CUresult memory_map(CUdeviceptr address, size_t bytes, size_t offset,
	CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	(void)address;
	(void)bytes;
	(void)offset;
	(void)handle;
	(void)flags;
	if (!room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	room--;
	mapped++;
	return CUDA_SUCCESS;
}

static CUresult memory_unmap(CUdeviceptr address, size_t bytes)
{
	(void)address;
	(void)bytes;
	room++;
	mapped--;
	return CUDA_SUCCESS;
}

static void use_driver(unsigned granules)
{
	driver.memory_create = memory_create;
	driver.memory_release = memory_release;
	driver.memory_import = memory_import;
	driver.memory_map = memory_map;
	driver.memory_access = fake_memory_access;
	driver.memory_unmap = memory_unmap;
	room = granules;
}

TEST(spare, the_last_memory_can_be_mapped)
{
	use_driver(3);
	cuda_spare_keep();
	ck_assert_uint_eq(room, 1);
	/* Programs take the rest. */
	room = 0;
	ck_assert_int_eq(cuda_chunk_map(AT, GRANULE, 5), CUDA_SUCCESS);
	ck_assert_int_eq(cuda_chunk_map(AT + GRANULE, GRANULE, 5), CUDA_SUCCESS);
	ck_assert_int_eq(cuda_chunk_map(AT + 2 * GRANULE, GRANULE, 5), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(mapped, 2);
	/* It is kept again as soon as there is room. */
	ck_assert_int_eq(cuda_chunk_unmap(AT, GRANULE), CUDA_SUCCESS);
	ck_assert_uint_eq(room, 1);
	ck_assert_int_eq(cuda_chunk_unmap(AT + GRANULE, GRANULE), CUDA_SUCCESS);
	ck_assert_uint_eq(room, 0);
	ck_assert_int_eq(cuda_chunk_map(AT, GRANULE, 5), CUDA_SUCCESS);
	ck_assert_uint_eq(room, 1);
	ck_assert(!cuda_spare_give());
}

TEST(spare, it_goes_back_at_the_end)
{
	use_driver(1);
	cuda_spare_keep();
	ck_assert(!cuda_spare_give());
	room = 4;
	cuda_spare_keep();
	cuda_spare_keep();
	ck_assert_uint_eq(room, 2);
	ck_assert(cuda_spare_give());
	ck_assert_uint_eq(room, 4);
}

int main(void)
{
	Suite *suite = suite_create("spare");

	suite_add(suite_case(suite, "spare"), "spare");
	return suite_run(suite);
}
