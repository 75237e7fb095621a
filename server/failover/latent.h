// Sessions that may have been the culprit of a fault although nothing of them was in doubt (on_fault = fast).
// Rules: latent.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAILOVER_LATENT_H
#define FRMPS_SERVER_FAILOVER_LATENT_H

#include <stdbool.h>
#include <stdint.h>

struct client;
struct daemon;
struct domain;

/** Names a loss of a domain for ever. Return: never 0. */
uint64_t latent_fault(const struct domain *domain, uint64_t loss);

/** The session may have been the culprit of that fault; it is latent for no other one. */
void latent_note(struct client *client, uint64_t fault);

/** The culprit of that fault is found. */
void latent_clear(struct daemon *daemon, uint64_t fault);

/**
 * It was the culprit, although its kernel looked finished, or what is repeated of it may fault again: it is told when
 * nothing else can do that any more, whoever else is found guilty.
 */
void latent_name(struct client *client);

/**
 * It was the culprit, although its kernel looked finished: it is told, and counted.
 * Return: whether that can be said of it now; it may not be while it moves. Then as latent_name()
 */
bool latent_convict(struct client *client, int32_t code, const char *reason);

/** Something that might have found a culprit is over. Safe while sessions end: it is looked at later. */
void latent_look(struct daemon *daemon);

#endif
