// Entry points: the driver's log of errors, kept for the program (state/logbook.h).

#include "client/state/logbook.h"

#include <fcntl.h>
#include <unistd.h>

#include "client/entry/entry.h"

CUDA_EXPORT CUresult cuLogsRegisterCallback(CUlogsCallback callback, void *data, CUlogsCallbackHandle *handle)
{
	return callback ? logbook_register(callback, data, handle) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle)
{
	return logbook_unregister(handle);
}

CUDA_EXPORT CUresult cuLogsCurrent(CUlogIterator *iterator, unsigned int flags)
{
	(void)flags;
	if (!iterator)
		return CUDA_ERROR_INVALID_VALUE;
	*iterator = logbook_next();
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuLogsDumpToMemory(
	CUlogIterator *iterator, char *buffer, size_t *size, unsigned int flags)
{
	CUlogIterator next;
	size_t length;

	if (!buffer || !size || flags)
		return CUDA_ERROR_INVALID_VALUE;
	length = logbook_write(iterator ? *iterator : 0, buffer, *size, &next);
	*size = length == SIZE_MAX ? 0 : length;
	if (length == SIZE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (iterator)
		*iterator = next;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuLogsDumpToFile(CUlogIterator *iterator, const char *path, unsigned int flags)
{
	char text[LOGBOOK_BYTES];
	CUlogIterator next;
	size_t length;
	ssize_t written;
	int fd;

	if (!path || flags)
		return CUDA_ERROR_INVALID_VALUE;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	length = logbook_write(iterator ? *iterator : 0, text, sizeof(text), &next);
	written = write(fd, text, length);
	if (close(fd) < 0 || written != (ssize_t)length)
		return CUDA_ERROR_INVALID_VALUE;
	if (iterator)
		*iterator = next;
	return CUDA_SUCCESS;
}
