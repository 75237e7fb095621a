// Properties of the pretended devices: small devices of compute capability 9.0, which differ in
// their UUIDs and places on the bus. FRMPS_HOST_DEVICES says how many there are. Each reaches the
// memory of the others, unless FRMPS_HOST_PEERS is none. Features that blocks of a grid running one
// after another cannot have (cooperative launches, clusters) are reported as missing.

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/host/host.h"

static const struct {
	CUdevice_attribute id;
	int32_t value;
} attributes[] = {
	{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, HOST_THREADS_MAX},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, HOST_THREADS_MAX},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, HOST_THREADS_MAX},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, HOST_BLOCK_Z_MAX},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, HOST_GRID_X_MAX},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, HOST_GRID_YZ_MAX},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, HOST_GRID_YZ_MAX},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, HOST_SHARED_DEFAULT},
	{CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
	{CU_DEVICE_ATTRIBUTE_WARP_SIZE, HOST_WARP},
	{CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fffffff},
	{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
	{CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
	{CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
	{CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
	{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, HOST_SMS},
	{CU_DEVICE_ATTRIBUTE_INTEGRATED, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
	{CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
	{CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
	{CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
	{CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64},
	{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
	{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, HOST_SM_THREADS},
	{CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
	{CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
	{CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, HOST_SHARED_SM},
	{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
	{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
	{CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, HOST_SHARED_MAX},
	{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, HOST_SM_BLOCKS},
	{CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, HOST_SHARED_RESERVED},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1},
};

word64 host_limits[BACKEND_DEVICE_LIMITS] = {
	[CU_LIMIT_STACK_SIZE] = 1024,
	[CU_LIMIT_PRINTF_FIFO_SIZE] = 8650752,
	[CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608,
	[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = BACKEND_NO_LIMIT,
	[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
	[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128,
	[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0,
	[CU_LIMIT_SHMEM_SIZE... BACKEND_DEVICE_LIMITS - 1] = BACKEND_NO_LIMIT,
};

/* Device memory that a limit takes, bytes for each unit: stacks for all threads at a time. */
static uint64_t unit_bytes(CUlimit limit)
{
	if (limit == CU_LIMIT_STACK_SIZE)
		return HOST_SMS * HOST_SM_THREADS;
	return limit == CU_LIMIT_MALLOC_HEAP_SIZE ? 1 : 0;
}

CUresult host_limit_set(CUlimit limit, uint64_t value, uint64_t *ret_value)
{
	uint64_t bytes;

	if (word_relaxed(&host_limits[limit]) == BACKEND_NO_LIMIT)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (__builtin_mul_overflow(value, unit_bytes(limit), &bytes) || bytes > host_memory_total())
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* Rounded like the driver's. */
	if (limit == CU_LIMIT_STACK_SIZE)
		value = (value + 15) & ~UINT64_C(15);
	word_release(&host_limits[limit], value);
	*ret_value = value;
	return CUDA_SUCCESS;
}

/* Bit i: the group i is made. */
static word64 made;

static_assert(HOST_SM_GRANULE == 1 && HOST_SMS <= 5, "a group is a number below 64");

static bool is_group(uint64_t sms)
{
	return sms && !(sms >> HOST_SMS);
}

CUresult host_sms_make(uint64_t sms)
{
	if (!is_group(sms))
		return CUDA_ERROR_INVALID_VALUE;
	atomic_fetch_or(&made, UINT64_C(1) << sms);
	return CUDA_SUCCESS;
}

uint64_t host_sms_mask(uint64_t sms)
{
	if (!sms)
		return BACKEND_SMS(0, HOST_SMS);
	return is_group(sms) && word_relaxed(&made) >> sms & 1 ? sms : 0;
}

int host_device_count(void)
{
	const char *text = getenv("FRMPS_HOST_DEVICES");
	long count = text ? strtol(text, NULL, 10) : 1;

	return count >= 1 && count <= (long)PLACE_DEVICES ? (int)count : 1;
}

void host_device_uuid(int device, uint8_t ret_uuid[16])
{
	static const uint8_t base[15] = {0x66, 0x72, 0x6d, 0x70, 0x73, 0x00, 0x40, 0x00, 0x80};

	memcpy(ret_uuid, base, sizeof(base));
	ret_uuid[15] = (uint8_t)(device + 1);
}

uint8_t host_device_peer(int device, int other)
{
	return device == other || !host_is_set_to("FRMPS_HOST_PEERS", "none") ? wire_peer(true, 0) : 0;
}

void host_device_read(int device, struct backend_device *ret_device)
{
	struct backend_device out = {
		.name = "frmps host backend (no GPU)",
		.total_bytes = host_memory_total(),
		.priority_least = 0,
		.priority_greatest = HOST_PRIORITY_GREATEST,
		.driver_version = CUDA_ABI_VERSION,
		.sm_granule = HOST_SM_GRANULE,
		.sm_units = HOST_SMS / HOST_SM_GRANULE,
	};

	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		out.attributes[attributes[i].id] = attributes[i].value;
	host_device_uuid(device, out.uuid);
	out.attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] = device;
	for (size_t i = 0; i < BACKEND_DEVICE_LIMITS; i++)
		out.limits[i] = word_relaxed(&host_limits[i]);
	*ret_device = out;
}
