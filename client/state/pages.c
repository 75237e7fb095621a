// See pages.h. An exchange: writers to the old pages stop; the old pages are copied; the new pages
// are mapped over the old ones, and writers continue. In between this thread must not write there
// either, its own stack included: if its stack is there, another thread makes the exchange.

#include "client/state/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/link/connect.h"
#include "client/state/log.h"
#include "client/state/maps.h"
#include "client/state/uncancelled.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
/* More than the frames of an exchange take. */
#define FRAMES_BYTES (UINT64_C(64) << 10)

/* Replaces the pages at `at` by the pages that are mapped at `new`. */
struct exchange {
	uint64_t at, new, bytes;
	bool stay;   /* the new pages also stay mapped at `new` */
	bool beside; /* see pages_share() */
	bool alone;  /* no other thread runs in this process */
};

/* Pages that were shared. */
struct span {
	struct span *next;
	uint64_t at; /* their address then */
	uint64_t behind, bytes;
	bool beside;
	bool paused; /* private during this fork */
};

/* Held, with all signals blocked, over an exchange and over a fork. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct span *spans;	 /* guarded by lock */
static int copied[2] = {-1, -1}; /* over a fork: a pipe on which the child reports that its copies are made */

/*
 * The memory map
 */

static void look_at_line(const char *line, uint64_t *at, uint64_t end, struct pages_nature *nature)
{
	struct mapping mapping;

	if (!maps_read_line(line, &mapping) || mapping.to <= *at || mapping.from >= end || mapping.from > *at)
		return;
	nature->readable = nature->readable && mapping.modes[0] == 'r';
	nature->writable = nature->writable && mapping.modes[1] == 'w';
	nature->shared = nature->shared && nature->readable && nature->writable && mapping.modes[3] == 's';
	nature->anonymous = nature->anonymous && nature->readable && nature->writable &&
			    mapping.modes[3] == 'p' && mapping.inode == 0;
	*at = mapping.to;
}

/* Without /proc the kernel tells by touching the pages, as pinning them does. That says nothing of
 * their kind, so they count as pages of none. */
static void touch(uint64_t address, uint64_t bytes, struct pages_nature *ret_nature)
{
	uint64_t from = address & ~(PAGES_BYTES - 1);
	size_t length = (size_t)(address + bytes - from);

	*ret_nature = (struct pages_nature){
		.readable = madvise((void *)(uintptr_t)from, length, MADV_POPULATE_READ) == 0,
		.writable = madvise((void *)(uintptr_t)from, length, MADV_POPULATE_WRITE) == 0};
}

void pages_look(uint64_t address, uint64_t bytes, struct pages_nature *ret_nature)
{
	char *maps = connect_read_text("/proc/self/maps");
	uint64_t at = address, end = address + bytes;

	if (!maps) {
		touch(address, bytes, ret_nature);
		return;
	}
	*ret_nature = (struct pages_nature){true, true, true, true};
	for (const char *line = maps; line && at < end; line = maps_next_line(line))
		look_at_line(line, &at, end, ret_nature);
	if (at < end)
		*ret_nature = (struct pages_nature){0};
	free(maps);
}

/*
 * Writers
 */

/* @flags: kinds of faults. Return: the descriptor, -1 without one. */
static int open_faults(int flags)
{
	struct uffdio_api api = {.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) == 0)
		return fd;
	uncancelled_close(fd);
	return -1;
}

/* Makes writers wait until the descriptor is closed. Return: true on success. */
static bool stop_writers(int fd, uint64_t at, uint64_t bytes)
{
	struct uffdio_register whole = {.range = {at, bytes}, .mode = UFFDIO_REGISTER_MODE_WP};
	struct uffdio_writeprotect protect = {.range = {at, bytes}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};

	/* Only present pages are protected. */
	return madvise((void *)(uintptr_t)at, bytes, MADV_POPULATE_WRITE) == 0 &&
	       ioctl(fd, UFFDIO_REGISTER, &whole) == 0 && ioctl(fd, UFFDIO_WRITEPROTECT, &protect) == 0;
}

/* Stops writers. Return: true on success. *ret_fd: closing it releases the writers; -1: nothing to
 * close */
