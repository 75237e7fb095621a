// See file.h.

#include "server/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

CUresult file_read_at(int fd, void *ret_bytes, uint64_t count, uint64_t offset)
{
	uint64_t at = 0;

	while (at < count) {
		ssize_t n = pread(fd, (uint8_t *)ret_bytes + at, count - at, (off_t)(offset + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return CUDA_ERROR_INVALID_IMAGE;
		at += (uint64_t)n;
	}
	return CUDA_SUCCESS;
}

CUresult file_read(int fd, uint64_t bytes, uint8_t **ret_bytes)
{
	struct stat status;
	uint8_t *copy;
	CUresult code;

	if (fd < 0 || !bytes || bytes > FILE_BYTES_MAX || fstat(fd, &status) < 0 || status.st_size < 0 ||
		(uint64_t)status.st_size < bytes)
		return CUDA_ERROR_INVALID_VALUE;
	copy = malloc(bytes);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = file_read_at(fd, copy, bytes, 0);
	if (code)
		free(copy);
	else
		*ret_bytes = copy;
	return code;
}

CUresult file_write(int fd, const void *bytes, uint64_t count, uint64_t offset)
{
	uint64_t at = 0;

	while (at < count) {
		ssize_t n = pwrite(fd, (const uint8_t *)bytes + at, count - at, (off_t)(offset + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		at += (uint64_t)n;
	}
	return CUDA_SUCCESS;
}

int file_huge_folder(void)
{
	int context = fsopen("tmpfs", FSOPEN_CLOEXEC), fd = -1;

	if (context < 0)
		return -1;
	/* The service keeps the budgets. */
	if (!fsconfig(context, FSCONFIG_SET_STRING, "size", "0", 0) &&
		!fsconfig(context, FSCONFIG_SET_STRING, "huge", "within_size", 0) &&
		!fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		fd = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID);
	close(context);
	return fd;
}

int file_in_memory(int folder, const char *name)
{
	return folder < 0 ? memfd_create(name, MFD_CLOEXEC)
			  : openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}
