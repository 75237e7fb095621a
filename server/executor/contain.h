// Faults that the backend contains (backend.h, struct backend_watch), and their effect on sessions.
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
	CONTAIN_STOPPED,   /* there is a fault, and its owner is not known */
	CONTAIN_GIVEN_UP   /* the fault is not contained: the next executor finds what is done */
};

struct contain_fault {
	struct backend_fault fault;
	uint64_t session; /* 0: not known */
	uint64_t stopped; /* ns from the first sign until the device stood still; 0: never */
	uint64_t took;	  /* ns from the first sign until its owner was known */
	uint32_t number;  /* as in the last words */
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
	uint32_t words;	 /* last words in use */
	uint32_t number; /* of the next fault; each kernel counts */

	/* Main thread. */
	uint64_t until; /* ns: when an unexplained fault goes to the daemon; 0: there is none */

	pthread_mutex_t lock; /* of the following; a leaf, never held across a call of the backend */
	struct contain_owner *owners;
	uint32_t owner_count, owner_room;
	enum contain_phase phase;
	uint64_t sign_at, stop_at;    /* ns: the first sign of the latest fault, and the stop behind it */
	bool hopeless;		      /* to be reported: nothing is contained any more */
	struct contain_fault *faults; /* to be reported */
	uint32_t fault_count, fault_room;
};

/** Begins and ends the watch. Main thread. */
void contain_init(struct executor *executor);
void contain_deinit(struct executor *executor);

/** Notes a module's session. Module thread. Without memory the owner stays unknown: the module's
 * faults are not contained. */
void contain_note_module(struct executor *executor, struct backend_module *module, uint64_t session);
/** Before the module is unloaded. Module thread. */
void contain_forget_module(struct executor *executor, const struct backend_module *module);

/**
 * The present modules of a session: names. Unless all kernels stand still, a module may be unloaded
 * at any time, and a module of another session may get the name. Any thread. Return: for free();
 * NULL: no memory
 */
struct backend_module **contain_list_modules(
	struct executor *executor, uint64_t session, uint32_t *ret_count);
bool contain_has_module(struct executor *executor, uint64_t session);

/** The session is served from now on, with that generation, and is as doubtful as the others. Main
 * thread. */
void contain_join(struct tenant *tenant, uint32_t generation);

/** Return: true if there is, or may be, a fault with an unknown owner: completions prove nothing.
 * Any thread. */
bool contain_is_open(struct executor *executor);

/** The context is lost, and the backend would not have reported a kernel's fault: completions prove
 * nothing. Any thread. */
void contain_doubt_all(struct executor *executor);

/** Handles the news of the backend's thread. Main thread. Return: when to call again, ns;
 * UINT64_MAX: when news come */
uint64_t contain_step(struct executor *executor, uint64_t now);

#endif
