// Modules and functions of sessions.

#ifndef FRMPS_SERVER_EXECUTOR_MODULE_H
#define FRMPS_SERVER_EXECUTOR_MODULE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"
#include "server/executor/job.h"
#include "server/executor/range.h"
#include "shm/layout.h"
#include "shm/order.h"

/* Bounds for a session. The client chooses ids, 1 … bound - 1. */
#define MODULE_MAX   SHM_MODULES
#define FUNCTION_MAX 65536u

struct function {
	struct backend_function *backend;
	struct module *module;
	struct function *next; /* of the module's list of unpublished functions */
	char *name;
	bool leaves;			   /* it can leave residual state (remains.c) */
	struct backend_function_info info; /* ends behind the last parameter: always the last member */
};

struct module {
	struct backend_module *backend;
	struct range *globals; /* addresses that commands may name, known so far */
	uint32_t global_count;
	struct range variables; /* the client's block of variables; empty: there is none */
	struct function *unpublished;
	struct module *next; /* of the reclaim list (module_worker.c) */
	uint32_t id;
	bool dying;   /* no new lookups: an unload is under way */
	bool leaves;  /* its kernels can leave residual state (remains.c); constant */
	bool has_run; /* such a kernel was launched. Serving thread */
};

typedef _Atomic(struct function *) function_word;

/* Of one session. Module thread; functions are read by the serving thread. */
struct module_table {
	struct module **modules;	    /* MODULE_MAX, NULL until first used */
	_Atomic(function_word *) functions; /* FUNCTION_MAX; NULL until first used, published with release */
};

/** The slot of module `id`; NULL if the id is out of range or without memory. Module thread. */
struct module **module_slot(struct tenant *tenant, uint32_t id);
/** The module of an id; NULL: none, or an unload is under way. Module thread. */
struct module *module_find(struct tenant *tenant, uint32_t id);

/** Frees a function that is not published; NULL does nothing. Return: NULL. */
struct function *function_free(struct function *function);

/** Handles a client's request about modules, graphs, arrays or objects. Main thread; answers
 * later. */
void module_handle(struct job *job);
/** Return: true if the job may run while another session's request waits for a gap. A job that
 * turns out to need a gap itself then goes back to the queue. Jobs that make arrays or objects may
 * not: objects get the same values in every executor only where all are made and freed in the same
 * order. */
bool module_runs_beside(const struct job *job);

/** Queues all modules to be unloaded. Module thread; the session is not served any more. */
void module_table_deinit(struct tenant *tenant);

/** Function of an id, or NULL. Serving and module thread; valid for this turn. */
static inline struct function *module_function(const struct module_table *table, uint32_t id)
{
	/* Pairs with the release in lookup_function(). */
	function_word *functions = atomic_load_explicit(&table->functions, memory_order_acquire);

	if (!functions || id >= FUNCTION_MAX)
		return NULL;
	return atomic_load_explicit(&functions[id], memory_order_acquire);
}

#endif
