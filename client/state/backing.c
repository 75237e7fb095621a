// See backing.h. The program may hold a lock of the file (fcntl), which goes with the first of its
// descriptors that this process closes: so a descriptor of the program's is used as it is, not
// copied.

#include "client/state/backing.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "client/link/connect.h"
#include "client/state/maps.h"
#include "client/state/uncancelled.h"
#include "protocol/wire.h"

static bool is_file(int fd, const struct mapping *mapping)
{
	/* Without asking a file system that may be a program. */
	struct statx status;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &status) == 0 &&
	       S_ISREG(status.stx_mode) && status.stx_ino == mapping->inode &&
	       status.stx_dev_major == mapping->device[0] && status.stx_dev_minor == mapping->device[1];
}

static bool is_in_memory(int fd)
{
	struct statfs system;

	return fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

static bool can_be_written(int fd)
{
	return (fcntl(fd, F_GETFL) & (O_ACCMODE | O_PATH)) == O_RDWR;
}

/* Among the descriptors of this process. -1: none */
static int find_own(const struct mapping *mapping)
{
	DIR *directory = opendir("/proc/self/fd");
	const struct dirent *entry;
	int found = -1;

	while (directory && found < 0 && (entry = readdir(directory))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] != '.' && is_file(fd, mapping) && is_in_memory(fd) && can_be_written(fd))
			found = fd;
	}
	if (directory)
		closedir(directory);
	return found;
}

/* Without a look at anything but a file in memory. -1: it is not the file, or may not be opened */
static int open_path(const char *path, const struct mapping *mapping)
{
	char again[64];
	int there = open(path, O_PATH | O_CLOEXEC), fd = -1;

	if (there < 0)
		return -1;
	snprintf(again, sizeof(again), "/proc/self/fd/%d", there);
	if (is_file(there, mapping) && is_in_memory(there))
		fd = open(again, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	uncancelled_close(there);
	return fd;
}

static int open_named(const struct mapping *mapping)
{
	size_t length = strcspn(mapping->path, "\n");
	char *path = length && mapping->path[0] == '/' ? strndup(mapping->path, length) : NULL;
	int fd = path ? open_path(path, mapping) : -1;

	free(path);
	return fd;
}

static int open_mapped(const struct mapping *mapping)
{
	char path[96];

	snprintf(path, sizeof(path), "/proc/self/map_files/%llx-%llx", (unsigned long long)mapping->from,
		(unsigned long long)mapping->to);
	return open_path(path, mapping);
}

/* @mapping: of the first page. Return: true if the pages are all of its file, in the file's
 * order */
static bool is_whole(const char *maps, uint64_t address, uint64_t end, const struct mapping *mapping)
{
	struct mapping next = *mapping;
	uint64_t distance = mapping->from - mapping->offset;

	while (next.inode && next.modes[3] == 's' && maps_is_same_file(&next, mapping) &&
		next.from - next.offset == distance) {
		address = next.to;
		if (address >= end)
			return true;
		if (!maps_find(maps, address, &next))
			return false;
	}
	return false;
}

/* The kernel gives a segment of shmget() its identifier as the inode's number, which another file
 * there may have as well: only what the memory map names is certainly the segment. */
static bool has_own_number(const struct mapping *mapping)
{
	return strncmp(mapping->path, "/SYSV", 5) != 0;
}

/* Pages that were exchanged (pages.h) and become private again at the end of another
 * registration. */
static bool is_services(const struct mapping *mapping)
{
	static const char name[] = "/memfd:" WIRE_HOST_NAME;

	return strncmp(mapping->path, name, sizeof(name) - 1) == 0;
}

static CUresult find(const char *maps, uint64_t address, uint64_t bytes, struct backing *ret_backing)
{
	struct mapping mapping;

	if (!maps_find(maps, address, &mapping) || is_services(&mapping) ||
		!is_whole(maps, address, address + bytes, &mapping))
		return CUDA_ERROR_NOT_SUPPORTED;
	*ret_backing = (struct backing){.fd = -1,
		.offset = mapping.offset + (address - mapping.from),
		.device = makedev(mapping.device[0], mapping.device[1]),
		.inode = mapping.inode};
	if (has_own_number(&mapping))
		ret_backing->fd = find_own(&mapping);
	ret_backing->is_opened = ret_backing->fd < 0;
	if (ret_backing->fd < 0 && has_own_number(&mapping))
		ret_backing->fd = open_named(&mapping);
	if (ret_backing->fd < 0)
		ret_backing->fd = open_mapped(&mapping);
	return ret_backing->fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult backing_find(uint64_t address, uint64_t bytes, struct backing *ret_backing)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	char *maps;
	int cancelable;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	maps = connect_read_text("/proc/self/maps");
	if (maps)
		r = find(maps, address, bytes, ret_backing);
	free(maps);
	pthread_setcancelstate(cancelable, NULL);
	return r;
}

void backing_end(const struct backing *backing)
{
	if (backing->is_opened)
		uncancelled_close(backing->fd);
}

bool backing_is_same(uint64_t address, uint64_t other)
{
	char *maps = connect_read_text("/proc/self/maps");
	struct mapping one, two;
	bool is_same = maps && maps_find(maps, address, &one) && maps_find(maps, other, &two) && one.inode &&
		       maps_is_same_file(&one, &two) &&
		       one.offset + (address - one.from) == two.offset + (other - two.from);

	free(maps);
	return is_same;
}
