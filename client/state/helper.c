// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See helper.h. No state.

#include "client/state/helper.h"

#include <pthread.h>
#include <signal.h>

/* Enough for a host function of the program, which runs on such a thread. */
#define STACK_BYTES (1u << 20)

CUresult helper_start(void *(*run)(void *))
{
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t thread;
	int r;

	if (pthread_attr_init(&attributes) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attributes, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return r == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
