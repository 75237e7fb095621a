// System calls that are no cancellation points, as those of the C library are. A thread that is
// cancelled in the middle of a call leaves its locks, staging memory and handles taken for ever, so
// whoever holds any of these makes none of the others; where those are made by functions of the C
// library, cancellation is put off. Any thread.

#ifndef FRMPS_CLIENT_STATE_UNCANCELLED_H
#define FRMPS_CLIENT_STATE_UNCANCELLED_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static inline void uncancelled_close(int fd)
{
	syscall(SYS_close, fd);
}

/** As write(2). */
static inline ssize_t uncancelled_write(int fd, const void *bytes, size_t count)
{
	return syscall(SYS_write, fd, bytes, count);
}

/** Sleeps for less than a second; may end early. */
static inline void uncancelled_sleep(uint64_t ns)
{
	struct timespec t = {.tv_nsec = (long)ns};

	syscall(SYS_nanosleep, &t, NULL);
}

#endif
