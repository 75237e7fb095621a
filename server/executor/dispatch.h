// From the journal to the backend. Serving thread.

#ifndef FRMPS_SERVER_EXECUTOR_DISPATCH_H
#define FRMPS_SERVER_EXECUTOR_DISPATCH_H

#include "protocol/command.h"
#include "server/executor/tenant.h"

/* Outcomes of dispatch_issue() beside 0. */
#define DISPATCH_E_HELD 1 /* the stream is held; the command was not issued */
#define DISPATCH_E_STOP 2 /* the session or the whole context is at its end */

/** Issues the stream's next command: issued + 1, which lies at the cursor. */
int dispatch_issue(struct tenant *tenant, struct stream *stream);

/** Counts the stream's next command, which waited in software, as done: everything before it is. */
void dispatch_settle(struct tenant *tenant, struct stream *stream);

/** Issues up to `budget` waiting commands of a stream that is not held. Return: how many. */
unsigned dispatch_backlog(struct tenant *tenant, struct stream *stream, unsigned budget);

/** A launch for the backend: whose it is, is the caller's to add. @body: with its parts behind it,
 * checked */
struct backend_launch dispatch_launch(
	const struct function *function, const struct frmps_launch *body, bool cooperative);

/** A copy for the backend: everything but arena offsets is final. Nothing is checked. */
struct backend_copy dispatch_copy(const struct frmps_copy *body);

/**
 * Bytes that a box of rows spans from its first to its last.
 * Return: false where a size is zero, rows overlap or the sum overflows.
 */
bool dispatch_span(
	uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t rows, uint64_t *ret_bytes);

#endif
