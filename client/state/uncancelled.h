// System calls that, unlike those of the C library, are no cancellation points. A thread that is
// cancelled in the middle of a call never releases its locks, staging memory and handles. So a
// thread that holds any of these makes no cancellation point; where functions of the C library make
// such calls, the thread disables cancellation. Any thread.

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
