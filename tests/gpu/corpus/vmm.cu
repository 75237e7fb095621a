// Virtual memory management: a segment that grows and shrinks, one memory at two addresses, what
// queries answer, wrong calls, export and import in one process. Prints what must be the same
// natively and through the service.

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RUNTIME(call)                                                                                        \
	do {                                                                                                 \
		cudaError_t e_ = (call);                                                                     \
		if (e_ != cudaSuccess) {                                                                     \
			printf("%s: %s\n", #call, cudaGetErrorName(e_));                                     \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)
#define DRIVER(call)                                                                                         \
	do {                                                                                                 \
		CUresult e_ = (call);                                                                        \
		if (e_ != CUDA_SUCCESS) {                                                                    \
			printf("%s: %d\n", #call, (int)e_);                                                  \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

/* Programs of the corpus are linked with the runtime alone. */
template <typename F> static F *find(const char *name)
{
	cudaDriverEntryPointQueryResult status;
	void *function = nullptr;

	RUNTIME(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &status));
	if (!function) {
		printf("%s: not found\n", name);
		exit(1);
	}
	return (F *)function;
}
#define FIND(name) static auto *p_##name = find<decltype(name)>(#name)

__global__ void fill(uint32_t *out, uint32_t value, uint64_t count)
{
	for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		out[i] = value + (uint32_t)i;
}

static uint64_t sum(CUdeviceptr at, size_t bytes)
{
	uint32_t *host = (uint32_t *)malloc(bytes);
	uint64_t total = 0;

	RUNTIME(cudaMemcpy(host, (void *)at, bytes, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < bytes / 4; i++)
		total += host[i];
	free(host);
	return total;
}

int main()
{
	RUNTIME(cudaFree(nullptr));
	FIND(cuMemGetAllocationGranularity);
	FIND(cuMemAddressReserve);
	FIND(cuMemAddressFree);
	FIND(cuMemCreate);
	FIND(cuMemRelease);
	FIND(cuMemMap);
	FIND(cuMemUnmap);
	FIND(cuMemSetAccess);
	FIND(cuMemGetAccess);
	FIND(cuMemRetainAllocationHandle);
	FIND(cuMemGetAllocationPropertiesFromHandle);
	FIND(cuMemExportToShareableHandle);
	FIND(cuMemImportFromShareableHandle);

	CUmemAllocationProp prop = {};
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUmemAccessDesc access = {};
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	size_t grain;
	DRIVER(p_cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	printf("granularity %zu\n", grain);

	/* Far more addresses than memory. */
	cudaDeviceProp device;
	RUNTIME(cudaGetDeviceProperties(&device, 0));
	size_t room = (device.totalGlobalMem + device.totalGlobalMem / 8) / grain * grain;
	CUdeviceptr segment, other;
	DRIVER(p_cuMemAddressReserve(&segment, room, 0, 0, 0));
	DRIVER(p_cuMemAddressReserve(&other, room, 0, 0, 0));
	printf("aligned %d %d\n", (int)(segment % grain), (int)(other % grain));
	CUmemGenericAllocationHandle handle, again;
	for (int i = 0; i < 8; i++) {
		DRIVER(p_cuMemCreate(&handle, grain, &prop, 0));
		DRIVER(p_cuMemMap(segment + i * grain, grain, 0, handle, 0));
		DRIVER(p_cuMemSetAccess(segment + i * grain, grain, &access, 1));
		DRIVER(p_cuMemRelease(handle));
	}
	fill<<<64, 256>>>((uint32_t *)segment, 3, 8 * grain / 4);
	RUNTIME(cudaGetLastError());
	printf("segment %llu\n", (unsigned long long)sum(segment, 8 * grain));
	RUNTIME(cudaMemcpy((void *)(segment + 4 * grain + 256), (void *)(segment + 256), 3 * grain,
		cudaMemcpyDeviceToDevice));
	printf("copied %llu\n", (unsigned long long)sum(segment, 8 * grain));
	for (int i = 0; i < 8; i += 2)
		DRIVER(p_cuMemUnmap(segment + i * grain, grain));
	printf("second piece %llu\n", (unsigned long long)sum(segment + grain, grain));

	/* One memory, two addresses, two handles. */
	DRIVER(p_cuMemCreate(&handle, 2 * grain, &prop, 0));
	DRIVER(p_cuMemMap(other, 2 * grain, 0, handle, 0));
	DRIVER(p_cuMemMap(other + 4 * grain, 2 * grain, 0, handle, 0));
	DRIVER(p_cuMemSetAccess(other, 2 * grain, &access, 1));
	DRIVER(p_cuMemSetAccess(other + 4 * grain, 2 * grain, &access, 1));
	fill<<<64, 256>>>((uint32_t *)other, 9, 2 * grain / 4);
	RUNTIME(cudaGetLastError());
	printf("alias %llu\n", (unsigned long long)sum(other + 4 * grain, 2 * grain));
	DRIVER(p_cuMemRetainAllocationHandle(&again, (void *)(other + 4 * grain)));
	CUmemAllocationProp seen;
	DRIVER(p_cuMemGetAllocationPropertiesFromHandle(&seen, again));
	printf("properties %d %d %d %d\n", (int)seen.type, (int)seen.requestedHandleTypes, (int)seen.location.type,
		seen.location.id);
	DRIVER(p_cuMemRelease(again));
	unsigned long long flags;
	DRIVER(p_cuMemGetAccess(&flags, &access.location, other));
	printf("access %llu\n", flags);

	/* Exported and imported here. */
	int fd = -1;
	DRIVER(p_cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	DRIVER(p_cuMemImportFromShareableHandle(
		&again, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	DRIVER(p_cuMemMap(other + 8 * grain, 2 * grain, 0, again, 0));
	DRIVER(p_cuMemSetAccess(other + 8 * grain, 2 * grain, &access, 1));
	printf("imported %llu\n", (unsigned long long)sum(other + 8 * grain, 2 * grain));

	/* Wrong calls. */
	CUdeviceptr nowhere;
	printf("no size %d\n", (int)p_cuMemAddressReserve(&nowhere, 0, 0, 0, 0));
	printf("odd size %d\n", (int)p_cuMemCreate(&again, grain + 1, &prop, 0));
	printf("over another %d\n", (int)p_cuMemMap(other, 2 * grain, 0, handle, 0));
	printf("not mapped %d\n", (int)p_cuMemUnmap(other + 20 * grain, grain));

	DRIVER(p_cuMemUnmap(other, 2 * grain));
	DRIVER(p_cuMemUnmap(other + 4 * grain, 2 * grain));
	DRIVER(p_cuMemUnmap(other + 8 * grain, 2 * grain));
	DRIVER(p_cuMemRelease(handle));
	for (int i = 1; i < 8; i += 2)
		DRIVER(p_cuMemUnmap(segment + i * grain, grain));
	DRIVER(p_cuMemAddressFree(segment, room));
	DRIVER(p_cuMemAddressFree(other, room));
	printf("done\n");
	return 0;
}
