// Output of a process with a context at a crash, and on request the calls of its threads.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CRASH_H
#define FRMPS_SERVER_BACKEND_CUDA_CRASH_H

#include <pthread.h>

/** From now on a crash of this process is reported in the log. Once in a process, any thread. */
void crash_watch(void);

/**
 * The calling thread gets a stack for the handler of crashes, until its end: a thread with an
 * exhausted stack could not report its crash. No change if there is a stack, or without memory.
 */
void crash_enter_thread(void);

/**
 * A thread of this process writes its name and its present calls into the log, and goes on. Does
 * not wait for the thread; no effect before crash_watch(). Waits that the kernel does not resume,
 * like nanosleep(), end early. Any thread.
 * @thread: not joined yet
 */
void crash_show_thread(pthread_t thread);

#endif
