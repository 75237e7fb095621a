// Kernel faults. A kernel of this backend that does something forbidden raises SIGSEGV, SIGBUS, SIGILL,
// SIGFPE, SIGABRT or SIGTRAP in its thread; the handler writes the last words (which session, which command,
// what) into the page shared with the daemon and lets the signal end the process.
//
// With on_fault = default the process outlasts it, and does what the real driver does in that mode:
//   at once              the sign: backend_sign_fd is counted up
//   for a while          the kernel's thread stands still (the driver writes its dump): FRMPS_HOST_DUMP_MS,
//                        10, and on a busy machine until the sign was heeded, HEED_MS at most; everything
//                        else goes on as if nothing had happened
//   then                 the last words are there; every call returns the code from now on; the kernel is
//                        over, and what is queued behind it, its mark first, goes on as if it had been good
//   after a stack overflow, from the sign on, nothing that is queued begins any more, in any stream
//
// An assertion that fails is SIGTRAP. With on_fault = fast, and with FRMPS_HOST_SILENT_ASSERT=1 in every
// mode, it is the quietest of all faults: the kernel is over, nothing that is queued begins any more, its
// mark first, and only when no kernel runs any more do calls return the code. Otherwise it is a fault like
// the others. With FRMPS_HOST_SILENT=1 and on_fault = fast all faults are like that: nobody says whose.
//
// With FRMPS_HOST_CONTAIN=1 it does in that mode what the driver does whose resets are kept from it
// (cuda/contain.c): the context goes on living. The handler only leads back; then
//   at once              the sign; the kernel is over, and what is queued behind it goes on, its mark first:
//                        long before it is known that the kernel faulted
//   after the dump       contained. Or, for a stack overflow, uncontained: calls return the code from now on.
//                        Or, behind anything but a bad address, uncontained: nothing queued begins any more.
//                        And who asks for something that waits until nothing runs never comes back, from
//                        the fault on: it is on the device while it is looked at (host_faults_wait_for_idle)
//
// With FRMPS_HOST_READS=1 and on_fault = fast it does the same, an assertion that fails included: it is the executor that
// gives the context up at the sign, and leaves the device. The dump is written meanwhile. With FRMPS_HOST_READS=mute
// that never ends, and nothing that is queued begins any more, the mark first.
//
// A kernel that does not end is led back in the same way, by a signal to its thread (host_pool_end()). What it held, a lock
// of the C library perhaps, stays held: as with a fault.
//
// Only async-signal-safe things happen in the handlers: plain and atomic stores, write, nanosleep, sigaction,
// raise, pause, siglongjmp.
//
// Sanitizers have handlers of their own for these signals. Ours are installed later, when the backend opens,
// and they respect that (their option allow_user_segv_handler, on by default). A sanitizer also gives every
// thread an alternate stack and unmaps whatever alternate stack is set when the thread ends; so a worker puts
// back the one it found. The handler is not instrumented: it may run on the little stack of a thread that is
// in any state.

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "server/backend/host/host.h"
#include "shm/order.h"

#define DUMP_MS_DEFAULT 10u
/* Within the tens of milliseconds that a dump of the real driver takes, its sign is heeded: the executor is halted.
 * Ours takes as long as a test wants it to, on a machine that may be busy with others. */
#define HEED_MS	    1000u
#define STACK_BYTES ((size_t)64 << 10)
/* A fault this close below a thread's stack, or in its first pages, is the stack running over. */
#define STACK_SLACK ((uintptr_t)64 << 10)

#define UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

/* What the thread is doing. Read by the handler of the same thread. */
static __thread struct {
	const struct host_launch *volatile launch; /* set last, cleared first */
	const char *volatile kernel;
	sigjmp_buf *back;
	uintptr_t stack_low;
	int32_t code;
	void *handler_stack;
	stack_t old_stack;
} now;

static word32 claimed; /* faults so far */
static word32 stopped, lost_code;
static word32 hushed; /* the code of a silent fault */
static bool graceful, silent, silent_assert;
static unsigned dump_ms;

/* Faults that the driver is at work on. */
static struct {
	pthread_mutex_t lock;
	struct backend_fault faults[BACKEND_FAULTS_MAX];
	uint32_t count;
	bool unsteady, overflowed;
	word32 open; /* the dump of one is written */
	word32 left; /* something of a contained fault is on the device for ever */
} handling = {.lock = PTHREAD_MUTEX_INITIALIZER};
static bool contains, mute;

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

