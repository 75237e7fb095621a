// With on_fault = default the service handles exceptions itself where it can (exception.c): then a thread of the driver that
// opens its debugger, or asks for a reset, is kept for ever, and nothing else is done here. What follows is for the rest.
//
// The driver handles an exception as for a debugger (failover/exceptions.c). A thread
// of the driver stops all multiprocessors, reads what it wants to know, writes the dump and lets them go on;
// the warps that faulted are gone then, all others run on as if nothing had happened. Only behind that
// another thread of the driver resets the channel, and with it the context and everybody's work ends. Nothing
// in the hardware asks for that: while the reset is not done, the context goes on (measured, H200, driver
// 580).
//
// Both threads ask the kernel-mode driver by ioctl(). The server's executable has an ioctl() of its own
// (below), which comes before the C library's for everything that is loaded later, and so for the driver.
// Nearly always it is just the system call. In an executor it watches for these controls (control.h):
//
//            any control           stop            let go; the dump names kernels of ours
//   QUIET ─────────────► SUSPECTED ──────► STOPPED ─────────────────────────────────────────► CONTAINED
//                                           │  ▲                                                 │
//                                           │  └────────────────────── stop ─────────────────────┤
//                      let go, otherwise    ▼                                                    │
//                                          LOST ◄────────── stop, if it would be for good ───────┘
//
// From the first CONTAINED on, whoever asks for the reset is kept for ever. A LOST before that keeps nothing
// from the driver.
//
// The driver's threads make no controls between their start and a fault, so the first one is a sign. There is
// an earlier one, by 1.3 to 2.1 ms: they open the library with which they read a fault, and what is launched
// between its first steps and the first control can crash in it (executor/stray.c). So the executable has a
// dlopen() of its own as well. A driver that behaves otherwise shows at most a sign: what follows is not
// recognised, nothing is kept from it, and the executor halts as for any sign (executor/halt.c).
//
// Blocks that run at the fault end; none begins before the multiprocessors are let go. So there is nothing to be
// gained by letting queues run empty before the stop: of 625 commands that two PyTorch programs had on the device
// none ended in the last 10 ms before it (a trap, a far write).
//
// What cannot be contained: a thread that has left the code faults again as soon as it is let go. While the
// reset is held back, a second fault is let go only if it is an access to an address that is not mapped;
// otherwise the driver stops the multiprocessors for good. Which of the two it is cannot be seen at the
// second stop, so it is waited for only behind faults of the harmless kind (behind a trap it has been seen to
// work as well, three times of three, and is not relied upon). A stack that overflows has the exception of an access
// beyond shared memory, and shows by a second stop within 10 ms; where the dump does not say that it is none (dump.h),
// that is waited for.
//
// What others have on the device at such a fault never ends: behind a bad jump the reset cuts it, behind a
// second stop it stays where it is. Keeping the stop and the reset from the driver behind a bad jump helps
// nobody either: no kernel ended in the five seconds after (4 runs of 4). So it is in doubt although the culprit is known, and whoever does not
// vouch for repetition is told. Nor does it acquit anybody of a second fault that all his work had ended by
// the stop: the mark behind a kernel that faults can come 5 ms after the fault, the stop comes 10 to 40 ms
// after.
//
// After a fault that is not a bad address the grid of the culprit stays on the device for ever. Launches,
// copies and new memory of others do not mind, but whoever asks the driver for something that waits for all
// that runs (a first use of a module, an unload, unregistering) never comes back, and has a lock that
// everybody needs. The executor asks for nothing of the kind then: see executor/contain.h.
//
// With on_fault = fast all this is seen and done likewise, but by the stop the context is off the device already
// (channels.c), because the executor has given it up at the first sign. The driver's dump is the same: 43 of 43 named kernel
// and class of the fault as with on_fault = default.
//
// The callbacks run in the driver's thread, which may hold locks of the driver: see backend.h for what they
// may do.

#include "server/backend/cuda/contain.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "server/backend/cuda/channels.h"
#include "server/backend/cuda/debugger.h"
#include "server/backend/cuda/dump.h"
#include "server/backend/cuda/exception.h"
#include "server/backend/cuda/handles.h"
#include "server/backend/cuda/readahead.h"
#include "server/backend/cuda/said.h"
#include "server/log.h"
#include "shm/layout.h"

