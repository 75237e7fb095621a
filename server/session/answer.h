// What an executor says when it has carried a request out, looked at before anything comes of it.
// An executor runs what programs bring along, so its answers are checked as requests
// are: a number that becomes an index, a size or a limit is one that a sound executor can have
// said. Whoever says anything else is given up, and the next executor is asked. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_SESSION_ANSWER_H
#define FRMPS_SERVER_SESSION_ANSWER_H

struct packet;
struct request;
struct wire_reply;

/**
 * Looks at an answer. No values at all are always fine: whoever needs some knows nothing then.
 * Return: what is wrong with it (static text), or NULL
 */
const char *answer_flaw(
	const struct request *request, const struct wire_reply *reply, const struct packet *packet);

#endif
