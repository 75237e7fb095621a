// See file.h.

#include "client/state/file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE UINT64_C(4096)

/* The signal that comes with a write's error; 0: none. */
static int signal_of(int error)
{
	return error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
}

/* The write was this thread's, so its signal waits for this thread. */
static void discard(int signal)
{
	static const struct timespec at_once;
	uint64_t one = UINT64_C(1) << (signal - 1);

	syscall(SYS_rt_sigtimedwait, &one, NULL, &at_once, sizeof(one));
}

/* Bare system calls: the C library's are cancellation points, and a sanitizer in the program would
 * stop it over bytes that are only measured. */
ssize_t file_write(int fd, const void *from, size_t bytes, int64_t offset)
{
	sigset_t raised, before, pending;
	int error, signal;
	ssize_t n;

	sigemptyset(&raised);
	sigaddset(&raised, SIGPIPE);
	sigaddset(&raised, SIGXFSZ);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &raised, &before);
	do
		n = offset == FILE_HERE ? syscall(SYS_write, fd, from, bytes)
					: syscall(SYS_pwrite64, fd, from, bytes, offset);
	while (n < 0 && errno == EINTR);
	error = errno;
	signal = n < 0 ? signal_of(error) : 0;
	if (signal && !sigismember(&pending, signal))
		discard(signal);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return n;
}

/* The limit counts for writes, not for stores. As with a write the kernel reads the bytes. */
static ssize_t store(int memfd, const void *from, size_t bytes, uint64_t offset)
{
	uint64_t begin = offset / PAGE * PAGE;
	size_t length = (size_t)(offset - begin) + bytes;
	uint8_t *view = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, (off_t)begin);
	struct iovec source = {(void *)(uintptr_t)from, bytes}, target = {view + (offset - begin), bytes};
	ssize_t n;
	int error;

	if (view == MAP_FAILED)
		return -1;
	n = syscall(SYS_process_vm_writev, getpid(), &source, 1UL, &target, 1UL, 0UL);
	error = errno;
	munmap(view, length);
	errno = error;
	return n;
}

ssize_t file_fill(int memfd, const void *from, size_t bytes, uint64_t offset)
{
	const uint8_t *at = from;
	size_t done = 0;
	bool limited = false;

	while (done < bytes) {
		ssize_t n = limited ? store(memfd, at + done, bytes - done, offset + done)
				    : file_write(memfd, at + done, bytes - done, (int64_t)(offset + done));

		if (n < 0 && errno == EFBIG && !limited)
			limited = true;
		else if (n <= 0)
			break;
		else
			done += (size_t)n;
	}
	return done || !bytes ? (ssize_t)done : -1;
}

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
		ssize_t n = file_write(fd, at + done, bytes - done, (int64_t)(offset + done));

		if (n == 0)
			errno = ENOSPC;
		if (n <= 0)
			return false;
		done += (uint64_t)n;
	}
	return true;
}
