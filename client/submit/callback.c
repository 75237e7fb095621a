// The service threads for host functions of a session: one for the program's functions and one for
// the library's own, which a slow function of the program must not delay in other streams. A
// submitting thread pushes a note on `incoming` inside the ring lock, so the note is there before
// the executor can ask for it, and notes of a stream come in order. The service thread moves notes
// to its private list and runs those that are ready. The executor does not care which thread runs a
// function: a stream has at most one ready function.
//
//   submitting thread           executor                        service thread
//   push note, HOST_FUNCTION ►  predecessors done:
//                               host_ready = seq, wake      ►   started = seq, run, done = seq, doorbell
//                               timeline done = seq         ◄
//
// A thread holds no lock while a function of the program runs. Such a function may only make calls
// that do not wait (process_enter_host()): all other functions, and most waits, would wait for it.
// The program's signals may arrive while it runs, as with the driver, except signals that were
// blocked in the thread that submitted the first function: a program that waits for a signal blocks
// it in all other threads.

#include "client/submit/callback.h"

#include <pthread.h>
#include <stdlib.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/link/lost.h"
#include "client/state/helper.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/state/stream_slot.h"
#include "client/state/thread.h"
#include "client/submit/submit.h"
#include "shm/doorbell.h"

#define SLEEP_US UINT64_C(100000)

struct note {
	struct note *next;
	uint32_t slot;
	uint64_t seq;
	CUhostFn function; /* function or callback is set */
	CUstreamCallback callback;
	CUstream handle;
	void *user;
};

static void push(struct callback_service *service, struct note *note)
{
	struct note *top = atomic_load_explicit(&service->incoming, memory_order_relaxed);

	do {
		note->next = top;
	} while (!atomic_compare_exchange_weak_explicit(
		&service->incoming, &top, note, memory_order_release, memory_order_relaxed));
}

/* Appends the incoming notes to the private list, oldest first. */
static void collect(struct callback_service *service, struct note **list)
{
	struct note *taken = atomic_exchange_explicit(&service->incoming, NULL, memory_order_acquire);
	struct note *oldest = NULL;

	while (taken) {
		struct note *next = taken->next;

		taken->next = oldest;
		oldest = taken;
		taken = next;
	}
	while (*list)
		list = &(*list)->next;
	*list = oldest;
}

static void call(const struct callback_service *service, const struct note *note, CUresult status)
{
	sigset_t own;

	/* The function before may have named an object of another session. */
	session_use(service->session);
	pthread_sigmask(SIG_UNBLOCK, &service->welcome, &own);
	if (note->callback)
		note->callback(note->handle, status, note->user);
	else if (status == CUDA_SUCCESS)
		note->function(note->user);
	pthread_sigmask(SIG_SETMASK, &own, NULL);
}

static void run(const struct callback_service *service, struct note *note, CUresult status)
{
	struct session *session = service->session;
	struct shm_host_entry *entry = shm_view_host(&session->connection.view, note->slot);

	word_release(&entry->started, note->seq);
	call(service, note, status);
	/* Pairs with the executor's look at `done` before the stream continues. */
	word_release(&entry->done, note->seq);
	doorbell_ring(session->connection.doorbell_fd, &session->connection.view.server->asleep);
	free(note);
	/* Pairs with callback_is_idle(). */
	atomic_fetch_sub_explicit(&session->callbacks.under_way, 1, memory_order_release);
}

/* Runs all ready functions. Return: true if there was any. */
static bool run_ready(const struct callback_service *service, struct note **list, CUresult status)
{
	bool any = false;

	for (struct note **at = list; *at;) {
		struct note *note = *at;
		word64 *ready = &service->session->connection.view.states[note->slot].host_ready;

		if (status == CUDA_SUCCESS && word_acquire(ready) < note->seq) {
			at = &note->next;
			continue;
		}
		*at = note->next;
		run(service, note, status);
		any = true;
	}
	return any;
}

static void sleep_idle(struct callback_service *service, uint32_t seen)
{
	syscall(SYS_futex, &service->arrivals, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void *serve(void *argument)
{
	struct callback_service *service = argument;
	struct session *session = service->session;
	struct shm_server_header *server = session->connection.view.server;
	struct note *list = NULL;

	thread_self()->is_callbacks = true;
	session_use(session);
	for (;;) {
		uint32_t seen_arrivals = word_acquire(&service->arrivals);
		uint32_t seen_wake = word_acquire(&server->wake);
		CUresult status = process_session_error(session);

		if (status == CUDA_SUCCESS)
			status = lost_verdict(session);
		collect(service, &list);
		if (run_ready(service, &list, status))
			continue;
		if (!list) {
			sleep_idle(service, seen_arrivals);
			continue;
		}
		wake_wait(&server->wake, seen_wake, SLEEP_US);
		if (word_acquire(&server->wake) == seen_wake)
			lost_check(session);
	}
	return NULL;
}

/* The program's handlers must not run in a function of the library. */
static void welcome_unblocked(struct callback_service *service)
{
	sigset_t blocked;

	sigemptyset(&service->welcome);
	if (service == &service->session->callbacks.library)
		return;
	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	for (int signal = 1; signal < NSIG; ++signal)
		if (sigismember(&blocked, signal) == 0)
			sigaddset(&service->welcome, signal);
}

static CUresult ensure_running(struct callback_service *service)
{
	struct callbacks *callbacks = &service->session->callbacks;
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&callbacks->start_lock);
	if (!service->running) {
		welcome_unblocked(service);
		r = helper_start(serve, service);
	}
	service->running = service->running || r == CUDA_SUCCESS;
	pthread_mutex_unlock(&callbacks->start_lock);
	return r;
}

static CUresult submit(
	struct callback_service *service, struct client_stream *stream, const struct note *what)
{
	CUresult r = ensure_running(service);
	struct note *note = r == CUDA_SUCCESS ? malloc(sizeof(*note)) : NULL;
	struct submit submit;

	if (!note)
		return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
	*note = *what;
	r = submit_begin(stream, FRMPS_OP_HOST_FUNCTION, 0, &submit);
	if (r != CUDA_SUCCESS) {
		free(note);
		return r;
	}
	note->slot = stream->slot;
	note->seq = submit.seq;
	atomic_fetch_add_explicit(&service->session->callbacks.under_way, 1, memory_order_relaxed);
	push(service, note);
	submit_commit(&submit);
	atomic_fetch_add_explicit(&service->arrivals, 1, memory_order_release);
	syscall(SYS_futex, &service->arrivals, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	return CUDA_SUCCESS;
}

CUresult callback_host_function(struct client_stream *stream, CUhostFn fn, void *user)
{
	return submit(
		&stream->session->callbacks.program, stream, &(struct note){.function = fn, .user = user});
}

CUresult callback_own_function(struct client_stream *stream, CUhostFn fn, void *user)
{
	return submit(
		&stream->session->callbacks.library, stream, &(struct note){.function = fn, .user = user});
}

CUresult callback_stream(struct client_stream *stream, CUstream handle, CUstreamCallback fn, void *user)
{
	return submit(&stream->session->callbacks.program, stream,
		&(struct note){.callback = fn, .handle = handle, .user = user});
}

bool callback_is_idle(struct session *session)
{
	return word_acquire(&session->callbacks.under_way) == 0;
}

void callback_start(void)
{
	struct session *session = session_self();
	struct callbacks *callbacks = &session->callbacks;

	pthread_mutex_init(&callbacks->start_lock, NULL);
	callbacks->program.session = callbacks->library.session = session;
}
