// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Kernel faults. A kernel of this backend that does something forbidden raises SIGSEGV, SIGBUS, SIGILL,
// SIGFPE or SIGABRT in its thread; the handler writes the last words (which session, which command, what)
// into the page shared with the daemon and lets the signal end the process. Only async-signal-safe things
// happen in the handler: plain and atomic stores, sigaction, raise, pause.
//
// Sanitizers have handlers of their own for these signals. Ours are installed later, when the backend opens,
// and they respect that (their option allow_user_segv_handler, on by default). A sanitizer also gives every
// thread an alternate stack and unmaps whatever alternate stack is set when the thread ends; so a worker puts
// back the one it found. The handler is not instrumented: it may run on the little stack of a thread that is
// in any state.

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/backend/host/host.h"
#include "shm/order.h"

#define STACK_BYTES ((size_t)64 << 10)
/* A fault this close below a thread's stack, or in its first pages, is the stack running over. */
#define STACK_SLACK ((uintptr_t)64 << 10)

#define UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

/* What the thread is doing. Read by the handler of the same thread. */
static __thread struct {
	const struct host_launch *volatile launch; /* set last, cleared first */
	const char *volatile kernel;
	uintptr_t stack_low;
	void *handler_stack;
	stack_t old_stack;
} now;

static word32 claimed;

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

static UNCHECKED void handle(int number, siginfo_t *info, void *context)
{
	struct sigaction deadly = {.sa_handler = SIG_DFL};
	uint32_t nobody = 0;

	(void)context;
	/* Two kernels may fault at once: the first is heard, the others wait for the end it brings. */
	if (!atomic_compare_exchange_strong(&claimed, &nobody, 1))
		for (;;)
			pause();
	if (backend_last_words)
		speak(backend_last_words, number, info);
	sigaction(number, &deadly, NULL);
	raise(number); /* delivered as soon as this handler returns */
}

CUresult host_faults_init(void)
{
	static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigfillset(&action.sa_mask);
	word_set(&claimed, 0);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], &action, NULL))
			return CUDA_ERROR_OPERATING_SYSTEM;
	return CUDA_SUCCESS;
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
void host_faults_begin(const struct host_launch *launch, const char *name)
{
	now.kernel = name;
	atomic_signal_fence(memory_order_seq_cst);
	now.launch = launch;
	atomic_signal_fence(memory_order_seq_cst);
}

void host_faults_end(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	now.launch = NULL;
}