static UNCHECKED void speak(struct last_words *words, int number, const siginfo_t *info)
{
	const struct host_launch *launch = now.launch;
	const char *kernel = now.kernel;
	size_t i = 0;

	words->code = code_of(number, info);
	words->signal = number;
	/* The address is known for faults only; for a signal that was sent it would be the sender. */
	words->address = info->si_code > 0 && number != SIGABRT ? (uint64_t)(uintptr_t)info->si_addr : 0;
	words->session = launch ? launch->session : 0;
	words->seq = launch ? launch->seq : 0;
	words->stream = launch ? launch->slot : 0;
	for (; launch && kernel[i] && i < sizeof(words->kernel) - 1; i++)
		words->kernel[i] = kernel[i];
	words->kernel[i] = '\0';
	/* Pairs with the daemon, which reads after the process is reaped, and with nobody earlier. */
	atomic_thread_fence(memory_order_release);
	*(volatile uint32_t *)&words->magic = LAST_WORDS_MAGIC;
}

static UNCHECKED void stand_still_for(unsigned ms)
{
	struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

/* The time that a dump takes. */
static UNCHECKED void stand_still(void)
{
	stand_still_for(dump_ms);
}

/* Nobody may hear it: there is no daemon, or it has other worries. */
static UNCHECKED void wait_until_heeded(void)
{
	for (unsigned ms = 0; ms < HEED_MS && !word_acquire(&backend_sign_heeded); ms++)
		stand_still_for(1);
}

/* Does not return. */
static UNCHECKED void outlast(uint32_t index, int number, const siginfo_t *info, const ucontext_t *context)
{
	const uint64_t one = 1;
	int32_t code = code_of(number, info);
	uint32_t nobody = 0;

	if (code == CUDA_ERROR_HARDWARE_STACK_ERROR)
		word_release(&stopped, 1);
	/* Where nobody listens the daemon hears of it by the code. */
	if (write(backend_sign_fd, &one, sizeof(one)) == sizeof(one))
		wait_until_heeded();
	stand_still();
	if (backend_last_words && index < LAST_WORDS_MAX)
		speak(&backend_last_words[index], number, info);
	atomic_compare_exchange_strong(&lost_code, &nobody, (uint32_t)code);
	pthread_sigmask(SIG_SETMASK, &context->uc_sigmask, NULL);
	siglongjmp(*now.back, HOST_BACK_FAULT);
}

/* Does not return. */
static UNCHECKED void lead_back(int number, const siginfo_t *info, const ucontext_t *context)
{
	now.code = code_of(number, info);
	pthread_sigmask(SIG_SETMASK, &context->uc_sigmask, NULL);
	siglongjmp(*now.back, HOST_BACK_FAULT);
}

/* Does not return. */
static UNCHECKED void end_silently(int number, const siginfo_t *info, const ucontext_t *context)
{
	word_release(&stopped, 1);
	word_release(&hushed, (uint32_t)code_of(number, info));
	lead_back(number, info, context);
}

static UNCHECKED void handle(int number, siginfo_t *info, void *context)
{
	struct sigaction deadly = {.sa_handler = SIG_DFL};
	uint32_t index;

	if (now.launch && (silent || (number == SIGTRAP && silent_assert)))
		end_silently(number, info, context);
	index = atomic_fetch_add(&claimed, 1);
	if (now.launch && contains)
		lead_back(number, info, context);
	if (graceful && now.launch)
		outlast(index, number, info, context);
	/* Two kernels may fault at once: the first is heard, the others wait for the end it brings. */
	if (index)
		for (;;)
			pause();
	if (backend_last_words)
		speak(backend_last_words, number, info);
	sigaction(number, &deadly, NULL);
	raise(number); /* delivered as soon as this handler returns */
}

/* The kernel may have ended meanwhile, and the thread may be in another one: that is not over. */
static UNCHECKED void end_kernel(int number, siginfo_t *info, void *context)
{
	const struct host_launch *launch = now.launch;

	(void)number;
	(void)info;
	if (!launch || !word_acquire(&launch->over))
		return;
	pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)context)->uc_sigmask, NULL);
	siglongjmp(*now.back, HOST_BACK_ENDED);
}

bool host_is_set_to(const char *name, const char *value)
{
	const char *text = getenv(name);

	return text && !strcmp(text, value);
}

static bool is_set(const char *name)
{
	return host_is_set_to(name, "1");
}

