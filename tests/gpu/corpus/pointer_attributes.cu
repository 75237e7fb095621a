// What the runtime and the driver know of addresses: device, pinned, managed, ordinary memory, the
// middle of an allocation.

#include "check.h"

static void show(const char *label, const void *pointer)
{
	cudaPointerAttributes a;
	cudaError_t error = cudaPointerGetAttributes(&a, pointer);

	if (error != cudaSuccess) {
		printf("%s: %s\n", label, name_of(error));
		cudaGetLastError();
		return;
	}
	printf("%s: type %d, device %d, device address %s, host address %s\n", label, (int)a.type,
		a.type == cudaMemoryTypeUnregistered ? 0 : a.device,
		a.devicePointer == nullptr   ? "none"
		: a.devicePointer == pointer ? "the same"
					     : "another",
		a.hostPointer == nullptr   ? "none"
		: a.hostPointer == pointer ? "the same"
					   : "another");
}

static void ask(const char *label, const void *pointer)
{
	CUmemorytype type = (CUmemorytype)0;
	CUdeviceptr start = 0, device = 0, base = 0;
	void *host = nullptr;
	size_t size = 0, range = 0;
	unsigned managed = 9;
	int ordinal = -5;
	unsigned long long id = 0;
	CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_BUFFER_ID};
	void *values[] = {&type, &device, &host, &start, &range, &managed, &ordinal, &id};
	CUdeviceptr address = (CUdeviceptr)pointer;

	CHECK(cuPointerGetAttributes(8, attributes, values, address));
	printf("%s: type %d, starts %zu before, %zu bytes, managed %u, device %d, id %s\n", label, (int)type,
		start ? (size_t)(address - start) : 0, range, managed, ordinal, id ? "yes" : "no");
	CUresult result = cuMemGetAddressRange(&base, &size, address);
	printf("%s: range %s", label, name_of(result));
	if (result == CUDA_SUCCESS)
		printf(", %zu before, %zu bytes", (size_t)(address - base), size);
	printf(", memory type: %s\n",
		name_of(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)));
}

int main()
{
	std::vector<char> ordinary(100000);
	buffer<char> device(100000);
	char *pinned, *managed, *freed;
	cudaStream_t stream;
	char *pooled;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaHostAlloc(&pinned, 100000, cudaHostAllocMapped));
	CHECK(cudaMallocManaged(&managed, 100000));
	CHECK(cudaMallocAsync(&pooled, 100000, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMalloc(&freed, 100000));
	CHECK(cudaFree(freed));
	const struct {
		const char *label;
		const void *pointer;
	} cases[] = {{"device", device}, {"device, middle", device + 777}, {"pinned", pinned},
		{"pinned, middle", pinned + 4096}, {"managed", managed}, {"managed, middle", managed + 9},
		{"pooled", pooled}, {"ordinary", ordinary.data()}, {"nothing", nullptr}};
	for (auto &each : cases)
		show(each.label, each.pointer);
	for (auto &each : cases)
		ask(each.label, each.pointer);
	CHECK(cudaFreeAsync(pooled, stream));
	CHECK(cudaFree(managed));
	CHECK(cudaFreeHost(pinned));
	show("pinned, freed", pinned);
	return 0;
}
