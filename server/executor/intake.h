// From the ring into the journal: the only reader of a client's commands. Serving thread.

#ifndef FRMPS_SERVER_EXECUTOR_INTAKE_H
#define FRMPS_SERVER_EXECUTOR_INTAKE_H

#include "protocol/command.h"
#include "server/executor/tenant.h"

/* Outcomes of intake_next() beside 0. */
#define INTAKE_E_EMPTY	 1 /* nothing on the ring */
#define INTAKE_E_NOTHING 2 /* a record was taken that is no command, or one that is known already */
#define INTAKE_E_FULL	 3 /* no journal block is free: the record stays on the ring */
#define INTAKE_E_OFFENCE 4 /* the session broke the rules and is stopped */

/**
 * Takes one record from the ring. Directives are carried out.
 * @ret_stream: the stream with the new journaled command
 */
int intake_next(struct tenant *tenant, struct stream **ret_stream);

/**
 * Checks the body of a command that lies in private or journal memory; the head was checked.
 * Return: NULL, or the reason of the refusal.
 */
const char *intake_check(const struct tenant *tenant, const struct frmps_head *record);

/** Checks the body of a copy or fill by itself. Return: NULL, or the reason of the refusal. */
const char *intake_check_copy(const struct frmps_copy *body);
const char *intake_check_array_copy(const struct frmps_array_copy *body);
const char *intake_check_set(const struct frmps_set *body);

/** Checks a head: op, size for the op, flags, stream, reserved words. Return: NULL, or the reason
 * of the refusal. */
const char *intake_check_head(const struct frmps_head *head);

#endif
