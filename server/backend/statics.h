// State that kernels can leave behind in a context, outside the memory of their parameters: their
// module's variables (objects of static storage duration, hence the name) and state of the driver's
// functions. Read from the image before the load: the state is lost with the executor
// (executor/remains.c).

#ifndef FRMPS_SERVER_BACKEND_STATICS_H
#define FRMPS_SERVER_BACKEND_STATICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Variables of an image that are listed separately; an image with more counts as not understood. */
#define STATICS_MAX 4096u

struct statics_variable {
	char *name; /* in the image's spelling */
	uint64_t bytes;
};

/* All zero: kernels leave nothing behind. */
struct statics {
	struct statics_variable *variables; /* that kernels may write; all names differ */
	uint32_t count;
	const char *more; /* why there is, or may be, more than these: a sentence's end; NULL: there is not */
	bool calls;	  /* kernels call functions of the driver, also those without a state */
	bool nests;	  /* kernels launch kernels */

	/* Kernels that may write the variables; every: all may. With `more`, all may. */
	char **kernels;
	uint32_t kernel_count;
	bool every;
};

/**
 * Adds the state that another image's kernels can leave behind; only one of the two images will be
 * loaded.
 * @statics: its variables are sorted, and stay so
 */
void statics_merge(struct statics *statics, const struct statics *other);

/** Sorts the variables by name. */
void statics_sort(struct statics *statics);

/** Adds a variable, or sets `more` if that is impossible. */
void statics_add(struct statics *statics, const char *name, uint64_t bytes);

/** Adds a kernel that may write the variables. */
void statics_add_kernel(struct statics *statics, const char *name);

/** Records why there may be more; the first reason stays. @why: is not copied */
void statics_add_more(struct statics *statics, const char *why);

static inline bool statics_are_none(const struct statics *statics)
{
	return !statics->count && !statics->more;
}

/** True if a kernel can leave something behind. */
bool statics_reached_by(const struct statics *statics, const char *kernel);

void statics_deinit(struct statics *statics);

#endif
