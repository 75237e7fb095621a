// See lost.h. Runs on every thread that waits or submits. The session's state word is written by the
// executor; `error` and `reason` are written before it. Callers may hold locks: nothing here is a cancellation
// point.

#include "client/link/lost.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/link/connect.h"
#include "client/state/clock.h"
#include "client/state/process.h"
#include "shm/order.h"

/* As long as a waiting thread sleeps between two looks at the control socket. */
#define GLANCE_NS UINT64_C(100000000)

/* What the driver would have said. */
static void say_assertion(const struct shm_server_header *server)
{
	static word32 is_said;
	char lines[sizeof(server->assertion)];
	int cancelable;

	if (atomic_exchange(&is_said, 1))
		return;
	memcpy(lines, server->assertion, sizeof(lines));
	lines[sizeof(lines) - 1] = '\0';
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	fputs(lines, stderr);
	pthread_setcancelstate(cancelable, NULL);
}

CUresult lost_verdict(void)
{
	const struct shm_server_header *server = connection.view.server;
	uint32_t state = word_acquire(&((struct shm_server_header *)server)->state);
	char reason[sizeof(server->reason)];
	uint32_t code;

	if (state != SHM_SESSION_FAULTED && state != SHM_SESSION_CLOSED)
		return CUDA_SUCCESS;
	code = word_relaxed(&((struct shm_server_header *)server)->error);
	memcpy(reason, server->reason, sizeof(reason));
	reason[sizeof(reason) - 1] = '\0';
	if (code == CUDA_ERROR_ASSERT)
		say_assertion(server);
	return process_fail(code ? (CUresult)code : CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
}

CUresult lost_check(void)
{
	struct pollfd p = {.fd = connection.control_fd, .events = POLLRDHUP};
	struct timespec at_once = {0};
	CUresult r = lost_verdict();

	if (r != CUDA_SUCCESS)
		return r;
	if (syscall(SYS_ppoll, &p, 1, &at_once, NULL, 0) > 0 &&
		(p.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)))
		return lost_report("the service is gone");
	return CUDA_SUCCESS;
}

CUresult lost_glance(void)
{
	static word64 latest; /* of the looks, by whichever thread */
	uint64_t now = clock_now_ns();
	CUresult r;

	if (now - word_relaxed(&latest) >= GLANCE_NS) {
		word_set(&latest, now);
		return lost_check();
	}
	r = lost_verdict();
	/* Another thread's look may have found it out. */
	return r == CUDA_SUCCESS ? process_error() : r;
}

CUresult lost_report(const char *how)
{
	CUresult r = lost_verdict();

	return r != CUDA_SUCCESS ? r : process_fail(CUDA_ERROR_MPS_RPC_FAILURE, how);
}
