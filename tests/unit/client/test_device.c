// Tests of client/state/device.c: what a device can do is told to programs only where the library
// hands it on.

#include "client/state/device.h"
#include "tests/lib/suite.h"

#define ATTRIBUTES CU_DEVICE_ATTRIBUTE_MAX

/* The service's device has every attribute. */
static void take_device(void)
{
	static const uint8_t uuid[16] = {1};
	struct wire_device device;
	static int32_t all[ATTRIBUTES];

	for (int i = 0; i < ATTRIBUTES; i++)
		all[i] = 1;
	device = (struct wire_device){.name = "device",
		.uuid = {.at = uuid, .count = sizeof(uuid)},
		.attributes = {.at = all, .count = ATTRIBUTES}};
	device_begin();
	device_add(0, 1, &device, 0);
	ck_assert_int_eq(device_choose(NULL), CUDA_SUCCESS);
}

static int attribute_of(int attribute)
{
	int value = -1;

	ck_assert_int_eq(device_attribute(device_get(0), attribute, &value), CUDA_SUCCESS);
	return value;
}

/* One group of attributes for each call or promise that the library does not keep. */
TEST(device, attributes_promise_what_is_there)
{
	static const int missing[] = {
		/* pinned memory stands for managed memory; updates of both sides at once may be
		 * lost */
		CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
		CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
		/* kernels do not reach the program's own memory */
		CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
		CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
		CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
		CU_DEVICE_ATTRIBUTE_NUMA_CONFIG,
		/* other devices do not reach the program's memory */
		CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
		CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES,
		CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
		/* calls that are refused */
		CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
		CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
		CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
		CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
		CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
	};

	take_device();
	for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++)
		ck_assert_msg(attribute_of(missing[i]) == 0, "attribute %d is promised", missing[i]);
	ck_assert_int_eq(attribute_of(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 1);
	ck_assert_int_eq(attribute_of(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH), 1);
	ck_assert_int_eq(attribute_of(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED), 1);
}

int main(void)
{
	Suite *suite = suite_create("device");
	TCase *cases = suite_case(suite, "device");

	suite_add(cases, "device");
	return suite_run(suite);
}
