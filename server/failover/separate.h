// A guard was hit while several programs ran: its session moves, so that the next hit has one author. Rules:
// separate.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAILOVER_SEPARATE_H
#define FRMPS_SERVER_FAILOVER_SEPARATE_H

#include <stdint.h>

struct domain;

/**
 * Begins to move a session whose guard was hit, and nobody knows by whom, into an executor of its own.
 * @owner: number of the session
 * Return: NULL, or why it stays where it is (static text).
 */
const char *separate_begin(struct domain *domain, uint64_t owner);

#endif
