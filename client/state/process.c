// Start and end of the library in a process. Every entry point runs the two checks on the program's
// threads, so these cost a load or two. Before cuInit nothing exists: no thread, no connection, no
// fork handler.
//
//   NONE ──cuInit──► STARTING ──► READY ──exit()──► ENDED
//     ▲                 │ failed            any from STARTING on ──fork──► FORKED (in the child)
//     └─────────────────┘
//
// READY: the devices are known. Sessions begin later, each with the first call that needs one on
// its device, under the same lock as the start; with a single device its session begins at once.
// Until the first one there is no context, no object and no thread of the library.
//
// FORKED is final: the child does not have the regions and never sends anything; it has the
// program's pinned memory like its parent. Exit handlers that were registered before cuInit run in
// ENDED: as with the driver their calls return CUDA_ERROR_DEINITIALIZED. The library tears nothing
// down; the kernel closes descriptors.

#include "client/state/process.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/link/connect.h"
#include "client/link/inquiry.h"
#include "client/link/lost.h"
#include "client/state/context.h"
#include "client/state/log.h"
#include "client/state/pages.h"
#include "client/state/session.h"
#include "client/state/thread.h"
#include "shm/order.h"

enum phase { NONE, STARTING, READY, FORKED, ENDED };

static word32 phase; /* enum phase */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool watches_forks;
static CUresult (*open_session)(int ordinal); /* from READY on */

static CUresult look(void)
{
	uint32_t now = word_acquire(&phase);

	if (__builtin_expect(now == READY, 1))
		return CUDA_SUCCESS;
	return now == ENDED ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult process_enter_early(void)
{
	CUresult r = look();

	return r == CUDA_SUCCESS && thread_self()->is_callbacks ? CUDA_ERROR_NOT_PERMITTED : r;
}

/* For calls that name no device: that of the current context, else the first that the process works
 * on, else the first. */
static struct session *choose_session(void)
{
	int ordinal = context_device(thread_self()->current);
	struct session *first = session_next(NULL);

	if (ordinal >= 0)
		return &sessions[ordinal];
	return first ? first : &sessions[0];
}

CUresult process_enter(void)
{
	CUresult r = process_enter_early();
	struct session *session;

	if (r != CUDA_SUCCESS)
		return r;
	session = choose_session();
	session_use(session);
	return session_is_open(session) ? CUDA_SUCCESS : process_open(session_ordinal(session));
}

CUresult process_session_error(const struct session *session)
{
	return (CUresult)word_relaxed(&((struct session *)session)->error);
}

CUresult process_error(void)
{
	return process_session_error(session_self());
}

/* The error of the thread's session. */
static CUresult look_for_error(void)
{
	CUresult r = process_error();

	/* The thread that first noticed the session's end may not have been able to write the
	 * remaining text. */
	if (__builtin_expect(r != CUDA_SUCCESS, 0))
		lost_verdict(session_self());
	return r;
}

CUresult process_enter_object(bool has_context, struct session *session)
{
	CUcontext context = thread_self()->current;
	CUresult r = look();
	bool is_live;

	if (r != CUDA_SUCCESS)
		return r;
	is_live = context_enter(context);
	if (session)
		session_use(session);
	r = look_for_error();
	if (r != CUDA_SUCCESS || is_live)
		return r;
	/* A thread has no context while such a function runs. */
	if (thread_self()->is_callbacks)
		return CUDA_ERROR_NOT_PERMITTED;
	if (has_context)
		return CUDA_SUCCESS;
	return context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult process_enter_context(void)
{
	return process_enter_object(false, NULL);
}

CUresult process_enter_host(bool has_context, struct session *session)
{
	CUresult r;

	if (!thread_self()->is_callbacks)
		return process_enter_object(has_context, session);
	r = look();
	if (session)
		session_use(session);
	return r == CUDA_SUCCESS ? look_for_error() : r;
}

CUresult process_fail(struct session *session, CUresult code, const char *reason)
{
	uint32_t none = CUDA_SUCCESS;

	if (atomic_compare_exchange_strong(&session->error, &none, (uint32_t)code)) {
		client_log(CLIENT_LOG_ERROR, "error %d from now on: %s", (int)code,
			*reason ? reason : "no reason given");
		return code;
	}
	return (CUresult)none;
}

/* The service notices the end of a client when the last copy of its socket is closed, so the child
 * must close its copy, also of a socket that another thread is just opening. */
static void child_after_fork(void)
{
	if (word_relaxed(&phase) != NONE)
		word_set(&phase, FORKED);
	/* The lock's owner may not exist in the child. */
	pthread_mutex_init(&start_lock, NULL);
	pages_in_child();
	connect_abandon();
	inquiry_abandon();
	connect_release();
}

static void before_fork(void)
{
	connect_hold();
	pages_fork();
}

static void after_fork(void)
{
	pages_forked();
	connect_release();
}

static void watch_forks(void)
{
	watches_forks = pthread_atfork(before_fork, after_fork, child_after_fork) == 0;
}

static void leave(void)
{
	uint32_t ready = READY;

	atomic_compare_exchange_strong(&phase, &ready, ENDED);
}

/* Under start_lock. */
static CUresult start(CUresult (*begin)(bool *ret_has_session))
{
	bool has_session = false;
	CUresult r;

	word_set(&phase, STARTING);
	r = begin(&has_session);
	if (r != CUDA_SUCCESS) {
		word_set(&phase, NONE);
		return r;
	}
	if (has_session)
		word_release(&sessions[0].life, SESSION_OPEN);
	word_release(&phase, READY);
	atexit(leave);
	return CUDA_SUCCESS;
}

/* Return: false without memory */
static bool lock_start(int *ret_cancelable)
{
	/* Before the lock is taken: a child must not inherit a locked lock. */
	pthread_once(&once, watch_forks);
	if (!watches_forks)
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, ret_cancelable);
	pthread_mutex_lock(&start_lock);
	return true;
}

static void unlock_start(int cancelable)
{
	pthread_mutex_unlock(&start_lock);
	pthread_setcancelstate(cancelable, NULL);
}

CUresult process_start(CUresult (*begin)(bool *ret_has_session), CUresult (*open)(int ordinal))
{
	CUresult r = CUDA_SUCCESS;
	int cancelable;

	if (word_acquire(&phase) == READY)
		return CUDA_SUCCESS;
	if (word_acquire(&phase) >= FORKED)
		return look();
	if (!lock_start(&cancelable))
		return CUDA_ERROR_OUT_OF_MEMORY;
	open_session = open;
	if (word_acquire(&phase) == NONE)
		r = start(begin);
	unlock_start(cancelable);
	return r;
}

CUresult process_open(int ordinal)
{
	struct session *session = &sessions[ordinal];
	CUresult r = process_enter_early();
	int cancelable;

	session_use(session);
	if (r != CUDA_SUCCESS || session_is_open(session))
		return r;
	if (!lock_start(&cancelable))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!session_is_open(session)) {
		r = open_session(ordinal);
		if (r == CUDA_SUCCESS)
			word_release(&session->life, SESSION_OPEN);
	}
	unlock_start(cancelable);
	/* The process may have begun to end. */
	return r == CUDA_SUCCESS ? process_enter_early() : r;
}
