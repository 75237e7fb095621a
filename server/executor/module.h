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

/* Bounds of one session. Ids are the client's, 1 … bound - 1. */
#define MODULE_MAX   SHM_MODULES
#define FUNCTION_MAX 65536u

struct function {
	struct backend_function *backend;
	struct module *module;
	struct function *next; /* of the module's unpublished ones */
	char *name;
	bool leaves;			   /* it can leave something behind (remains.c) */
	struct backend_function_info info; /* ends behind the last parameter: always the last member */
};

struct module {
	struct backend_module *backend;
	struct range *globals; /* addresses that commands may name, known so far */
	uint32_t global_count;
	struct range variables; /* the client's block of them; empty: there is none */
	struct function *unpublished;
	struct module *next; /* among the graves */
	uint32_t id;
	bool dying;   /* no new lookups: an unload is under way */
	bool leaves;  /* its kernels can leave something behind (remains.c); constant */
	bool has_run; /* one that can was launched. Serving thread */
};

typedef _Atomic(struct function *) function_word;

/* Of one session. Module thread; functions are read by the serving thread. */
struct module_table {
	struct module **modules;	    /* MODULE_MAX, NULL until first used */
	_Atomic(function_word *) functions; /* FUNCTION_MAX; NULL until first used, published with release */
};

/** Where module `id` is kept; NULL if the id is out of range or no memory. Module thread. */
struct module **module_slot(struct tenant *tenant, uint32_t id);
/** The module of an id; NULL: there is none, or it is being unloaded. Module thread. */
struct module *module_find(struct tenant *tenant, uint32_t id);

/** Frees a function that is not published; NULL does nothing. Return: NULL. */
struct function *function_free(struct function *function);

/** A module request of a client, or one about graphs, arrays and objects. Main thread; answers
 * later. */
void module_handle(struct job *job);
/** Whether it may be done while another session's request waits for a gap. What turns out to need
 * one itself goes back to the queue then. Not what makes arrays and objects: objects get the same
 * values in every executor only where all of them are made and freed in the same order. */
bool module_runs_beside(const struct job *job);

/** Gives everything up to be unloaded. Module thread; the session is not served any more. */
void module_table_deinit(struct tenant *tenant);

/** Function of an id, NULL if there is none. Serving and module thread; valid for this turn. */
static inline struct function *module_function(const struct module_table *table, uint32_t id)
{
	/* Pairs with the release in lookup_function(). */
	function_word *functions = atomic_load_explicit(&table->functions, memory_order_acquire);

	if (!functions || id >= FUNCTION_MAX)
		return NULL;
	return atomic_load_explicit(&functions[id], memory_order_acquire);
}

#endif
