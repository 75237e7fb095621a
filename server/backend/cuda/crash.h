// What a process with a context says when it crashes, and where its threads are.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CRASH_H
#define FRMPS_SERVER_BACKEND_CUDA_CRASH_H

#include <pthread.h>

/** From now on a crash of this process is reported in the log. Once in a process, any thread. */
void crash_watch(void);

/**
 * The calling thread gets a stack for the handler of crashes, until it ends: one whose own is used
 * up could not say so. Nothing changes if it has one, or if there is no memory for it.
 */
void crash_enter_thread(void);

/**
 * A thread of this process writes into the log what its name is and which calls it is in, and goes
 * on. Does not wait for it; nothing before crash_watch(). Waits that the kernel does not take up
 * again, like nanosleep(), end early for it. Any thread.
 * @thread: not joined yet
 */
void crash_show_thread(pthread_t thread);

#endif
