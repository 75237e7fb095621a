// Probation: after a fault that nobody is proved guilty of, the commands in doubt of one suspect after the
// other run alone. States and rules: probation.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAILOVER_PROBATION_H
#define FRMPS_SERVER_FAILOVER_PROBATION_H

#include <stdbool.h>
#include <stdint.h>

struct client;
struct daemon;
struct domain;
struct judge_verdict;
struct record;
struct worker;

/** Whether commands in doubt of this suspect are to be tried rather than repeated beside others. */
bool probation_applies(const struct client *client);

/** Whether a session is held for its trial: nobody serves it, its requests wait. */
bool probation_waits(const struct client *client);

/** Whether the executors of a domain are for a trial. */
bool probation_is_for(const struct domain *domain);

/** For operators; NULL: it is on none. */
const char *probation_text(const struct client *client);

/**
 * Whether the executor that is off the device, a trial, or what is repeated beside others, may still show the culprit of
 * a fault (latent.h); trials that last for too long do not count.
 */
bool probation_may_explain(const struct daemon *daemon, uint64_t fault);

/** Whether what a session had in doubt at a fault is being tried, or repeated beside others. */
bool probation_repeats(const struct client *client);

/** A promotion is over. @worker: which serves now, all but the sessions that it left as they were */
void probation_settle(struct domain *domain, struct worker *worker);

/** Gives the next suspect of a domain its turn, if it is anybody's. */
void probation_turn(struct domain *domain);

/** A session is in its own domain, which is about to serve it (move.c). */
void probation_arrived(struct client *client);

/** The executor of a domain is lost. What its sessions are on probation for is weighed with the judge's word.
 */
void probation_weigh(struct domain *domain, const struct worker *worker, struct judge_verdict *verdict);
/** The verdict is the promotion's: tells those whose trial it ends. */
void probation_conclude(struct domain *domain, const struct worker *worker);

/** The same where the executor of a domain has contained a fault of a session, and is not lost. */
void probation_contained(struct domain *domain, uint64_t session);

/**
 * It was found out whose kernel faulted, in an executor of this domain that is off the device.
 * @fault: which (latent.h)
 * @session: of whatever kind; it may be gone
 * @code, @reason: what it is told, if it has not been
 */
void probation_named(
	struct domain *domain, uint64_t fault, uint64_t session, int32_t code, const char *reason);

/** A session ends, or goes for good. */
void probation_end(struct client *client);
void probation_gone(struct client *client);

/** That of a session of an earlier life of the daemon, which is there again. */
void probation_adopt(struct daemon *daemon, const struct record *record);

#endif
