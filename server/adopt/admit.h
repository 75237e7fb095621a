// Whether sessions of another device may come (arrive.h): this device's limits and room, executors
// for them, and their addresses, which have to be free. Daemon, loop thread only.

#ifndef FRMPS_SERVER_ADOPT_ADMIT_H
#define FRMPS_SERVER_ADOPT_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct domain;
struct handover;
struct handover_member;
struct session;
struct worker;

/* Room for a reason, bytes. */
#define ADMIT_TEXT 400u

/* A session of a set that comes. */
struct arriving {
	uint64_t number;	 /* here */
	uint64_t given;		 /* its number in the bundle: another one, for a session from files */
	struct domain *domain;	 /* for the session; valid only within the turn of a check */
	uint32_t domain_number;	 /* of that; 0: none yet */
	struct session *session; /* once it is made here: a reference */
	struct worker *executor; /* makes the session; NULL: none yet */
};

/** Reads the head of a session in a bundle. @ret_session: the head alone; the rest is zero */
void admit_read_head(const struct handover_member *member, struct session *ret_session);

/**
 * Checks if all sessions of a bundle may come, and finds their domains.
 * @members: as many as in the bundle. Domains are kept from one check to the next
 * @may_be_alone: sessions whose addresses are taken get executors of their own
 * @ret_code: CUresult, only for a refusal
 * @text: ADMIT_TEXT bytes, for the reason
 * Return: NULL, or the reason, which names the session unless it is the first. Valid until the next
 * call
 */
const char *admit_refuses(struct daemon *daemon, const struct handover *handover, struct arriving *members,
	bool may_be_alone, int32_t *ret_code, char *text);

#endif
