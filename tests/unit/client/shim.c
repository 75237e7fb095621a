// See shim.h.

#include "tests/unit/client/shim.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/state/session.h"

CUcontext shim_context;

void shim_setup_service(void)
{
	setenv("FRMPS_LOG", "off", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	loopback_start();
}

void shim_attach(void)
{
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&shim_context, 0));
	OK(cuCtxSetCurrent(shim_context));
}

void shim_setup(void)
{
	shim_setup_service();
	shim_attach();
}

void shim_teardown(void)
{
	/* Nobody else ever closes them: the shim leaves that to the end of the process. */
	SESSION_FOREACH (session) {
		close(session->connection.control_fd);
		close(session->connection.doorbell_fd);
	}
	ck_assert(loopback_stop());
}

uint8_t *shim_pattern(size_t bytes, unsigned int seed)
{
	uint8_t *p = malloc(bytes);

	for (size_t i = 0; i < bytes; ++i)
		p[i] = (uint8_t)((i * 2654435761u >> 7) + seed);
	return p;
}

void shim_pause(void)
{
	word_set(&loopback->pace, LOOPBACK_IS_TO_PAUSE);
	/* What the service has begun would go on. It looks each millisecond. */
	while (word_acquire(&loopback->pace) == LOOPBACK_IS_TO_PAUSE)
		syscall(SYS_sched_yield);
}

void shim_resume(void)
{
	word_set(&loopback->pace, LOOPBACK_WORKS);
}

int shim_order[64], shim_ran;

void shim_append(void *user)
{
	shim_order[shim_ran++] = (int)(intptr_t)user;
}

struct shim_callback shim_callback = {.status = CUDA_ERROR_UNKNOWN};

void shim_on_stream(CUstream stream, CUresult status, void *user)
{
	shim_append(user);
	shim_callback = (struct shim_callback){stream, status};
}
