// Stopping for good while the process lives: at the first sign of a fault, or where work that does
// not end cannot be ended alone. See halt.c.

#ifndef FRMPS_SERVER_EXECUTOR_HALT_H
#define FRMPS_SERVER_EXECUTOR_HALT_H

#include "server/executor/executor.h"

/** Halt. Main thread; the job is consumed. */
void halt_handle(struct job *job);

/** Puts the last marks of the thread's sessions and says that it issues nothing more. Serving
 * thread. */
void halt_pass(struct serve_thread *thread);

/** At the beginning of a turn: passes, once, if all shall stop. Serving thread. */
static inline void halt_look(struct serve_thread *thread)
{
	if (executor_is_lost(thread->executor) && !word_relaxed(&thread->halted))
		halt_pass(thread);
}

#endif
