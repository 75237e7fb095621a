// See helper.h. No state.

#include "client/state/helper.h"

#include <pthread.h>
#include <signal.h>

/* A fault of the thread itself cannot wait: a blocked signal would end the program without running
 * its handler. */
static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

CUresult helper_start(void *(*run)(void *), void *argument)
{
	sigset_t others, before;
	pthread_attr_t attributes;
	pthread_t thread;
	int r;

	if (pthread_attr_init(&attributes) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&others);
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); ++i)
		sigdelset(&others, own[i]);
	pthread_sigmask(SIG_SETMASK, &others, &before);
	r = pthread_create(&thread, &attributes, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return r == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