static bool hold_writers(const struct exchange *e, int *ret_fd)
{
	int fd = -1;

	*ret_fd = -1;
	if (e->alone)
		return true;
	fd = open_faults(0);
	if (fd < 0 && !e->beside)
		fd = open_faults(UFFD_USER_MODE_ONLY);
	if (fd >= 0 && stop_writers(fd, e->at, e->bytes)) {
		*ret_fd = fd;
		return true;
	}
	/* The close ends the registration as well. */
	if (fd >= 0)
		uncancelled_close(fd);
	return !e->beside && mprotect((void *)(uintptr_t)e->at, e->bytes, PROT_READ) == 0;
}

/*
 * The exchange
 */

/* Copies whole pages, whatever these contain, so a sanitizer must not check the bytes. */
__attribute__((no_sanitize_address)) static void copy(uint64_t *to, const uint64_t *from, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / sizeof(*to); i++) {
		to[i] = from[i];
		/* Otherwise the compiler replaces the loop by a call that sanitizers intercept. */
		if (i % 64 == 0)
			__asm__ volatile("" ::: "memory");
	}
}

static CUresult exchange_here(const struct exchange *e)
{
	void *at = (void *)(uintptr_t)e->at, *new = (void *)(uintptr_t)e->new;
	bool done;
	int fd;

	if (!hold_writers(e, &fd))
		return CUDA_ERROR_NOT_SUPPORTED;
	copy(new, at, e->bytes);
	/* An old size of zero asks for a second mapping of the same pages. */
	done = mremap(new, e->stay ? 0 : e->bytes, e->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
	if (fd >= 0)
		uncancelled_close(fd);
	else if (!done)
		mprotect(at, e->bytes, PROT_READ | PROT_WRITE);
	return done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The result is the thread's return value: the caller's variables may lie in these very pages. */
static void *exchange_there(void *argument)
{
	const struct exchange own = *(const struct exchange *)argument;

	return (void *)(uintptr_t)exchange_here(&own);
}

/* True if the pages hold the stack frames of this exchange, or of its callers. */
static bool is_own_stack(const struct exchange *e)
{
	uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);

	return e->at < here + FRAMES_BYTES && here - FRAMES_BYTES < e->at + e->bytes;
}

/* With all signals blocked: a handler would run on this stack. */
static CUresult exchange(const struct exchange *e)
{
	void *code = (void *)(uintptr_t)CUDA_ERROR_OUT_OF_MEMORY;
	pthread_t thread;
	int cancelable;

	if (!is_own_stack(e))
		return exchange_here(e);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	if (pthread_create(&thread, NULL, exchange_there, (void *)e) == 0)
		pthread_join(thread, &code);
	pthread_setcancelstate(cancelable, NULL);
	return (CUresult)(uintptr_t)code;
}

static CUresult make_private(uint64_t at, uint64_t bytes, bool beside, bool alone)
{
	void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct exchange e = {at, (uint64_t)(uintptr_t)own, bytes, false, beside, alone};
	CUresult r = own == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : exchange(&e);

	if (r != CUDA_SUCCESS && own != MAP_FAILED)
		munmap(own, bytes);
	return r;
}

/* The addresses at which a mapping shows pages of a file. @home: the mapping of these pages in the
 * window */
static bool find_shown(const struct mapping *mapping, const struct mapping *home, uint64_t behind,
	uint64_t bytes, uint64_t *ret_at, uint64_t *ret_bytes)
{
	uint64_t start = home->offset + (behind - home->from), end = start + bytes, offset = mapping->offset;
	uint64_t offset_end = offset + (mapping->to - mapping->from);
	uint64_t first = offset > start ? offset : start, last = offset_end < end ? offset_end : end;

	if (mapping->from == home->from || !maps_is_same_file(mapping, home) || first >= last)
		return false;
	*ret_at = mapping->from + (first - offset);
	*ret_bytes = last - first;
	return true;
}

/* @alone: in a forked child, which must not write to its parent's pages: without memory for a copy
 * the pages are unmapped. */
static CUresult make_span_private(const struct span *span, bool alone)
{
	char *maps = connect_read_text("/proc/self/maps");
	struct mapping home, mapping;
	CUresult r = maps && maps_find(maps, span->behind, &home) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t at, bytes;

	for (const char *line = maps; r == CUDA_SUCCESS && line; line = maps_next_line(line)) {
		if (!maps_read_line(line, &mapping) ||
			!find_shown(&mapping, &home, span->behind, span->bytes, &at, &bytes))
			continue;
		r = make_private(at, bytes, span->beside, alone);
		if (r != CUDA_SUCCESS && alone)
			r = munmap((void *)(uintptr_t)at, bytes) == 0 ? CUDA_SUCCESS : r;
	}
	free(maps);
	return r;
}

/*
 * Under the lock
 */

static void enter(sigset_t *ret_before)
{
	sigset_t all;

	/* A handler may fork. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, ret_before);
	pthread_mutex_lock(&lock);
}

static void leave(const sigset_t *before)
{
	pthread_mutex_unlock(&lock);
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

CUresult pages_share(uint64_t address, uint64_t behind, uint64_t bytes, bool beside)
{
	const struct exchange e = {address, behind, bytes, true, beside, false};
	struct span *span = malloc(sizeof(*span));
	sigset_t before;
	CUresult r;

	if (!span)
		return CUDA_ERROR_OUT_OF_MEMORY;
	enter(&before);
	r = exchange(&e);
	if (r == CUDA_SUCCESS) {
		*span = (struct span){spans, address, behind, bytes, beside, false};
		spans = span;
	}
	leave(&before);
	if (r != CUDA_SUCCESS)
		free(span);
	return r;
}

CUresult pages_make_private(uint64_t behind)
{
	struct span **place = &spans, *span;
	sigset_t before;
	CUresult r;

	enter(&before);
	while ((*place)->behind != behind)
		place = &(*place)->next;
	span = *place;
	r = make_span_private(span, false);
	if (r == CUDA_SUCCESS)
		*place = span->next;
	leave(&before);
	if (r != CUDA_SUCCESS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	free(span);
	return CUDA_SUCCESS;
}

/*
 * Forks
 */

static void close_copied(int end)
{
	if (copied[end] >= 0)
		uncancelled_close(copied[end]);
	copied[end] = -1;
}

/* The end of this thread's stack; 0: unknown. */
static uint64_t stack_end(void)
{
	pthread_attr_t attributes;
	void *at = NULL;
	size_t bytes = 0;

	if (pthread_getattr_np(pthread_self(), &attributes) != 0)
		return 0;
	pthread_attr_getstack(&attributes, &at, &bytes);
	pthread_attr_destroy(&attributes);
	return (uint64_t)(uintptr_t)at + bytes;
}

/* Parent and child are about to run on the same frames, which must not be shared pages. Writes of
 * the device to these pages meanwhile are lost. */
static void pause_own_stack(void)
{
	uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0), end = spans ? stack_end() : 0;

	for (struct span *span = spans; span; span = span->next)
		if (span->at < end && here - FRAMES_BYTES < span->at + span->bytes)
			span->paused = make_span_private(span, false) == CUDA_SUCCESS;
}

static void resume_own_stack(void)
{
	for (struct span *span = spans; span; span = span->next) {
		const struct exchange e = {span->at, span->behind, span->bytes, true, span->beside, false};

		if (span->paused && exchange(&e) != CUDA_SUCCESS)
			client_log(CLIENT_LOG_ERROR,
				"registered memory on a stack has lost its device pointer: out of memory");
		span->paused = false;
	}
}

void pages_fork(void)
{
	pthread_mutex_lock(&lock);
	pause_own_stack();
	if (spans && pipe2(copied, O_CLOEXEC) != 0)
		copied[0] = copied[1] = -1;
}

void pages_forked(void)
{
	char byte;

	/* The end of a child closes the pipe as well. */
	close_copied(1);
	if (copied[0] >= 0)
		while (syscall(SYS_read, copied[0], &byte, 1) < 0 && errno == EINTR)
			continue;
	close_copied(0);
	resume_own_stack();
	pthread_mutex_unlock(&lock);
}

void pages_in_child(void)
{
	for (const struct span *span = spans; span; span = span->next)
		if (!span->paused && make_span_private(span, true) != CUDA_SUCCESS)
			munmap((void *)(uintptr_t)span->at, span->bytes);
	spans = NULL;
	if (copied[1] >= 0)
		uncancelled_write(copied[1], "", 1);
	close_copied(1);
	close_copied(0);
	pthread_mutex_unlock(&lock);
}
