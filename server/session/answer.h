// An executor's answer to a request, checked before the daemon acts on the answer. An executor runs
// code of programs, so the daemon checks answers as it checks requests: a number that becomes an
// index, a size or a limit must be possible for a sound executor. The daemon ends an executor that
// answers anything else, and asks the next executor. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_ANSWER_H
#define FRMPS_SERVER_SESSION_ANSWER_H

struct packet;
struct request;
struct wire_reply;

/**
 * Checks an answer. An answer without values is always fine: a caller that needs a value then has
 * none.
 * Return: the flaw (static text), or NULL
 */
const char *answer_flaw(
	const struct request *request, const struct wire_reply *reply, const struct packet *packet);

#endif
