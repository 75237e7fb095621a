// See poolshare.h. A single lock; no thread maps or unmaps memory under it.

#include "client/state/poolshare.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/state/device.h"
#include "client/state/file.h"
#include "client/state/ipc.h"
#include "client/state/mempool.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/state/uncancelled.h"
#include "client/submit/wait.h"

#define MAGIC "frmpspol"
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

/* A pool's name: the program that made it, a number in that program, and where host memory is. */
struct name {
	char magic[8];
	uint64_t session, number;
	CUmemLocation host; /* of type 0: it is device memory */
};

/* Contents of CUmemPoolPtrExportData. */
struct content {
	struct name name;
	struct ipc_part part;
};
_Static_assert(sizeof(struct content) <= sizeof(CUmemPoolPtrExportData), "the data hold what they say");

struct shared {
	struct shared *next;
	CUmemoryPool handle;
	struct name name;
	bool imported;
};

/* An imported allocation, once for each time. */
struct imported {
	struct imported *next;
	CUdeviceptr address;
	bool freed;
	struct client_stream *stream; /* of the free; NULL: the free is done */
	uint64_t seq;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *pools; /* guarded by lock, as the variables below */
static struct imported *allocations;
static uint64_t latest;
static _Atomic uint32_t freed_count; /* read without the lock as a hint */

/*
 * Pools
 */

static struct shared *find(CUmemoryPool handle)
{
	struct shared *pool = pools;

