// What an executor finds out about a fault when it is off the device, with on_fault = fast: postmortem.c. Daemon, loop
// thread only.

#ifndef FRMPS_SERVER_FAILOVER_POSTMORTEM_H
#define FRMPS_SERVER_FAILOVER_POSTMORTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/wire.h"

struct daemon;
struct domain;
struct worker;

/* Whose kernel faulted. */
struct finding {
	struct finding *next;
	uint64_t fault; /* of an executor that is gone: that this explains (latent.h); 0: that is explained */
	uint64_t session;
	struct wire_trouble trouble;   /* text: kernel */
	char kernel[128], reason[256]; /* reason: for its program */
};

/**
 * An executor is off the device, and the loss of it is about to be judged.
 * Return: whether it is worth waiting for: it will say what has faulted, and nobody needs its end
 */
bool postmortem_begin(struct domain *domain, struct worker *worker);
/** If so: it was judged. It is given up, and ended when it has said what faulted, or has not for a while. */
void postmortem_await(struct domain *domain, struct worker *worker);

/** An executor says whose kernel faulted. There can be several of one fault. */
void postmortem_take(struct worker *worker, uint64_t session, const struct wire_trouble *fault);
/** What an executor, or those of a domain, have said is of no use any more. */
void postmortem_forget(struct finding **list);
/** Nobody can be named. */
void postmortem_fail(struct worker *worker);

/** It is killed. What it has said before counts. */
void postmortem_give_up(struct worker *worker);

/** What was found out meanwhile is carried out now: the domain has an executor that serves. */
void postmortem_look(struct domain *domain);

/** Whether it may soon be known whose a fault of this domain was: then nobody is tried. */
bool postmortem_is_due(const struct domain *domain);
/** The same of one fault, of whatever domain (latent.h). */
bool postmortem_may_explain(const struct daemon *daemon, uint64_t fault);

/** The executor is gone, and no longer in the domain's list. */
void postmortem_end(struct domain *domain, struct worker *worker);

#endif
