// Properties and attributes of the device that do not change from one run to the next, by the
// runtime and by the driver.

#include "check.h"

int main()
{
	const CUdevice_attribute attributes[] = {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
		CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
		CU_DEVICE_ATTRIBUTE_WARP_SIZE, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
		CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, CU_DEVICE_ATTRIBUTE_MAX_PITCH,
		CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
		CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT,
		CU_DEVICE_ATTRIBUTE_INTEGRATED, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
		CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, CU_DEVICE_ATTRIBUTE_ECC_ENABLED,
		CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
		CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
		CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH,
		CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
		CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
		CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
		CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
		CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE};
	cudaDeviceProp p;
	char name[256], pci[32];
	CUuuid uuid;
	CUdevice device;
	size_t total;
	int value, runtime, driver, found;

	CHECK(cudaGetDeviceProperties(&p, 0));
	printf("%s, sm_%d%d, %zu bytes\n", p.name, p.major, p.minor, p.totalGlobalMem);
	printf("shared %zu %zu %zu, registers %d, warp %d\n", p.sharedMemPerBlock,
		p.sharedMemPerMultiprocessor, p.sharedMemPerBlockOptin, p.regsPerBlock, p.warpSize);
	printf("threads %d, block %d %d %d, grid %d %d %d\n", p.maxThreadsPerBlock, p.maxThreadsDim[0],
		p.maxThreadsDim[1], p.maxThreadsDim[2], p.maxGridSize[0], p.maxGridSize[1], p.maxGridSize[2]);
	printf("processors %d, L2 %d, bus %d bits\n", p.multiProcessorCount, p.l2CacheSize, p.memoryBusWidth);
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDeviceGetName(name, sizeof(name), device));
	CHECK(cuDeviceTotalMem(&total, device));
	CHECK(cuDeviceGetUuid(&uuid, device));
	EXPECT(strcmp(name, p.name) == 0 && total == p.totalGlobalMem &&
		memcmp(&uuid, &p.uuid, sizeof(uuid)) == 0);
	for (CUdevice_attribute attribute : attributes) {
		CHECK(cuDeviceGetAttribute(&value, attribute, device));
		printf("attribute %d: %d\n", (int)attribute, value);
	}
	CHECK(cudaDeviceGetPCIBusId(pci, sizeof(pci), 0));
	CHECK(cudaDeviceGetByPCIBusId(&found, pci));
	printf("found by its address: %d\n", found);
	printf("unknown attribute: %s\n",
		name_of(cuDeviceGetAttribute(&value, (CUdevice_attribute)100000, device)));
	CHECK(cudaRuntimeGetVersion(&runtime));
	CHECK(cudaDriverGetVersion(&driver));
	printf("runtime %d, driver %d\n", runtime, driver);
	memset(&p, 0, sizeof(p));
	p.major = 9;
	CHECK(cudaChooseDevice(&found, &p));
	printf("chosen %d\n", found);
	return 0;
}
