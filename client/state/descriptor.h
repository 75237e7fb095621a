// Descriptors of the shim's own. Any thread.

#ifndef FRMPS_CLIENT_STATE_DESCRIPTOR_H
#define FRMPS_CLIENT_STATE_DESCRIPTOR_H

#include <fcntl.h>
#include <unistd.h>

/**
 * Moves a descriptor from a standard place that the program has closed: what the program writes
 * there is not for the shim. Return: the descriptor in another place, -1 without one (errno).
 */
static inline int descriptor_above_standard(int fd)
{
	int other;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(fd);
	return other;
}

#endif
