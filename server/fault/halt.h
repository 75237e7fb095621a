// Halting the active executor: the survivors' work on the device ends while the process lives.
// Rules: halt.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_HALT_H
#define FRMPS_SERVER_FAULT_HALT_H

#include <stdint.h>

struct domain;

/** Begins; ends with promote_hand_over(), promote_off_device(), or the termination of the
 * executor. */
void halt_begin(struct domain *domain, uint64_t patience_ms);
/** From now on there is at least that much time. */
void halt_extend(struct domain *domain, uint64_t patience_ms);
/** Something new is known: looks now. */
void halt_hurry(struct domain *domain);
/** Asks the executor, which issues nothing more, to leave the device. */
void halt_ask_for_fence(struct domain *domain);
/** Stops polling: the executor is being terminated. */
void halt_end(struct domain *domain);

/** The timer's function, and for tests. @context: the domain */
void halt_look(void *context);

#endif
