// Memory of the pretended device. A chunk is a memfd; a window is a reserved stretch of address
// space; mapping a chunk puts the memfd's pages there, so a device address is an address.
// Registered host memory needs nothing but to exist; ending a registration stops the device all the
// same, because the driver's does.
//
// Keeper: total size of all chunks against the device's memory. Executor: a list of windows, chunks
// and host ranges, so that wrong calls are refused as a driver refuses them and cannot tear holes
// into this process.

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/host/host.h"

#define DEFAULT_TOTAL (UINT64_C(4) << 30)

struct range {
	uint64_t address, bytes; /* for a chunk of the keeper: its handle and size */
};

struct ranges {
	struct range *at;
	size_t count, capacity;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ranges windows, chunks, sinks, registered, created;
static uint64_t created_bytes, mapped_bytes, last_handle;

/*
 * Ranges; under the lock
 */

static bool ranges_add(struct ranges *ranges, uint64_t address, uint64_t bytes)
{
	if (ranges->count == ranges->capacity) {
		size_t capacity = ranges->capacity ? 2 * ranges->capacity : 16;
		struct range *at = reallocarray(ranges->at, capacity, sizeof(*at));

		if (!at)
			return false;
		ranges->at = at;
		ranges->capacity = capacity;
	}
	ranges->at[ranges->count++] = (struct range){address, bytes};
	return true;
}

/* The range that begins there; NULL if none does. */
static struct range *ranges_find(const struct ranges *ranges, uint64_t address)
{
	for (size_t i = ranges->count; i-- > 0;)
		if (ranges->at[i].address == address)
			return &ranges->at[i];
	return NULL;
}

static struct range *ranges_overlapping(const struct ranges *ranges, uint64_t address, uint64_t bytes)
{
	for (size_t i = 0; i < ranges->count; i++)
		if (address < ranges->at[i].address + ranges->at[i].bytes &&
			ranges->at[i].address < address + bytes)
			return &ranges->at[i];
	return NULL;
}

static void ranges_remove(struct ranges *ranges, struct range *range)
{
	*range = ranges->at[--ranges->count];
}

static void ranges_deinit(struct ranges *ranges)
{
	free(ranges->at);
	*ranges = (struct ranges){0};
}

static bool granular(uint64_t address, uint64_t bytes)
{
	return bytes && address % BACKEND_CHUNK_GRANULE == 0 && bytes % BACKEND_CHUNK_GRANULE == 0 &&
	       address + bytes > address;
}

/*
 * Keeper
 */

/* FRMPS_HOST_MEMORY: bytes, or a number followed by K, M, G or T. */
uint64_t host_memory_total(void)
{
	static const char units[] = "KMGT";
	const char *text = getenv("FRMPS_HOST_MEMORY"), *unit;
	uint64_t value;
	char *end;

	if (!text || !*text)
		return DEFAULT_TOTAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	if (errno || end == text || (*end && (!unit || end[1])))
		return DEFAULT_TOTAL;
	if (unit) {
		unsigned shift = 10u * (unsigned)(unit - units + 1);

		value = value > UINT64_MAX >> shift ? UINT64_MAX : value << shift;
	}
	return value;
}

static int make_memfd(uint64_t bytes)
{
	int fd = memfd_create("frmps-chunk", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		close(fd);
		return -1;
	}
	return fd;
}

CUresult host_chunk_create(uint64_t bytes, uint64_t *ret_handle, int *ret_fd)
{
	CUresult code = CUDA_ERROR_OUT_OF_MEMORY;
	int fd;

	if (!granular(0, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (bytes <= host_memory_total() && created_bytes <= host_memory_total() - bytes) {
		fd = make_memfd(bytes);
		if (fd < 0) {
			code = CUDA_ERROR_OPERATING_SYSTEM;
		} else if (!ranges_add(&created, last_handle + 1, bytes)) {
			close(fd);
		} else {
			created_bytes += bytes;
			*ret_handle = ++last_handle;
			*ret_fd = fd;
			code = CUDA_SUCCESS;
		}
	}
	pthread_mutex_unlock(&lock);
	return code;
}

CUresult host_chunk_release(uint64_t handle)
{
	struct range *range;

	pthread_mutex_lock(&lock);
	range = ranges_find(&created, handle);
	if (range) {
		created_bytes -= range->bytes;
		ranges_remove(&created, range);
	}
	pthread_mutex_unlock(&lock);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * Executor
 */

static bool reserve(uint64_t address, uint64_t bytes, int placement)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | placement;
	void *at = mmap((void *)(uintptr_t)address, bytes, PROT_NONE, flags, -1, 0);

	if (at == MAP_FAILED)
		return false;
	if ((uintptr_t)at == address)
		return true;
	munmap(at, bytes); /* a kernel that takes MAP_FIXED_NOREPLACE for a hint */
	return false;
}

CUresult host_window_reserve(uint64_t address, uint64_t bytes)
{
	CUresult code = CUDA_SUCCESS;

	if (!granular(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (!reserve(address, bytes, MAP_FIXED_NOREPLACE)) {
		code = CUDA_ERROR_MAP_FAILED;
	} else if (!ranges_add(&windows, address, bytes)) {
		munmap((void *)(uintptr_t)address, bytes);
		code = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

CUresult host_window_release(uint64_t address, uint64_t bytes)
{
	CUresult code = CUDA_ERROR_INVALID_VALUE;
	struct range *range;

	pthread_mutex_lock(&lock);
	range = ranges_find(&windows, address);
	if (range && range->bytes == bytes && !ranges_overlapping(&chunks, address, bytes) &&
		!ranges_overlapping(&sinks, address, bytes)) {
		munmap((void *)(uintptr_t)address, bytes);
		ranges_remove(&windows, range);
		code = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* A file that is shorter than its mapping would fault at the end. */
static bool long_enough(int fd, uint64_t bytes)
{
	struct stat status;

	return !fstat(fd, &status) && status.st_size >= 0 && (uint64_t)status.st_size >= bytes;
}

/* True if the bytes are a window's, and nothing is mapped there. */
static bool is_bare_locked(uint64_t address, uint64_t bytes)
{
	struct range *window = ranges_overlapping(&windows, address, bytes);

	return window && address >= window->address && address + bytes <= window->address + window->bytes &&
	       !ranges_overlapping(&chunks, address, bytes) && !ranges_overlapping(&sinks, address, bytes);
}

static CUresult map_locked(uint64_t address, uint64_t bytes, int fd)
{
	if (!is_bare_locked(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (!ranges_add(&chunks, address, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		MAP_FAILED) {
		ranges_remove(&chunks, ranges_find(&chunks, address));
		return CUDA_ERROR_MAP_FAILED;
	}
	mapped_bytes += bytes;
	return CUDA_SUCCESS;
}

CUresult host_chunk_map(uint64_t address, uint64_t bytes, int fd)
{
	CUresult code;

	if (!granular(address, bytes) || !long_enough(fd, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	code = map_locked(address, bytes, fd);
	pthread_mutex_unlock(&lock);
	return code;
}

CUresult host_chunk_unmap(uint64_t address, uint64_t bytes)
{
	CUresult code = CUDA_ERROR_INVALID_VALUE;
	struct range *range;

	pthread_mutex_lock(&lock);
	range = ranges_find(&chunks, address);
	if (range && range->bytes == bytes) {
		code = reserve(address, bytes, MAP_FIXED) ? CUDA_SUCCESS : CUDA_ERROR_UNMAP_FAILED;
		if (!code) {
			mapped_bytes -= bytes;
			ranges_remove(&chunks, range);
		}
	}
	pthread_mutex_unlock(&lock);
	return code;
}

struct backend_sink {
	int fd;
	uint64_t bytes;
};

CUresult host_sink_open(int fd, uint64_t bytes, struct backend_sink **ret_sink)
{
	struct backend_sink *sink;

	if (!granular(0, bytes) || !long_enough(fd, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	sink = malloc(sizeof(*sink));
	if (!sink)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*sink = (struct backend_sink){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .bytes = bytes};
	if (sink->fd < 0) {
		free(sink);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*ret_sink = sink;
	return CUDA_SUCCESS;
}

CUresult host_sink_close(struct backend_sink *sink)
{
	close(sink->fd);
	free(sink);
	return CUDA_SUCCESS;
}

static CUresult map_sink_locked(const struct backend_sink *sink, uint64_t address)
{
	if (!granular(address, sink->bytes) || !is_bare_locked(address, sink->bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (!ranges_add(&sinks, address, sink->bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (mmap((void *)(uintptr_t)address, sink->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		    sink->fd, 0) != MAP_FAILED)
		return CUDA_SUCCESS;
	ranges_remove(&sinks, ranges_find(&sinks, address));
	return CUDA_ERROR_MAP_FAILED;
}

CUresult host_sink_map(struct backend_sink *sink, uint64_t address)
{
	CUresult code;

	pthread_mutex_lock(&lock);
	code = map_sink_locked(sink, address);
	pthread_mutex_unlock(&lock);
	return code;
}

CUresult host_sink_unmap(struct backend_sink *sink, uint64_t address)
{
	CUresult code = CUDA_ERROR_INVALID_VALUE;
	struct range *range;

	pthread_mutex_lock(&lock);
	range = ranges_find(&sinks, address);
	if (range && range->bytes == sink->bytes) {
		code = reserve(address, sink->bytes, MAP_FIXED) ? CUDA_SUCCESS : CUDA_ERROR_UNMAP_FAILED;
		if (!code)
			ranges_remove(&sinks, range);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

static bool is_mapped(uint64_t address, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t begin = address / page * page;

	return bytes && address + bytes > address &&
	       !msync((void *)(uintptr_t)begin, address + bytes - begin, MS_ASYNC);
}

CUresult host_host_register(void *address, uint64_t bytes)
{
	CUresult code = CUDA_SUCCESS;
	uint64_t begin = (uintptr_t)address;

	if (!is_mapped(begin, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (ranges_overlapping(&registered, begin, bytes))
		code = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	else if (!ranges_add(&registered, begin, bytes))
		code = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&lock);
	return code;
}

/* Stops the device, as the driver does. */
CUresult host_host_unregister(void *address)
{
	struct range *range;

	host_faults_wait_for_idle();
	host_pool_stop();
	pthread_mutex_lock(&lock);
	range = ranges_find(&registered, (uintptr_t)address);
	if (range)
		ranges_remove(&registered, range);
	pthread_mutex_unlock(&lock);
	host_pool_go_on();
	return range ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult host_memory_info(uint64_t *ret_free, uint64_t *ret_total)
{
	uint64_t total = host_memory_total();

	pthread_mutex_lock(&lock);
	*ret_free = total > mapped_bytes ? total - mapped_bytes : 0;
	*ret_total = total;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* Mappings stay: a kernel that was left running may still use them. */
void host_memory_deinit(void)
{
	pthread_mutex_lock(&lock);
	ranges_deinit(&windows);
	ranges_deinit(&chunks);
	ranges_deinit(&sinks);
	ranges_deinit(&registered);
	ranges_deinit(&created);
	created_bytes = mapped_bytes = 0;
	pthread_mutex_unlock(&lock);
}

/* Kernels that are C functions do not use tensor maps. */
CUresult host_tensor_map(const struct wire_tensor_map *map, uint64_t ret_words[WIRE_TENSOR_MAP_WORDS])
{
	(void)map;
	(void)ret_words;
	return CUDA_ERROR_NOT_SUPPORTED;
}
