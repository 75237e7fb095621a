// See failing.h. These definitions come before the C library's for the program and all its
// libraries.

#include "tests/lib/failing.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define FRAMES 24

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static struct failing_page *page;
static enum failing_role role;
static pid_t started; /* a fork of a holder is a daemon */
static _Thread_local bool is_inside;

const char *failing_call_name(enum failing_call call)
{
	static const char *const names[] = {
		"malloc", "mmap", "memfd", "send", "clone", "thread", "file", "unsent", "untaken"};

	return names[call];
}

const char *failing_role_name(enum failing_role of)
{
	static const char *const names[] = {
		"nobody", "holder", "daemon", "keeper", "executor", "compiler", "program"};

	return names[of];
}

/*
 * The page
 */

static struct failing_page *map(const char *path, int flags)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0666);
	void *at = MAP_FAILED;

	if (fd >= 0 && (!flags || (fchmod(fd, 0666) == 0 && ftruncate(fd, sizeof(*page)) == 0)))
		at = (void *)syscall(
			SYS_mmap, NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return at == MAP_FAILED ? NULL : at;
}

struct failing_page *failing_make(const char *path)
{
	page = map(path, O_CREAT);
	setenv("FRMPS_FAILING", path, 1);
	return page;
}

void failing_be_program(void)
{
	role = FAILING_PROGRAM;
}

void failing_arm(
	struct failing_page *of, enum failing_role whose, pid_t pid, enum failing_call call, int64_t number)
{
	of->where[0] = of->told[0] = '\0';
	atomic_store(&of->failed_in, 0);
	atomic_store(&of->pid, pid);
	atomic_store(&of->call, call);
	atomic_store(&of->left, number);
	atomic_store(&of->role, whose);
}

bool failing_disarm(struct failing_page *of)
{
	atomic_store(&of->role, FAILING_NOBODY);
	return atomic_load(&of->failed_in);
}

static enum failing_role role_of_arguments(void)
{
	char text[512] = "";
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	close(fd);
	for (ssize_t i = 0; i < length; i += (ssize_t)strlen(text + i) + 1)
		for (int other = FAILING_KEEPER; other <= FAILING_COMPILER; other++)
			if (!strncmp(text + i, "--role=", 7) &&
				!strcmp(text + i + 7, failing_role_name((enum failing_role)other)))
				return (enum failing_role)other;
	return strstr(text, "frmps-server") ? FAILING_HOLDER : FAILING_NOBODY;
}

static __attribute__((constructor)) void look(void)
{
	const char *path = getenv("FRMPS_FAILING");

	started = getpid();
	role = role_of_arguments();
	page = path ? map(path, 0) : NULL;
}

static enum failing_role role_now(void)
{
	return role == FAILING_HOLDER && getpid() != started ? FAILING_DAEMON : role;
}

/*
 * The call that fails
 */

static void note_stack(void)
{
	void *frames[FRAMES];
	size_t used = 0;
	int count;

	is_inside = true;
	count = backtrace(frames, FRAMES);
	for (int i = 2; i < count && used < sizeof(page->where) - 256; i++) {
		Dl_info info = {0};
		const char *file;

		dladdr((char *)frames[i] - 1, &info);
		file = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
		used += (size_t)snprintf(page->where + used, 256, "%.60s+%#lx\n", file ? file + 1 : "?",
			(unsigned long)((char *)frames[i] - 1 - (char *)info.dli_fbase));
	}
	is_inside = false;
}

static bool fails(enum failing_call call)
{
	enum failing_role whose = page ? (enum failing_role)atomic_load(&page->role) : FAILING_NOBODY;
	int pid;

	if (whose == FAILING_NOBODY || atomic_load(&page->call) != call || is_inside || whose != role_now())
		return false;
	pid = atomic_load(&page->pid);
	if ((pid && pid != getpid()) || atomic_fetch_sub(&page->left, 1) != 1)
		return false;
	note_stack();
	atomic_store(&page->failed_in, getpid());
	return true;
}

static void *next(const char *name)
{
	void *found;

	is_inside = true;
	found = dlsym(RTLD_NEXT, name);
	is_inside = false;
	return found;
}

/*
 * Calls
 */

static bool no_memory(void)
{
	if (!fails(FAILING_MALLOC))
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t bytes)
{
	return no_memory() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	return no_memory() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
	return no_memory() ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	return no_memory() ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **ret, size_t alignment, size_t bytes)
{
	*ret = no_memory() ? NULL : __libc_memalign(alignment, bytes);
	return *ret ? 0 : ENOMEM;
}

