// See lost.h. Runs on every thread that waits or submits. The executor writes the session's state
// word, after `error` and `reason`. Callers may hold locks: nothing here is a cancellation point.

#include "client/link/lost.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/state/clock.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "shm/order.h"

/* Longest sleep of a waiting thread between two looks at the control socket. */
#define GLANCE_NS UINT64_C(100000000)

static lost_ended_fn *_Atomic watcher; /* NULL: none */

void lost_watch(lost_ended_fn *ended)
{
	atomic_store(&watcher, ended);
}

CUresult lost_verdict(struct session *session)
{
	const struct shm_server_header *server = session->connection.view.server;
	uint32_t state = word_acquire(&((struct shm_server_header *)server)->state);
	char reason[sizeof(server->reason)];
	lost_ended_fn *ended;
	uint32_t code;

	if (state != SHM_SESSION_FAULTED && state != SHM_SESSION_CLOSED)
		return CUDA_SUCCESS;
	code = word_relaxed(&((struct shm_server_header *)server)->error);
	memcpy(reason, server->reason, sizeof(reason));
	reason[sizeof(reason) - 1] = '\0';
	ended = atomic_load(&watcher);
	if (ended)
		ended(session);
	return process_fail(session, code ? (CUresult)code : CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
}

CUresult lost_check(struct session *session)
{
	struct pollfd p = {.fd = session->connection.control_fd, .events = POLLRDHUP};
	struct timespec at_once = {0};
	CUresult r = lost_verdict(session);

	if (r != CUDA_SUCCESS)
		return r;
	if (syscall(SYS_ppoll, &p, 1, &at_once, NULL, 0) > 0 &&
		(p.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)))
		return lost_report(session, "the service is gone");
	return CUDA_SUCCESS;
}

CUresult lost_glance(struct session *session)
{
	uint64_t now = clock_now_ns();
	CUresult r;

	if (now - word_relaxed(&session->glanced) >= GLANCE_NS) {
		word_set(&session->glanced, now);
		return lost_check(session);
	}
	r = lost_verdict(session);
	/* Another thread's check may have found the loss. */
	return r == CUDA_SUCCESS ? process_session_error(session) : r;
}

CUresult lost_report(struct session *session, const char *how)
{
	CUresult r = lost_verdict(session);

	return r != CUDA_SUCCESS ? r : process_fail(session, CUDA_ERROR_MPS_RPC_FAILURE, how);
}
