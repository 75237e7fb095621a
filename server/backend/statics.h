// What kernels can leave behind in a context but in the memory that they are given: their module's
// variables (objects of static storage duration, hence the name) and what functions of the driver's
// keep for them. Read from the image before it is loaded: it is lost with the executor
// (executor/remains.c).

#ifndef FRMPS_SERVER_BACKEND_STATICS_H
#define FRMPS_SERVER_BACKEND_STATICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Variables of an image that are kept apart; an image with more of them counts as not
 * understood. */
#define STATICS_MAX 4096u

struct statics_variable {
	char *name; /* as the image spells it */
	uint64_t bytes;
};

/* All zero: kernels leave nothing behind. */
struct statics {
	struct statics_variable *variables; /* that kernels may write; no two of one name */
	uint32_t count;
	const char *more; /* why there is, or may be, more than these: a sentence's end; NULL: there is not */
	bool calls;	  /* kernels call functions of the driver's, also of those that keep nothing */
	bool nests;	  /* kernels launch kernels */

	/* Kernels that may write them; every: all may. If there is more, all may. */
	char **kernels;
	uint32_t kernel_count;
	bool every;
};

/**
 * Adds what another image's kernels can leave behind; only one of the two will be loaded.
 * @statics: its variables are in order, and still are afterwards
 */
void statics_merge(struct statics *statics, const struct statics *other);

/** Puts its variables in the order of their names. */
void statics_sort(struct statics *statics);

/** Adds one variable. `more` says so if that cannot be. */
void statics_add(struct statics *statics, const char *name, uint64_t bytes);

/** Adds a kernel that may write them. */
void statics_add_kernel(struct statics *statics, const char *name);

/** Says why there may be more; the first reason stays. @why: is not copied */
void statics_add_more(struct statics *statics, const char *why);

static inline bool statics_are_none(const struct statics *statics)
{
	return !statics->count && !statics->more;
}

/** Whether a kernel can leave something behind. */
bool statics_reached_by(const struct statics *statics, const char *kernel);

void statics_deinit(struct statics *statics);

#endif
