// The device linker for clients. A compilation takes seconds at times, so it is done by the compile
// threads (compiler.h): no lookup, load or unload waits behind it, nor does another client's link.
//
// A link lives in the executor that its inputs were handed to, between two requests, and is a
// cache: there is room for LINKER_LINKS of them, of all sessions; of those that nothing is done
// with the one that was used least recently gives way, and after a promotion there are none. The
// client has its inputs and begins again when it is told that there is no such link.
//
// The driver keeps what it has made of the inputs. Those of all links of a session have no more
// than FRMPS_LINK_MIB (1024) together: its older links give way for an input, and one link alone
// cannot have more.

#ifndef FRMPS_SERVER_EXECUTOR_LINKER_H
#define FRMPS_SERVER_EXECUTOR_LINKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/executor/job.h"

/* There are more only while that many are being worked on. */
#define LINKER_LINKS	   32u
#define LINKER_MIB_DEFAULT 1024u
/* Largest image that is handed out, bytes. */
#define LINKER_IMAGE_MAX (UINT64_C(1) << 30)

struct link;
TAILQ_HEAD(link_list, link);

struct linker {
	pthread_mutex_t lock;
	struct link_list links; /* least recently used first */
	uint32_t count;
	uint64_t limit; /* bytes of inputs of a session's links; constant */
	bool asked;	/* there ever was a request. Main thread */
};

/** Reads FRMPS_LINK_MIB. */
void linker_init(struct executor *executor);
/** When there are no compile threads any more. */
void linker_deinit(struct executor *executor);

/** A request about a link. Main thread; answers later. */
void linker_handle(struct job *job);

/** The session ends: its links go. Main thread. */
void linker_forget(struct tenant *tenant);

#endif