	while (pool && pool->handle != handle)
		pool = pool->next;
	return pool;
}

static CUresult add(CUmemoryPool handle, const struct name *name, bool imported)
{
	struct shared *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	*pool = (struct shared){.next = pools, .handle = handle, .name = *name, .imported = imported};
	if (!imported)
		pool->name.number = ++latest;
	pools = pool;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult poolshare_add(CUmemoryPool handle)
{
	struct name name = {.magic = MAGIC, .session = session_self()->connection.session};

	if (mempool_is_host(handle))
		mempool_location(handle, &name.host);
	return add(handle, &name, false);
}

void poolshare_forget(CUmemoryPool handle)
{
	struct shared **link = &pools, *pool;

	pthread_mutex_lock(&lock);
	while (*link && (*link)->handle != handle)
		link = &(*link)->next;
	pool = *link;
	if (pool)
		*link = pool->next;
	pthread_mutex_unlock(&lock);
	free(pool);
}

static bool name_of(CUmemoryPool handle, bool imported, struct name *ret_name)
{
	const struct shared *pool;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	if (pool && pool->imported == imported)
		*ret_name = pool->name;
	else
		pool = NULL;
	pthread_mutex_unlock(&lock);
	return pool;
}

bool poolshare_is_shareable(CUmemoryPool handle)
{
	struct name name;

	return name_of(handle, false, &name);
}

bool poolshare_is_imported(CUmemoryPool handle)
{
	struct name name;

	return name_of(handle, true, &name);
}

static int write_file(const struct name *name)
{
	int fd = memfd_create("frmps-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (file_write(fd, name, sizeof(*name), 0) == sizeof(*name) && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
		return fd;
	uncancelled_close(fd);
	return -1;
}

CUresult poolshare_export(CUmemoryPool handle, int *ret_fd)
{
	struct name name;
	int saved = errno;

	if (!name_of(handle, false, &name))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_fd = write_file(&name);
	errno = saved;
	return *ret_fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult make_pool(const struct name *name, CUmemoryPool *ret_handle)
{
	const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_own()};
	struct mempool *pool;
	CUresult r = name->host.type ? mempool_create(&name->host, MEMPOOL_HOST, 0, &pool)
				     : mempool_create(&here, MEMPOOL_DEVICE, 0, &pool);

	if (r != CUDA_SUCCESS)
		return r;
	*ret_handle = mempool_handle(pool);
	r = add(*ret_handle, name, true);
	if (r != CUDA_SUCCESS)
		mempool_destroy(*ret_handle);
	return r;
}

CUresult poolshare_import(int fd, CUmemoryPool *ret_handle)
{
	struct name name;
	int saved = errno;
	/* Only memfds have seals, and a read of a memfd never waits. */
	bool is_ours = fcntl(fd, F_GET_SEALS) == SEALS && pread(fd, &name, sizeof(name), 0) == sizeof(name) &&
		       memcmp(name.magic, MAGIC, sizeof(name.magic)) == 0;

	errno = saved;
	return is_ours ? make_pool(&name, ret_handle) : CUDA_ERROR_INVALID_VALUE;
}

/*
 * Allocations
 */

CUresult poolshare_export_pointer(CUdeviceptr address, CUmemPoolPtrExportData *ret_data)
{
	struct content content = {0};
	struct range range;
	CUresult r;

	if (ranges_lookup(address, &range) != 0 ||
		(range.kind != RANGE_POOL && range.kind != RANGE_POOL_HOST) ||
		!name_of(mempool_handle(range.owner), false, &content.name))
		return CUDA_ERROR_INVALID_VALUE;
	r = ipc_describe(address, range.kind, &content.part);
	if (r != CUDA_SUCCESS)
		return r;
	memset(ret_data, 0, sizeof(*ret_data));
	memcpy(ret_data, &content, sizeof(content));
	return CUDA_SUCCESS;
}

CUresult poolshare_import_pointer(
	CUmemoryPool handle, const CUmemPoolPtrExportData *data, CUdeviceptr *ret_address)
{
	struct imported *allocation;
	struct content content;
	struct name name;
	CUresult r;

	memcpy(&content, data, sizeof(content));
	if (!name_of(handle, true, &name) || memcmp(&name, &content.name, sizeof(name)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	/* The memory is mapped here without a handle, and the service lets nobody release that. */
	if (session_is_own(name.session))
		return CUDA_ERROR_INVALID_VALUE;
	poolshare_settle();
	allocation = calloc(1, sizeof(*allocation));
	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = ipc_open_part(NULL, &content.part, &allocation->address);
	if (r != CUDA_SUCCESS) {
		free(allocation);
		return r;
	}
	*ret_address = allocation->address;
	pthread_mutex_lock(&lock);
	allocation->next = allocations;
	allocations = allocation;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static struct imported *find_imported(CUdeviceptr address)
{
	struct imported *allocation = allocations;

	while (allocation && (allocation->address != address || allocation->freed))
		allocation = allocation->next;
	return allocation;
}

bool poolshare_is(CUdeviceptr address)
{
	const struct imported *allocation;

	pthread_mutex_lock(&lock);
	allocation = find_imported(address);
	pthread_mutex_unlock(&lock);
	return allocation;
}

CUresult poolshare_free(CUdeviceptr address, struct client_stream *stream)
{
	struct imported *allocation;
	uint64_t seq = 0;
	CUresult r = stream ? mempool_point(stream, &seq) : wait_all();

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	allocation = find_imported(address);
	if (allocation) {
		allocation->freed = true;
		allocation->stream = stream;
		allocation->seq = seq;
		freed_count++;
	}
	pthread_mutex_unlock(&lock);
	poolshare_settle();
	return allocation ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Under the lock. */
static struct imported *take_done(void)
{
	struct imported **link = &allocations, *allocation;

	while ((allocation = *link) &&
		!(allocation->freed &&
			(!allocation->stream || wait_is_done(allocation->stream, allocation->seq))))
		link = &allocation->next;
	if (allocation)
		*link = allocation->next;
	return allocation;
}

void poolshare_settle(void)
{
	struct imported *allocation = NULL;

	while (freed_count) {
		pthread_mutex_lock(&lock);
		allocation = take_done();
		freed_count -= allocation ? 1 : 0;
		pthread_mutex_unlock(&lock);
		if (!allocation)
			return;
		ipc_close(NULL, allocation->address);
		free(allocation);
	}
}
