// The name of a session's work on the device: for verdicts that rest on other evidence than the
// executor's word. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_OLDEST_H
#define FRMPS_SERVER_FAULT_OLDEST_H

#include <stdint.h>

struct session;

/* A command. */
struct oldest {
	uint32_t stream;
	uint64_t seq;	  /* 0: there is none */
	char kernel[128]; /* empty: not known */
};

/**
 * The oldest kernel or graph in flight, in the first stream of a session that has any. Only while
 * nothing of the session changes: after the fence, or while the session is held.
 */
void oldest_find(const struct session *session, struct oldest *ret_oldest);

#endif
