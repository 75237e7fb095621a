// Kernel faults. A kernel of this backend that does something forbidden raises SIGSEGV, SIGBUS,
// SIGILL, SIGFPE, SIGABRT or SIGTRAP in its thread. The handler leads back out of the kernel, and
// then acts like the device. FRMPS_HOST_FAULTS selects the behaviour:
//
//   named    (default) the fault is contained: the sign at once, the kernel is over, and work
//            queued after it goes on, the completion word first, before the fault of the kernel is
//            known. A while later the backend names the kernel, and nothing of the kernel is left
//   unknown  as behind a driver that the service does not know, or that has failed the trial
//            (backend_is_unproved): the sign at once, and a while later no kernel is named. A
//            request that waits until nothing runs never comes back, from the fault on
//            (host_faults_wait_for_idle)
//   silent   no report: the kernel is over, nothing that is queued begins any more, beginning with
//            the completion word, and only when no kernel runs any more do calls return the code:
//            an assertion beside a kernel without end
//
// FRMPS_HOST_FAULT_MS is that while, milliseconds (10): the time of reading while the device stands
// still. Here everybody else goes on meanwhile. An assertion that fails is SIGTRAP.
//
// A signal that is no kernel's, or where nobody watches (backend_watch), ends the process.
//
// A kernel that does not end is led back in the same way, by a signal to its thread
// (host_pool_end()). Its locks, of the C library perhaps, stay taken: as at a fault.
//
// Only async-signal-safe things happen in the handlers: plain and atomic stores, sigaction, raise,
// siglongjmp.
//
// Sanitizers have handlers of their own for these signals. Ours are installed later, when the
// backend opens, and sanitizers respect that (option allow_user_segv_handler, on by default). A
// sanitizer also gives every thread an alternate stack and unmaps any alternate stack that is set
// when the thread ends; so a worker puts the former stack back. The handler is not instrumented: it
// may run on the small stack of a thread in any state.

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/host/host.h"
#include "shm/order.h"

#define FAULT_MS_DEFAULT 10u
#define STACK_BYTES	 ((size_t)64 << 10)
/* A fault this close below a thread's stack, or in its first pages, is a stack overflow. */
#define STACK_SLACK ((uintptr_t)64 << 10)

#define UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

/* The thread's present work. Read by the handler of the same thread. */
static __thread struct {
	const struct host_launch *volatile launch; /* set last, cleared first */
	sigjmp_buf *back;
	sigset_t mask; /* before the signal that led back */
	uintptr_t stack_low;
	int32_t code;
	void *handler_stack;
	stack_t old_stack;
} now;

static enum { NAMED, UNKNOWN, SILENT } mode;
static unsigned fault_ms;

static word32 stopped, lost_code;
static word32 hushed; /* the code of a silent fault */

/* Faults that are looked at. */
static struct {
	pthread_mutex_t lock;
	struct backend_fault faults[BACKEND_FAULTS_MAX];
	uint32_t count;
	word32 open; /* kernels of the set are on the device */
} handling = {.lock = PTHREAD_MUTEX_INITIALIZER};

static UNCHECKED int32_t code_of(int number, const siginfo_t *info)
{
	uintptr_t address = (uintptr_t)info->si_addr;

	switch (number) {
	case SIGSEGV:
		if (now.stack_low && address + STACK_SLACK >= now.stack_low &&
			address < now.stack_low + STACK_SLACK)
			return CUDA_ERROR_HARDWARE_STACK_ERROR;
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case SIGBUS:
		return info->si_code == BUS_ADRALN ? CUDA_ERROR_MISALIGNED_ADDRESS
						   : CUDA_ERROR_ILLEGAL_ADDRESS;
	case SIGILL:
		return CUDA_ERROR_ILLEGAL_INSTRUCTION;
	case SIGTRAP:
		return CUDA_ERROR_ASSERT;
	default:
		return CUDA_ERROR_LAUNCH_FAILED;
	}
}

/* Signals stay blocked until host_faults_back(). Otherwise the next signal arrives in the middle of
 * this jump, and several of them overflow the stack of handlers. */
static UNCHECKED void lead_back(const ucontext_t *context, int how)
{
	now.mask = context->uc_sigmask;
	siglongjmp(*now.back, how);
}

static UNCHECKED void handle(int number, siginfo_t *info, void *context)
{
	struct sigaction deadly = {.sa_handler = SIG_DFL};

	if (now.launch && atomic_load_explicit(&backend_watch, memory_order_acquire)) {
		now.code = code_of(number, info);
		lead_back(context, HOST_BACK_FAULT);
	}
	sigaction(number, &deadly, NULL);
	raise(number); /* delivered as soon as this handler returns */
}

/* The kernel may have ended meanwhile, and the thread may run another: that kernel is not over. */
static UNCHECKED void end_kernel(int number, siginfo_t *info, void *context)
{
	const struct host_launch *launch = now.launch;

	(void)number;
	(void)info;
	if (launch && word_acquire(&launch->over))
		lead_back(context, HOST_BACK_ENDED);
}

bool host_is_set_to(const char *name, const char *value)
{
	const char *text = getenv(name);

	return text && !strcmp(text, value);
}

/* Return: false for an unknown mode. */
static bool read_mode(void)
{
	static const char *const names[] = {"named", "unknown", "silent"};
	const char *name = getenv("FRMPS_HOST_FAULTS"), *ms = getenv("FRMPS_HOST_FAULT_MS");
	unsigned i = 0;

	while (name && i < sizeof(names) / sizeof(*names) && strcmp(names[i], name))
		i++;
	if (i == sizeof(names) / sizeof(*names))
		return false;
	mode = backend_is_unproved ? UNKNOWN : i;
	fault_ms = ms ? (unsigned)strtoul(ms, NULL, 10) : FAULT_MS_DEFAULT;
	backend_contains = mode != UNKNOWN;
	handling.count = 0;
	word_set(&handling.open, 0);
	word_set(&stopped, 0);
	word_set(&lost_code, 0);
	word_set(&hushed, 0);
	return true;
}

