// See registered.h. What a range of RANGE_REGISTERED knows in `block` is the pinned memory behind
// it, NULL for a plain registration.

#include "client/state/registered.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/link/connect.h"
#include "client/state/host.h"
#include "client/state/log.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/submit/wait.h"

#define PAGE UINT64_C(4096)

/* Held from the look at what there is to the range that says what is: of two threads that register
 * the same pages the second one must not exchange those that the first one has. */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* What lies at the addresses of a range. */
struct nature {
	bool mapped;  /* all of it can be read and written */
	bool private; /* and is nobody else's: private, without a file */
};

/* One line of the memory map: "from-to rwxp offset device inode   path". */
static void look_at_line(const char *line, uint64_t *at, uint64_t end, struct nature *nature)
{
	char *rest;
	uint64_t from = strtoull(line, &rest, 16), to, inode;
	const char *modes;

	if (*rest != '-')
		return;
	to = strtoull(rest + 1, &rest, 16);
	if (to <= *at || from >= end || from > *at)
		return;
	modes = rest + 1;
	for (int field = 0; field < 3; ++field) {
		rest = strchr(rest + 1, ' ');
		if (!rest)
			return;
	}
	inode = strtoull(rest, &rest, 10);
	rest += strspn(rest, " ");
	if (modes[0] != 'r')
		return;
	nature->private = nature->private && modes[1] == 'w' && modes[3] == 'p' && inode == 0 &&
			  strncmp(rest, "[stack", 6) != 0;
	*at = to;
}

static CUresult look(uint64_t address, uint64_t bytes, struct nature *ret_nature)
{
	char *maps = connect_read_text("/proc/self/maps");
	uint64_t at = address, end = address + bytes;

	if (!maps)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_nature = (struct nature){.private = true};
	for (const char *line = maps; line && *line && at < end;) {
		look_at_line(line, &at, end, ret_nature);
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	ret_nature->mapped = at >= end;
	free(maps);
	return CUDA_SUCCESS;
}

/* Puts the pages of `from`, which are shared, at `to` as well. Return: whether it could. */
static bool show_at(uint64_t to, uint64_t from, uint64_t bytes)
{
	void *at = (void *)(uintptr_t)to;

	/* An old size of zero asks for a second mapping of the same pages. */
	if (mremap((void *)(uintptr_t)from, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at)
		return false;
	madvise(at, bytes, MADV_DONTFORK);
	return true;
}

/* Gives the range shared pages with the same contents. */
static CUresult share(struct range *range)
{
	void *at = (void *)(uintptr_t)range->address;
	struct range behind = {.bytes = range->bytes, .kind = RANGE_BEHIND};
	CUresult r = host_alloc_range(&behind);

	if (r != CUDA_SUCCESS)
		return r;
	/* A write that came between copy and exchange would be lost: it must not succeed. */
	if (mprotect(at, range->bytes, PROT_READ) == 0) {
		memcpy((void *)(uintptr_t)behind.address, at, range->bytes);
		if (show_at(range->address, behind.address, range->bytes)) {
			range->block = (void *)(uintptr_t)behind.address;
			return CUDA_SUCCESS;
		}
		mprotect(at, range->bytes, PROT_READ | PROT_WRITE);
	}
	host_free_range(behind.address, RANGE_BEHIND);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The reverse: private pages with the same contents. */
static CUresult make_private(const struct range *range)
{
	void *at = (void *)(uintptr_t)range->address;
	void *own = mmap(NULL, range->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (own == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mprotect(at, range->bytes, PROT_READ);
	memcpy(own, at, range->bytes);
	if (mremap(own, range->bytes, range->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at) {
		host_free_range((uint64_t)(uintptr_t)range->block, RANGE_BEHIND);
		return CUDA_SUCCESS;
	}
	mprotect(at, range->bytes, PROT_READ | PROT_WRITE);
	munmap(own, range->bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult check(const struct range *range, unsigned int flags)
{
	struct nature nature;
	CUresult r = look(range->address, range->bytes, &nature);

	if (r != CUDA_SUCCESS)
		return r;
	if (!nature.mapped)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(flags & CU_MEMHOSTREGISTER_DEVICEMAP) ||
		(nature.private && range->address % PAGE == 0 && range->bytes % PAGE == 0))
		return CUDA_SUCCESS;
	client_log(CLIENT_LOG_ERROR,
		"cuMemHostRegister with DEVICEMAP is not supported for anything but whole pages of private "
		"anonymous memory");
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Under the lock. */
static CUresult add(struct range *range)
{
	CUresult r;
	int e;

	if (ranges_touch(range->address, range->bytes))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	r = check(range, range->flags);
	if (r == CUDA_SUCCESS && (range->flags & CU_MEMHOSTREGISTER_DEVICEMAP))
		r = share(range);
	if (r != CUDA_SUCCESS)
		return r;
	e = ranges_insert(range);
	if (e == 0)
		return CUDA_SUCCESS;
	if (range->block)
		make_private(range);
	return e == RANGES_E_EXISTS ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult registered_add(CUcontext context, uint64_t address, uint64_t bytes, unsigned int flags)
{
	struct range range = {.address = address,
		.bytes = bytes,
		.room = bytes,
		.kind = RANGE_REGISTERED,
		.flags = flags,
		.owner = context};
	CUresult r;

	if (address + bytes < address)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&adding);
	r = add(&range);
	pthread_mutex_unlock(&adding);
	return r;
}

CUresult registered_remove(uint64_t address)
{
	struct range range;
	CUresult r;

	if (ranges_take(address, RANGE_REGISTERED, &range) != 0)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	r = wait_all();
	/* After a fault its work may never end; what it still writes goes to the shared pages. */
	if (range.block && process_error() == CUDA_SUCCESS) {
		CUresult undone = make_private(&range);

		r = r == CUDA_SUCCESS ? undone : r;
	}
	return r;
}

void registered_release_context(CUcontext context)
{
	struct range range;

	while (ranges_take_owner(context, RANGE_REGISTERED, &range) == 0)
		if (range.block)
			make_private(&range);
}

uint64_t registered_device_address(const struct range *range)
{
	return (uint64_t)(uintptr_t)range->block;
}