static void *map_memory(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (fails(FAILING_MMAP)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

/* The C library has two names for it. */
void *failing_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) __asm__(
	"mmap");
void *failing_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) __asm__(
	"mmap64");

void *failing_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return map_memory(address, bytes, protection, flags, fd, offset);
}

void *failing_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return map_memory(address, bytes, protection, flags, fd, offset);
}

int memfd_create(const char *name, unsigned flags)
{
	if (fails(FAILING_MEMFD)) {
		errno = ENFILE;
		return -1;
	}
	return (int)syscall(SYS_memfd_create, name, flags);
}

static void die_instead_of(enum failing_call call)
{
	if (fails(call))
		syscall(SYS_kill, getpid(), SIGKILL);
}

ssize_t recv(int socket, void *bytes, size_t length, int flags)
{
	if (!(flags & MSG_PEEK))
		die_instead_of(FAILING_UNTAKEN);
	return syscall(SYS_recvfrom, socket, bytes, length, flags, NULL, NULL);
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
	die_instead_of(FAILING_UNSENT);
	if (fails(FAILING_SEND)) {
		errno = ENOBUFS;
		return -1;
	}
	return syscall(SYS_sendmsg, socket, message, flags);
}

ssize_t send(int socket, const void *bytes, size_t length, int flags)
{
	if (fails(FAILING_SEND)) {
		errno = ENOBUFS;
		return -1;
	}
	return syscall(SYS_sendto, socket, bytes, length, flags, NULL, 0);
}

static bool no_file(void)
{
	if (!fails(FAILING_FILE))
		return false;
	errno = EMFILE;
	return true;
}

int eventfd(unsigned count, int flags)
{
	return no_file() ? -1 : (int)syscall(SYS_eventfd2, count, flags);
}

int socketpair(int family, int type, int protocol, int pair[2])
{
	return no_file() ? -1 : (int)syscall(SYS_socketpair, family, type, protocol, pair);
}

int socket(int family, int type, int protocol)
{
	return no_file() ? -1 : (int)syscall(SYS_socket, family, type, protocol);
}

int accept4(int listener, __SOCKADDR_ARG address, socklen_t *length, int flags)
{
	return no_file() ? -1 : (int)syscall(SYS_accept4, listener, address, length, flags);
}

int pipe2(int pair[2], int flags)
{
	return no_file() ? -1 : (int)syscall(SYS_pipe2, pair, flags);
}

int epoll_create1(int flags)
{
	return no_file() ? -1 : (int)syscall(SYS_epoll_create1, flags);
}

int timerfd_create(int clock, int flags)
{
	return no_file() ? -1 : (int)syscall(SYS_timerfd_create, clock, flags);
}

int dup(int fd)
{
	return no_file() ? -1 : (int)syscall(SYS_dup, fd);
}

static int open_file(const char *path, int flags, mode_t mode)
{
	return no_file() ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* These have two names as well. */
int failing_open(const char *path, int flags, mode_t mode) __asm__("open");
int failing_open64(const char *path, int flags, mode_t mode) __asm__("open64");

int failing_open(const char *path, int flags, mode_t mode)
{
	return open_file(path, flags, mode);
}

int failing_open64(const char *path, int flags, mode_t mode)
{
	return open_file(path, flags, mode);
}

static bool no_process(void)
{
	if (!fails(FAILING_CLONE))
		return false;
	errno = EAGAIN;
	return true;
}

pid_t fork(void)
{
	static pid_t (*real)(void);

	if (no_process())
		return -1;
	real = real ? real : (pid_t(*)(void))next("fork");
	return real();
}

/* The service makes processes with this, and asks for what the C library has no function for. */
long syscall(long number, ...)
{
	register long r10 __asm__("r10");
	register long r8 __asm__("r8");
	register long r9 __asm__("r9");
	long a[6], result;
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if ((number == SYS_clone && no_process()) || (number == SYS_pidfd_open && no_file()))
		return -1;
	r10 = a[3];
	r8 = a[4];
	r9 = a[5];
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

int pthread_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (fails(FAILING_THREAD))
		return EAGAIN;
	real = real ? real
		    : (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))next(
			      "pthread_create");
	return real(ret, attributes, run, context);
}
