// See file.h.

#include "client/state/file.h"

#include <errno.h>
#include <unistd.h>

bool file_read_all(int fd, void *to, uint64_t bytes)
{
	uint8_t *at = to;
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t n = pread(fd, at + done, bytes - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = 0;
		if (n <= 0)
			return false;
		done += (uint64_t)n;
	}
	return true;
}

bool file_write_all(int fd, const void *from, uint64_t bytes, uint64_t offset)
{
	const uint8_t *at = from;
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t n = pwrite(fd, at + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = ENOSPC;
		if (n <= 0)
			return false;
		done += (uint64_t)n;
	}
	return true;
}
