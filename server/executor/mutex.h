// How threads of an executor wait for mutexes, those of the driver above all.

#ifndef FRMPS_SERVER_EXECUTOR_MUTEX_H
#define FRMPS_SERVER_EXECUTOR_MUTEX_H

#include <pthread.h>
#include <stdint.h>

/**
 * From now on, any thread that finds a mutex held looks at the mutex for @ns nanoseconds before
 * sleeping. 0, as at first: sleeps at once. Any thread.
 */
void mutex_spin(uint64_t ns);

/**
 * The pthread_mutex_lock() of this process, with the same results. For all kinds of mutexes. Any
 * thread.
 */
int mutex_lock(pthread_mutex_t *mutex);

#endif
