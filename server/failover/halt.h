// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Halting the active executor: what the survivors have on the device ends, while the process lives. Rules:
// halt.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAILOVER_HALT_H
#define FRMPS_SERVER_FAILOVER_HALT_H

#include <stdint.h>

struct domain;

/** Begins; ends with promote_hand_over() or with the executor being condemned. */
void halt_begin(struct domain *domain, uint64_t patience_ms);
/** Halt was answered before halting began: nothing of those who go on is on the device. */
void halt_answered(struct domain *domain);
/** Something new is known: looks now. */
void halt_hurry(struct domain *domain);
/** Stops looking: the executor is condemned. */
void halt_end(struct domain *domain);

/** The timer's function, for promote_init(). @context: the domain */
void halt_look(void *context);

#endif
