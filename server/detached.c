// See detached.h. No state.

#include "server/detached.h"

#include <pthread.h>
#include <stddef.h>

int detached_start(void *(*run)(void *), void *argument, const sigset_t *blocked)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	sigfillset(&all);
	/* A thread begins with the mask of its creator. */
	pthread_sigmask(SIG_SETMASK, blocked ? blocked : &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, run, argument);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -error;
}