enum state { QUIET, SUSPECTED, STOPPED, CONTAINED, LOST };

static struct {
	pthread_mutex_t lock;
	enum state state;
	bool keeps;    /* a fault was contained: no reset reaches the driver any more */
	bool unsteady; /* something else than a bad address was contained: the next stop is for good */
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

static word32 armed;
static __thread bool is_ours;
word32 contain_parked;

/* What the driver reads a fault with. It is loaded when there is one, while everybody waits, which took 50 ms
 * from a disk and takes 3 from memory. It does nothing before it is asked. */
#define DEBUGGER "libcudadebugger.so.1"

void contain_arm(void)
{
	if (!exception_is_ours() && !dlopen(DEBUGGER, RTLD_NOW | RTLD_LOCAL))
		log_debug("a first fault takes longer: %s", dlerror());
	fault.state = QUIET;
	fault.keeps = fault.unsteady = false;
	said_listen();
	backend_contains = true;
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

/* ---- what a dump means ---- */

static bool is_bad_address(uint32_t exception)
{
	return exception == 1 || exception == 10 || exception == 14;
}

CUresult contain_code(uint32_t exception)
{
	switch (exception) {
	case 1:
	case 5:
	case 10:
	case 14:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case 2:
	case 3:
	case 9:
		return CUDA_ERROR_HARDWARE_STACK_ERROR;
	case 4:
		return CUDA_ERROR_ILLEGAL_INSTRUCTION;
	case 6:
	case 11:
		return CUDA_ERROR_MISALIGNED_ADDRESS;
	case 7:
		return CUDA_ERROR_INVALID_ADDRESS_SPACE;
	case 8:
		return CUDA_ERROR_INVALID_PC;
	case 12:
		return CUDA_ERROR_ASSERT;
	case 21:
		return CUDA_ERROR_TENSOR_MEMORY_LEAK;
	default:
		return CUDA_ERROR_LAUNCH_FAILED;
	}
}

static int read_file(int fd, struct dump_report *ret_report)
{
	struct stat status;
	void *bytes;
	int error;

	if (fstat(fd, &status) < 0 || status.st_size <= 0)
		return -EBADMSG;
	bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return -errno;
	error = dump_read(bytes, (size_t)status.st_size, ret_report);
	munmap(bytes, (size_t)status.st_size);
	return error;
}

static int open_dump(void)
{
	const char *path = getenv("CUDA_COREDUMP_FILE");

	return path ? open(path, O_RDWR | O_CLOEXEC) : -1;
}

static void take_dump(struct dump_report *ret_report)
{
	int fd = open_dump();

	ret_report->count = 0;
	if (fd < 0)
		return;
	if (read_file(fd, ret_report))
		ret_report->count = 0;
	close(fd);
}

/* So that the next fault, should it leave no dump, is not taken for this one. The file keeps its size: others
 * may have it mapped. */
static void spoil_dump(void)
{
	int fd = open_dump();

	if (fd < 0)
		return;
	if (pwrite(fd, "", 1, 0) != 1)
		fault.unsteady = true; /* then there is no next one */
	close(fd);
}

static void translate(const struct dump_kernel *kernel, struct backend_fault *ret_fault)
{
	*ret_fault = (struct backend_fault){.module = handles_find(kernel->module),
		.code = contain_code(kernel->exception),
		.address = kernel->pc,
		.launch = kernel->grid,
		.may_recur = kernel->may_be_stack,
		.has_block = kernel->has_block};
	memcpy(ret_fault->block, kernel->block, sizeof(ret_fault->block));
	snprintf(ret_fault->kernel, sizeof(ret_fault->kernel), "%s", kernel->name);
}

/* Return: whether all that faulted is known to be ours and will not fault again. */
static bool translate_all(const struct dump_report *dump, struct backend_fault *faults)
{
	bool good = dump->count && !dump->more;

	for (uint32_t i = 0; i < dump->count; i++) {
		translate(&dump->kernels[i], &faults[i]);
		good &= faults[i].module && !dump->kernels[i].strayed;
	}
	return good;
}

/* ---- what the driver does, under the lock ---- */

static void suspect(const struct backend_watch *watch)
{
	if (fault.state != QUIET && fault.state != CONTAINED)
		return;
	fault.state = SUSPECTED;
	watch->suspected(watch->context);
}

static void lose(const struct backend_watch *watch, const struct backend_fault *faults, uint32_t count)
{
	fault.state = LOST;
	watch->uncontained(watch->context, faults, count);
}

static void stop(const struct backend_watch *watch)
{
	if (fault.state == LOST)
		return;
	suspect(watch);
	fault.state = STOPPED;
	watch->stopped(watch->context);
	if (fault.unsteady)
		lose(watch, NULL, 0);
}

static void let_go(const struct backend_watch *watch)
{
	struct backend_fault faults[DUMP_KERNELS_MAX];
	char said[SHM_ASSERTION_BYTES];
	struct dump_report dump;

	if (fault.state != STOPPED)
		return;
	take_dump(&dump);
	if (!translate_all(&dump, faults)) {
		/* With more than these, some may not have been it. */
		lose(watch, faults, dump.more ? 0 : dump.count);
		return;
	}
	fault.state = CONTAINED;
	fault.keeps = true;
	spoil_dump();
	for (uint32_t i = 0; i < dump.count; i++)
		fault.unsteady |= !is_bad_address(dump.kernels[i].exception);
	said_take(said, sizeof(said));
	/* Of several nobody knows whose lines are whose. */
	if (dump.count == 1 && faults[0].code == CUDA_ERROR_ASSERT)
		faults[0].said = said;
	watch->contained(watch->context, faults, dump.count);
}

static _Noreturn void park(void)
{
	atomic_fetch_add(&contain_parked, 1);
	for (;;)
		pause();
}

enum way { EXECUTE, READ_AHEAD, KEEP };

/* What becomes of a control. */
static enum way look(const struct backend_watch *watch, uint32_t command)
{
	enum way way = EXECUTE;

	if (exception_is_ours())
		return command == CONTROL_RESET ? KEEP : EXECUTE;
	pthread_mutex_lock(&fault.lock);
	if (command == CONTROL_STOP)
		stop(watch);
	else if (command == CONTROL_LET_GO)
		let_go(watch);
	if (command == CONTROL_RESET && fault.keeps)
		way = KEEP;
	else if (command == CONTROL_READ && fault.state == STOPPED)
		way = READ_AHEAD;
	/* What goes on behind a contained fault is no sign of another. */
	if (way == EXECUTE && fault.state == QUIET)
		suspect(watch);
	pthread_mutex_unlock(&fault.lock);
	return way;
}

/* A thread of the driver opens a library. Behind a contained fault that may be part of it. */
static void look_at_library(const char *file)
{
	const struct backend_watch *watch = atomic_load_explicit(&backend_watch, memory_order_acquire);
	const char *slash = strrchr(file, '/');

	if (!watch || strcmp(slash ? slash + 1 : file, DEBUGGER) != 0)
		return;
	if (exception_is_ours())
		park();
	pthread_mutex_lock(&fault.lock);
	if (fault.state == QUIET)
		suspect(watch);
	pthread_mutex_unlock(&fault.lock);
}

/* For the whole process. The last call is a jump in every build that optimises: the C library looks at who calls
 * it for where it is to search. */
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
	enum way way;
	int result;

	if (is_ours || _IOC_TYPE(request) != DRIVER_TYPE || !word_acquire(&armed))
		return execute(fd, request, argument);
	watch = atomic_load_explicit(&backend_watch, memory_order_acquire);
	if (!watch)
		return execute(fd, request, argument);
	if (_IOC_NR(request) == DRIVER_CONTROL && argument)
		command = ((const struct control *)argument)->command;
	way = look(watch, command);
	if (way == KEEP)
		park();
	if (way == READ_AHEAD)
		return readahead_read(fd, request, argument, execute);
	result = execute(fd, request, argument);
	/* Behind it: nobody waits for memory to be given back while the device stands still. */
	if (command)
		readahead_forget();
	return result;
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
