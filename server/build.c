// See build.h.

#include "server/build.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/hash.h"

static uint64_t hash_file(int fd)
{
	struct stat status;
	uint64_t hash;
	void *bytes;

	if (fstat(fd, &status) < 0)
		return 0;
	bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return 0;
	hash = hash_add(HASH_START, bytes, (size_t)status.st_size);
	munmap(bytes, (size_t)status.st_size);
	return hash;
}

uint64_t build_hash(void)
{
	static uint64_t hash;
	int fd;

	if (hash)
		return hash;
	/* The kernel has the file that runs here, also where a later build has its name. */
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	hash = hash_file(fd);
	close(fd);
	return hash;
}
