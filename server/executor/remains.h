// What kernels of a session's modules leave behind in the context: variables that no program has looked up,
// and what cannot be taken along. See remains.c.

#ifndef FRMPS_SERVER_EXECUTOR_REMAINS_H
#define FRMPS_SERVER_EXECUTOR_REMAINS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/executor/range.h"
#include "shm/layout.h"

/* Of one session. What is beyond cannot be taken along. */
#define REMAINS_MAX  4096u
#define REMAINS_TEXT 160u

struct function;
struct module;
struct tenant;

struct remain {
	uint32_t module;    /* the client's number */
	struct range range; /* empty: it cannot be taken along */
	char *what;	    /* the variable, or why */
};

/* Of one session. The module thread writes, as does whoever ends the session; the main thread of an executor
 * that takes over reads. */
struct remains {
	pthread_mutex_t lock;
	struct remain *at;
	uint32_t count;
	uint64_t overflow[SHM_MODULES / 64]; /* bits of modules of which there are more */
};

/* Those of modules of which something has run. */
struct remains_list {
	struct range *ranges;
	uint32_t count;
	char lost[REMAINS_TEXT]; /* something that cannot be taken along; empty: nothing is */
};

void remains_init(struct remains *remains);
void remains_deinit(struct remains *remains);

/** A module was loaded. Module thread. */
void remains_add_module(struct tenant *tenant, struct module *module);

/** Finds the variables of a module of which the first kernel has been found, in the same gap. Module thread.
 */
void remains_find(struct tenant *tenant, struct module *module);

/** The module is gone. Whoever ends the session, or the module thread. */
void remains_forget(struct tenant *tenant, const struct module *module);
/** It is gone, and its number free again: nothing of it is on a device. Only who serves the session says so.
 * Module thread. */
void remains_forget_launches(struct tenant *tenant, const struct module *module);

/** Whether a kernel of a module can leave something behind. Module thread. */
bool remains_are_left_by(struct tenant *tenant, const struct module *module, const char *kernel);

/** A kernel is about to be given to the device. Serving thread. */
void remains_note_launch(struct tenant *tenant, const struct function *function);

/**
 * Lists what kernels may have written. Any thread.
 * @ret: ranges for free()
 * Return: 0 or -ENOMEM.
 */
int remains_list(struct tenant *tenant, struct remains_list *ret);

#endif