CUresult host_faults_code(void)
{
	return (CUresult)word_acquire(&lost_code);
}

void host_faults_idle(void)
{
	uint32_t nobody = 0, code = word_acquire(&hushed);

	if (code)
		atomic_compare_exchange_strong(&lost_code, &nobody, code);
}

bool host_faults_stopped(void)
{
	return word_acquire(&stopped) != 0;
}

CUresult host_faults_init(void)
{
	static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP};
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct sigaction end = {.sa_sigaction = end_kernel, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigfillset(&action.sa_mask);
	sigfillset(&end.sa_mask);
	if (!read_mode())
		return CUDA_ERROR_INVALID_VALUE;
	if (sigaction(HOST_END_SIGNAL, &end, NULL))
		return CUDA_ERROR_OPERATING_SYSTEM;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], &action, NULL))
			return CUDA_ERROR_OPERATING_SYSTEM;
	return CUDA_SUCCESS;
}

/* ---- consequences ---- */

/* Under the lock. */
static void conclude_round(const struct backend_watch *watch)
{
	uint32_t count = handling.count;

	handling.count = 0;
	if (mode == UNKNOWN) {
		watch->uncontained(watch->context, NULL, 0);
		return;
	}
	watch->contained(watch->context, handling.faults, count);
}

void host_faults_wait_for_idle(void)
{
	const struct timespec time = {.tv_nsec = 1000000};

	while (word_acquire(&handling.open))
		nanosleep(&time, NULL);
}

static void *conclude(void *watch)
{
	const struct timespec time = {
		.tv_sec = fault_ms / 1000, .tv_nsec = (long)(fault_ms % 1000) * 1000000};

	nanosleep(&time, NULL);
	pthread_mutex_lock(&handling.lock);
	conclude_round(watch);
	word_release(&handling.open, mode == UNKNOWN);
	pthread_mutex_unlock(&handling.lock);
	return NULL;
}

/* The thread that handles exceptions. A fence does not stop it. */
static void begin_round(const struct backend_watch *watch)
{
	pthread_attr_t attributes;
	pthread_t thread;

	watch->suspected(watch->context);
	word_release(&handling.open, 1);
	if (mode != UNKNOWN)
		watch->stopped(watch->context);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, conclude, (void *)(uintptr_t)watch))
		abort();
	pthread_attr_destroy(&attributes);
}

/* Under the lock. True if a launch of the same kernel is examined already: the first stands for
 * all. */
static bool is_noted(const struct host_launch *launch)
{
	for (uint32_t i = 0; i < handling.count; i++)
		if (handling.faults[i].module == launch->module &&
			!strncmp(handling.faults[i].kernel, launch->kernel->name,
				sizeof(handling.faults[i].kernel) - 1))
			return true;
	return false;
}

/* Under the lock. */
static void add_fault(const struct host_launch *launch, const struct backend_watch *watch)
{
	struct backend_fault *fault;

	if (handling.count == BACKEND_FAULTS_MAX)
		abort();
	fault = &handling.faults[handling.count++];
	*fault = (struct backend_fault){.module = launch->module, .code = (CUresult)now.code};
	snprintf(fault->kernel, sizeof(fault->kernel), "%s", launch->kernel->name);
	if (handling.count == 1)
		begin_round(watch);
}

static void note_fault(const struct host_launch *launch, const struct backend_watch *watch)
{
	pthread_mutex_lock(&handling.lock);
	if (!is_noted(launch))
		add_fault(launch, watch);
	pthread_mutex_unlock(&handling.lock);
}

void host_faults_settle(const struct host_launch *launch)
{
	const struct backend_watch *watch = atomic_load_explicit(&backend_watch, memory_order_acquire);

	if (mode == SILENT) {
		word_release(&stopped, 1);
		word_release(&hushed, (uint32_t)now.code);
		return;
	}
	if (watch) /* the watch may just have been removed */
		note_fault(launch, watch);
}

static void find_stack(void)
{
	pthread_attr_t attributes;
	void *low;
	size_t bytes;

	if (pthread_getattr_np(pthread_self(), &attributes))
		return;
	if (!pthread_attr_getstack(&attributes, &low, &bytes))
		now.stack_low = (uintptr_t)low;
	pthread_attr_destroy(&attributes);
}

void host_faults_enter_thread(void)
{
	stack_t stack = {.ss_size = STACK_BYTES};

	find_stack();
	stack.ss_sp = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack.ss_sp == MAP_FAILED)
		return; /* only stack overflows go unheard then */
	if (sigaltstack(&stack, &now.old_stack)) {
		munmap(stack.ss_sp, STACK_BYTES);
		return;
	}
	now.handler_stack = stack.ss_sp;
}

void host_faults_leave_thread(void)
{
	if (!now.handler_stack)
		return;
	sigaltstack(&now.old_stack, NULL);
	munmap(now.handler_stack, STACK_BYTES);
	now.handler_stack = NULL;
}

/* A signal handler of the same thread sees stores in program order if the compiler preserves the
 * order. */
void host_faults_begin(const struct host_launch *launch, sigjmp_buf *back)
{
	now.back = back;
	atomic_signal_fence(memory_order_seq_cst);
	now.launch = launch;
	atomic_signal_fence(memory_order_seq_cst);
}

void host_faults_end(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	now.launch = NULL;
}

void host_faults_back(void)
{
	host_faults_end();
	pthread_sigmask(SIG_SETMASK, &now.mask, NULL);
}
