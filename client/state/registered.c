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
struct mapping {
	uint64_t from, to, offset, inode;
	unsigned int device[2];
	const char *modes, *path;
};

static bool read_line(const char *line, struct mapping *ret_mapping)
{
	struct mapping mapping;
	char *rest;

	mapping.from = strtoull(line, &rest, 16);
	if (*rest != '-')
		return false;
	mapping.to = strtoull(rest + 1, &rest, 16);
	mapping.modes = rest + 1;
	rest = strchr(rest + 1, ' ');
	if (!rest)
		return false;
	mapping.offset = strtoull(rest, &rest, 16);
	mapping.device[0] = (unsigned int)strtoul(rest, &rest, 16);
	if (*rest != ':')
		return false;
	mapping.device[1] = (unsigned int)strtoul(rest + 1, &rest, 16);
	mapping.inode = strtoull(rest, &rest, 10);
	mapping.path = rest + strspn(rest, " ");
	*ret_mapping = mapping;
	return true;
}

/* The next line; NULL behind the last. */
static const char *next_line(const char *line)
{
	line = strchr(line, '\n');
	return line && line[1] ? line + 1 : NULL;
}

static void look_at_line(const char *line, uint64_t *at, uint64_t end, struct nature *nature)
{
	struct mapping mapping;

	if (!read_line(line, &mapping) || mapping.to <= *at || mapping.from >= end || mapping.from > *at ||
		mapping.modes[0] != 'r' || mapping.modes[1] != 'w')
		return;
	nature->private = nature->private && mapping.modes[3] == 'p' && mapping.inode == 0 &&
			  strncmp(mapping.path, "[stack", 6) != 0;
	*at = mapping.to;
}

static CUresult look(uint64_t address, uint64_t bytes, struct nature *ret_nature)
{
	char *maps = connect_read_text("/proc/self/maps");
	uint64_t at = address, end = address + bytes;

	if (!maps)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_nature = (struct nature){.private = true};
	for (const char *line = maps; line && at < end; line = next_line(line))
		look_at_line(line, &at, end, ret_nature);
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

/* Private pages at `address` with the contents of `behind`, which is what lies there. */
static CUresult exchange(uint64_t address, uint64_t behind, uint64_t bytes)
{
	void *at = (void *)(uintptr_t)address;
	void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (own == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mprotect(at, bytes, PROT_READ);
	memcpy(own, (void *)(uintptr_t)behind, bytes);
	if (mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at)
		return CUDA_SUCCESS;
	mprotect(at, bytes, PROT_READ | PROT_WRITE);
	munmap(own, bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Where a mapping shows such pages: private ones instead. @home: where they lie in the window */
static CUresult exchange_in(
	const struct mapping *mapping, const struct mapping *home, uint64_t behind, uint64_t bytes)
{
	uint64_t start = home->offset + (behind - home->from), end = start + bytes, offset = mapping->offset;
	uint64_t offset_end = offset + (mapping->to - mapping->from);
	uint64_t first = offset > start ? offset : start, last = offset_end < end ? offset_end : end;

	if (mapping->from == home->from || mapping->inode != home->inode ||
		memcmp(mapping->device, home->device, sizeof(home->device)) != 0 || first >= last)
		return CUDA_SUCCESS;
	return exchange(mapping->from + (first - offset), behind + (first - start), last - first);
}

static bool find_home(const char *maps, uint64_t behind, struct mapping *ret_home)
{
	for (const char *line = maps; line; line = next_line(line))
		if (read_line(line, ret_home) && behind >= ret_home->from && behind < ret_home->to)
			return true;
	return false;
}

/* The reverse: private pages with the same contents, wherever the program has them by now. It may
 * have unmapped or moved them, and have something else at the addresses. */
static CUresult make_private(const struct range *range)
{
	uint64_t behind = (uint64_t)(uintptr_t)range->block;
	char *maps = connect_read_text("/proc/self/maps");
	struct mapping home, mapping;
	CUresult r = maps && find_home(maps, behind, &home) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (const char *line = maps; r == CUDA_SUCCESS && line; line = next_line(line))
		if (read_line(line, &mapping))
			r = exchange_in(&mapping, &home, behind, range->bytes);
	free(maps);
	/* Otherwise it stays pinned: the program has these pages still. */
	if (r == CUDA_SUCCESS)
		host_free_range(behind, RANGE_BEHIND);
	return r;
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
