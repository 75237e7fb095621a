// See file.h.

#include "server/file.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

CUresult file_read(int fd, uint64_t bytes, uint8_t **ret_bytes)
{
	struct stat status;
	uint64_t at = 0;
	uint8_t *copy;

	if (fd < 0 || !bytes || bytes > FILE_BYTES_MAX || fstat(fd, &status) < 0 || status.st_size < 0 ||
		(uint64_t)status.st_size < bytes)
		return CUDA_ERROR_INVALID_VALUE;
	copy = malloc(bytes);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (at < bytes) {
		ssize_t n = pread(fd, copy + at, bytes - at, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			free(copy);
			return CUDA_ERROR_INVALID_IMAGE;
		}
		at += (uint64_t)n;
	}
	*ret_bytes = copy;
	return CUDA_SUCCESS;
}

CUresult file_write(int fd, const void *bytes, uint64_t count)
{
	uint64_t at = 0;

	while (at < count) {
		ssize_t n = pwrite(fd, (const uint8_t *)bytes + at, count - at, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		at += (uint64_t)n;
	}
	return CUDA_SUCCESS;
}