static void read_mode(void)
{
	const char *text = getenv("FRMPS_HOST_DUMP_MS");

	graceful = backend_is_graceful();
	mute = !graceful && host_is_set_to("FRMPS_HOST_READS", "mute");
	contains = graceful ? is_set("FRMPS_HOST_CONTAIN") : mute || is_set("FRMPS_HOST_READS");
	silent = !graceful && is_set("FRMPS_HOST_SILENT");
	silent_assert = (!graceful && !contains) || is_set("FRMPS_HOST_SILENT_ASSERT");
	backend_contains = contains;
	handling.count = 0;
	handling.unsteady = handling.overflowed = false;
	dump_ms = text ? (unsigned)strtoul(text, NULL, 10) : DUMP_MS_DEFAULT;
	word_set(&claimed, 0);
	word_set(&stopped, 0);
	word_set(&lost_code, 0);
	word_set(&hushed, 0);
	word_set(&backend_sign_heeded, 0);
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
	read_mode();
	if (sigaction(HOST_END_SIGNAL, &end, NULL))
		return CUDA_ERROR_OPERATING_SYSTEM;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], &action, NULL))
			return CUDA_ERROR_OPERATING_SYSTEM;
	return CUDA_SUCCESS;
}

/* ---- contained ---- */

/* What a driver says of an assertion that failed, if there is one such fault. Under the lock. */
static void say_assertion(struct backend_fault *faults, uint32_t count)
{
	static char said[256];

	if (count != 1 || faults[0].code != CUDA_ERROR_ASSERT)
		return;
	snprintf(said, sizeof(said), "%s: block: [%u,%u,%u] Assertion failed.\n", faults[0].kernel,
		faults[0].block[0], faults[0].block[1], faults[0].block[2]);
	faults[0].said = said;
}

/* Under the lock. */
static void conclude_round(const struct backend_watch *watch)
{
	uint32_t count = handling.count;

	handling.count = 0;
	if (handling.unsteady) {
		word_release(&stopped, 1);
		watch->uncontained(watch->context, NULL, 0);
	} else if (handling.overflowed) {
		watch->uncontained(watch->context, handling.faults, count);
		word_release(&lost_code, CUDA_ERROR_HARDWARE_STACK_ERROR);
	} else {
		for (uint32_t i = 0; i < count; i++)
			handling.unsteady |= handling.faults[i].code != CUDA_ERROR_ILLEGAL_ADDRESS;
		say_assertion(handling.faults, count);
		word_release(&handling.left, handling.unsteady);
		watch->contained(watch->context, handling.faults, count);
	}
}

void host_faults_wait_for_idle(void)
{
	const struct timespec time = {.tv_nsec = 1000000};

	while (word_acquire(&handling.open) || word_acquire(&handling.left))
		nanosleep(&time, NULL);
}

static void *conclude(void *watch)
{
	stand_still();
	pthread_mutex_lock(&handling.lock);
	conclude_round(watch);
	word_release(&handling.open, 0);
	pthread_mutex_unlock(&handling.lock);
	return NULL;
}

/* The driver's thread. */
static void begin_round(const struct backend_watch *watch)
{
	pthread_attr_t attributes;
	pthread_t thread;

	watch->suspected(watch->context);
	word_release(&handling.open, 1);
	watch->stopped(watch->context);
	if (mute)
		return;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, conclude, (void *)(uintptr_t)watch))
		abort();
	pthread_attr_destroy(&attributes);
}

static void note_fault(const struct host_launch *launch, const struct backend_watch *watch)
{
	struct backend_fault *fault;

	pthread_mutex_lock(&handling.lock);
	if (handling.count == BACKEND_FAULTS_MAX)
		abort();
	fault = &handling.faults[handling.count++];
	*fault = (struct backend_fault){.module = launch->module, .code = (CUresult)now.code};
	snprintf(fault->kernel, sizeof(fault->kernel), "%s", launch->kernel->name);
	handling.overflowed |= now.code == CUDA_ERROR_HARDWARE_STACK_ERROR;
	if (mute || handling.overflowed)
		word_release(&stopped, 1);
	if (handling.count == 1)
		begin_round(watch);
	pthread_mutex_unlock(&handling.lock);
}

/* The driver has a thread of its own for this, which a fence does not stop: it has locks that others need. */
void host_faults_settle(const struct host_launch *launch)
{
	const struct backend_watch *watch = atomic_load_explicit(&backend_watch, memory_order_acquire);
	sigset_t all, before;

	if (!contains || word_acquire(&hushed))
		return; /* the handler has done everything */
	if (!watch)
		abort();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	note_fault(launch, watch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
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

/* A signal handler of the same thread sees stores in program order if the compiler keeps them so. */
void host_faults_begin(const struct host_launch *launch, const char *name, sigjmp_buf *back)
{
	now.kernel = name;
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
