// Faults that the backend contains (backend.h, struct backend_watch): what they mean for sessions.
// See contain.c.

#ifndef FRMPS_SERVER_EXECUTOR_CONTAIN_H
#define FRMPS_SERVER_EXECUTOR_CONTAIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"
#include "shm/order.h"

struct executor;
struct tenant;

enum contain_phase {
	CONTAIN_CLEAR,
	CONTAIN_SUSPECTED, /* a sign was seen */
	CONTAIN_STOPPED,   /* there is a fault, and it is not known whose */
	CONTAIN_GIVEN_UP   /* it is not contained: the next executor knows what is done */
};

struct contain_fault {
	struct backend_fault fault;
	uint64_t session; /* 0: not known */
	uint64_t stopped; /* ns from the first sign until the device stood still; 0: it never did */
	uint64_t took;	  /* ns from the first sign until it was known whose it is */
	uint32_t number;  /* as in its last words */
	bool contained;
};

struct contain_owner {
	struct backend_module *module;
	uint64_t session;
};

/* Of an executor. */
struct contain {
	struct backend_watch watch;
	word32 news; /* the main thread has something to do */

	/* The backend's thread. */
	uint32_t words;	 /* last words that are taken */
	uint32_t number; /* of the next fault; each kernel's is one */

	/* Main thread. */
	uint64_t until; /* ns: when a fault that is not explained by then is the daemon's; 0: there is none */

	pthread_mutex_t lock; /* of the following; a leaf, never held across a call of the backend */
	struct contain_owner *owners;
	uint32_t owner_count, owner_room;
	enum contain_phase phase;
	uint64_t sign_at, stop_at;    /* ns: the first sign of the latest fault, and the stop behind it */
	bool hopeless;		      /* to be told: nothing is contained any more */
	struct contain_fault *faults; /* to be told */
	uint32_t fault_count, fault_room;
};

/** Begins and ends to watch. Main thread. */
void contain_init(struct executor *executor);
void contain_deinit(struct executor *executor);

/** Whose module that is. Module thread. Without memory it stays unknown: its faults are not
 * contained. */
void contain_note_module(struct executor *executor, struct backend_module *module, uint64_t session);
/** Before it is unloaded. Module thread. */
void contain_forget_module(struct executor *executor, const struct backend_module *module);

/**
 * The modules of a session, as they are now: names. One may be unloaded at any time, and another
 * session's get its name, unless all kernels stand still. Any thread.
 * Return: for free(); NULL: no memory
 */
struct backend_module **contain_list_modules(
	struct executor *executor, uint64_t session, uint32_t *ret_count);
bool contain_has_module(struct executor *executor, uint64_t session);

/** The session is served from now on, as that generation, and as doubtful as the others are. Main
 * thread. */
void contain_join(struct tenant *tenant, uint32_t generation);

/** Whether there is, or may be, a fault of which it is not known whose it is: what became done
 * proves nothing. Any thread. */
bool contain_is_open(struct executor *executor);

/** The context is lost, and the backend would not have said so if a kernel had faulted: what became
 * done proves nothing. Any thread. */
void contain_doubt_all(struct executor *executor);

/** What the backend's thread has left to do. Main thread. Return: when to look again, ns;
 * UINT64_MAX: when something happens */
uint64_t contain_step(struct executor *executor, uint64_t now);

#endif
