// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The device linker for clients, and the linker thread. A compilation takes seconds at times and holds up
// nobody on the device, so it has a thread of its own: behind it wait only other clients' links, and no
// lookup, load or unload.
//
// A link lives in the executor that its inputs were handed to, between two requests, and is a cache: there is
// room for LINKER_LINKS of them, of all sessions; the one that was used least recently gives way, and after a
// promotion there are none. The client has its inputs and begins again when it is told that there is no such
// link.

#ifndef FRMPS_SERVER_EXECUTOR_LINKER_H
#define FRMPS_SERVER_EXECUTOR_LINKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/executor/job.h"

#define LINKER_LINKS 32u
/* Largest image that is handed out, bytes. */
#define LINKER_IMAGE_MAX (UINT64_C(1) << 30)

struct link;
TAILQ_HEAD(link_list, link);

struct linker {
	pthread_t thread;
	pthread_mutex_t lock; /* of the queue and the flags */
	pthread_cond_t more;
	struct job_list queue;
	bool stop, started;

	/* Linker thread: least recently used first. */
	struct link_list links;
	uint32_t count;
};

void linker_init(struct executor *executor);
/** Finishes what is queued and ends the thread. */
void linker_deinit(struct executor *executor);

/** A request about a link. Main thread; answers later. */
void linker_handle(struct job *job);

/** The session ends: its links go. Main thread. */
void linker_forget(struct session *session);

#endif
