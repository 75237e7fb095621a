// What the driver says on standard error. An assertion that fails in a kernel is told there, in the process
// that has the context; the text belongs to the program whose kernel it was.

#ifndef FRMPS_SERVER_BACKEND_CUDA_SAID_H
#define FRMPS_SERVER_BACKEND_CUDA_SAID_H

#include <pthread.h>
#include <stddef.h>

/**
 * From now on all that this process writes on standard error but the log goes through a thread of ours, which
 * keeps the texts of assertions and passes everything else on. Once in a process; if it cannot be, nothing
 * changes.
 */
void said_listen(void);

/**
 * The calling thread gets a stack for the handler of crashes, until it ends: one whose own is used up could not
 * say so. Nothing changes if it has one, or if there is no memory for it.
 */
void said_enter_thread(void);

/**
 * A thread of this process writes into the log what its name is and which calls it is in, and goes on. Does not
 * wait for it; nothing before said_listen(). Waits that the kernel does not take up again, like nanosleep(), end
 * early for it. Any thread.
 * @thread: not joined yet
 */
void said_show_thread(pthread_t thread);

/**
 * Takes the texts of assertions that were written since the last time.
 * @ret: whole lines, NUL-terminated, as many as fit
 * Any thread; at most 2 ms.
 */
void said_take(char *ret, size_t size);

/** Forgets such texts if the first of them came more than that many milliseconds ago. Any thread; at most 2 ms. */
void said_forget(unsigned ms);

#endif
