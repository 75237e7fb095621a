// An executor that is kept ready for the next trial (probation.h). Rules: reserve.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAILOVER_RESERVE_H
#define FRMPS_SERVER_FAILOVER_RESERVE_H

#include <stdbool.h>

struct client;
struct domain;

/** Whether the domain is one that waits for a trial: nobody's clients are in it, and it is not idle. */
bool reserve_is(const struct domain *domain);

/** Something that decides whether there is to be one has changed: makes it, or lets it go. */
void reserve_look(struct domain *domain);

/** The domain goes, and what was kept ready for it. */
void reserve_drop(struct domain *domain);

/**
 * For the trial of a client.
 * Return: the domain, which is no reserve any more, with an executor that serves; NULL: there is none of use.
 */
struct domain *reserve_take(const struct client *client);

#endif
