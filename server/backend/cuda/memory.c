// Device memory: chunks on the keeper's side, windows and mappings on the executor's, and host
// memory that the device reaches. A mapping is a reference to its chunk, so an imported handle is
// released as soon as it is mapped, and the keeper may release (or die) in any order.
//
// A new chunk is zero: the driver scrubs device memory before any reuse, also between two chunks of
// the same process (H200, driver 580: three times 131 of 139 GiB, and memory of a killed writer,
// read back without a word that is not zero; tests/gpu/backend_check.c repeats the check). Clearing
// the memory once more from here would wait for kernels that fill the device.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "server/backend/cuda/cuda.h"

/* The driver's tables of pages lie in device memory as well. Where programs have taken all of that,
 * mapping what a program already has would fail: an executor keeps this much for the tables. */
#define SPARE_BYTES (2 * BACKEND_CHUNK_GRANULE)

static CUmemGenericAllocationHandle spare; /* the executor's main thread; 0: none */

static CUmemLocation here(void)
{
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda.device};
}

void cuda_spare_keep(void)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here()};

	if (!spare && driver.memory_create(&spare, SPARE_BYTES, &properties, 0))
		spare = 0;
}

bool cuda_spare_give(void)
{
	bool had = spare;

	if (had)
		driver.memory_release(spare);
	spare = 0;
	return had;
}

CUresult cuda_chunk_create(uint64_t bytes, uint64_t *ret_handle, int *ret_fd)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = here(),
	};
	CUmemGenericAllocationHandle handle;
	CUresult code = driver.memory_create(&handle, bytes, &properties, 0);
	int fd = -1;

	if (code)
		return code;
	code = driver.memory_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (code) {
		driver.memory_release(handle);
		return code;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret_handle = handle;
	*ret_fd = fd;
	return CUDA_SUCCESS;
}

CUresult cuda_chunk_release(uint64_t handle)
{
	return driver.memory_release(handle);
}

CUresult cuda_window_reserve(uint64_t address, uint64_t bytes)
{
	return driver_reserve(address, bytes);
}

CUresult cuda_window_release(uint64_t address, uint64_t bytes)
{
	return driver.address_free(address, bytes);
}

static CUresult map(uint64_t address, uint64_t bytes, int fd)
{
	CUmemGenericAllocationHandle handle;
	CUresult code;

	code = driver.memory_import(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	return code ? code : driver_map(address, bytes, handle, cuda.device);
}

CUresult cuda_chunk_map(uint64_t address, uint64_t bytes, int fd)
{
	CUresult code = map(address, bytes, fd);

	return code == CUDA_ERROR_OUT_OF_MEMORY && cuda_spare_give() ? map(address, bytes, fd) : code;
}

CUresult cuda_chunk_unmap(uint64_t address, uint64_t bytes)
{
	CUresult code = driver.memory_unmap(address, bytes);

	if (!code)
		cuda_spare_keep();
	return code;
}

struct backend_sink {
	CUmemGenericAllocationHandle handle;
	uint64_t bytes;
};

CUresult cuda_sink_open(int fd, uint64_t bytes, struct backend_sink **ret_sink)
{
	struct backend_sink *sink = malloc(sizeof(*sink));
	CUresult code;

	if (!sink)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sink->bytes = bytes;
	code = driver.memory_import(
		&sink->handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (code)
		free(sink);
	else
		*ret_sink = sink;
	return code;
}

CUresult cuda_sink_close(struct backend_sink *sink)
{
	CUresult code = driver.memory_release(sink->handle);

	free(sink);
	return code;
}

CUresult cuda_sink_unmap(struct backend_sink *sink, uint64_t address)
{
	return driver.memory_unmap(address, sink->bytes);
}

CUresult cuda_sink_map(struct backend_sink *sink, uint64_t address)
{
	return driver_map_more(address, sink->bytes, sink->handle, cuda.device);
}

CUresult cuda_host_register(void *address, uint64_t bytes)
{
	CUdeviceptr seen = 0;
	CUresult code;

	/* The driver makes missing pages with its locks held, and everybody's launches wait. A
	 * failure here repeats there. */
	madvise(address, bytes, MADV_POPULATE_WRITE);
	code = driver.host_register(
		address, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (code)
		return code;
	code = driver.host_device_pointer(&seen, address, 0);
	if (!code && seen != (CUdeviceptr)(uintptr_t)address)
		code = CUDA_ERROR_NOT_SUPPORTED; /* pointers would mean different things on both sides */
	if (code)
		driver.host_unregister(address);
	return code;
}

CUresult cuda_host_unregister(void *address)
{
	return driver.host_unregister(address);
}

CUresult cuda_memory_info(uint64_t *ret_free, uint64_t *ret_total)
{
	size_t free_bytes, total_bytes;
	CUresult code = driver.memory_info(&free_bytes, &total_bytes);

	if (code)
		return code;
	*ret_free = free_bytes;
	*ret_total = total_bytes;
	return CUDA_SUCCESS;
}

/* The driver writes to memory with this alignment only. */
struct tensor_map {
	_Alignas(128) uint64_t words[WIRE_TENSOR_MAP_WORDS];
};

static CUresult encode(const struct wire_tensor_map *wish, struct tensor_map *map)
{
	void *address = (void *)(uintptr_t)wish->address;
	/* Of rank 1 there are none, and yet the pointer must not be NULL. */
	const uint64_t *strides = wish->strides.count ? wish->strides.at : wish->dims.at;

	switch (wish->kind) {
	case 0:
		return driver.tensor_map_tiled(map, wish->type, wish->rank, address, wish->dims.at, strides,
			wish->box.at, wish->element_strides.at, wish->interleave, wish->swizzle,
			wish->promotion, wish->fill);
	case 1:
		return driver.tensor_map_im2col(map, wish->type, wish->rank, address, wish->dims.at, strides,
			wish->lower.at, wish->upper.at, wish->channels, wish->pixels,
			wish->element_strides.at, wish->interleave, wish->swizzle, wish->promotion,
			wish->fill);
	case 2:
		memcpy(map->words, wish->map.at, sizeof(map->words));
		return driver.tensor_map_address(map, address);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuda_tensor_map(const struct wire_tensor_map *wish, uint64_t ret_words[WIRE_TENSOR_MAP_WORDS])
{
	struct tensor_map map = {{0}};
	CUresult code = encode(wish, &map);

	if (!code)
		memcpy(ret_words, map.words, sizeof(map.words));
	return code;
}
