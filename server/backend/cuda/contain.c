// The driver handles an exception as for a debugger, because its environment demands so
// (worker/exceptions.c). One of its threads opens the library for reading a fault, stops all
// multiprocessors, writes a dump and lets them go on. Only afterwards another thread resets the
// channel, and with that the context and everybody's work ends. Nothing in the hardware requires
// the reset: until then, the context goes on.
//
// Here the service handles exceptions itself (exception.c). So each of these threads is blocked for
// ever: the first where it opens its library, the second where it asks for the reset.
//
// Both ask the kernel-mode driver by ioctl(). The server's executable has an ioctl() and a dlopen()
// of its own (below), which come before the C library's for everything that is loaded later, and so
// for the driver. Nearly always they just call those of the C library.
//
// If the service cannot handle exceptions, because the driver or the device is unknown
// (exception_open()), nothing of the driver is blocked. Its threads make no controls and open no
// library between their start and a fault, so the first of either is the sign of a fault, and no
// fault is contained: the executor is halted and leaves the device.
//
// The callbacks run in the driver's thread, which may hold locks of the driver: see backend.h for
// their rules.

#include "server/backend/cuda/contain.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "server/backend/cuda/channels.h"
#include "server/backend/cuda/crash.h"
#include "server/backend/cuda/debugger.h"
#include "server/backend/cuda/exception.h"

/* The driver's library for reading a fault. */
#define DEBUGGER "libcudadebugger.so.1"

static word32 armed;
static word32 suspected; /* a sign was seen, and reported */
static __thread bool is_ours;
word32 contain_parked;

void contain_arm(void)
{
	word_set(&suspected, 0);
	crash_watch();
	backend_contains = exception_is_ours();
	word_release(&armed, 1);
}

void contain_disarm(void)
{
	word_release(&armed, 0);
}

void contain_enter_thread(void)
{
	is_ours = true;
}

static const struct backend_watch *find_watch(void)
{
	return atomic_load_explicit(&backend_watch, memory_order_acquire);
}

static _Noreturn void park(void)
{
	atomic_fetch_add(&contain_parked, 1);
	for (;;)
		pause();
}

/* The driver is at work on a fault, and nobody will report the culprit. */
static void give_up(const struct backend_watch *watch)
{
	if (atomic_exchange(&suspected, 1))
		return;
	watch->suspected(watch->context);
	watch->uncontained(watch->context, NULL, 0);
}

/* A thread of the driver opens a library. */
static void look_at_library(const char *file)
{
	const struct backend_watch *watch = find_watch();
	const char *slash = strrchr(file, '/');

	if (!watch || strcmp(slash ? slash + 1 : file, DEBUGGER) != 0)
		return;
	if (exception_is_ours())
		park();
	give_up(watch);
}

/* For the whole process. The last call is a jump in every build that optimises: the C library
 * inspects the caller's address to choose the search path. */
void *dlopen(const char *file, int mode)
{
	typedef void *open_function(const char *, int);
	open_function *open_library = (open_function *)dlsym(RTLD_NEXT, "dlopen");

	if (!open_library)
		abort();
	if (file && !is_ours && word_acquire(&armed))
		look_at_library(file);
	return open_library(file, mode);
}

int contain_ioctl(int fd, unsigned long request, void *argument, control_execute_fn *execute)
{
	const struct backend_watch *watch;
	uint32_t command = 0;

	if (is_ours || _IOC_TYPE(request) != DRIVER_TYPE || !word_acquire(&armed))
		return execute(fd, request, argument);
	watch = find_watch();
	if (_IOC_NR(request) == DRIVER_CONTROL && argument)
		command = ((const struct control *)argument)->command;
	if (watch && !exception_is_ours())
		give_up(watch);
	else if (watch && command == CONTROL_RESET)
		park();
	return execute(fd, request, argument);
}

/* For the whole process, the C library's own use excepted. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	void *argument;
	int result;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	result = contain_ioctl(fd, request, argument, control_execute);
	if (result == 0) {
		channels_note(fd, request, argument);
		debugger_note(fd, request, argument);
	}
	return result;
}
