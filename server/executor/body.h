// Bodies of commands in the backend's form. Pure functions.

#ifndef FRMPS_SERVER_EXECUTOR_BODY_H
#define FRMPS_SERVER_EXECUTOR_BODY_H

#include <string.h>

#include "server/executor/module.h"

/** Fills in a launch for the backend; the caller adds the tenant. Written in place, not copied:
 * this is the hot path. @body: checked, followed by the launch's parts */
static inline void body_launch(struct backend_launch *launch, const struct function *function,
	const struct frmps_launch *body, bool cooperative)
{
	const struct frmps_launch_attribute *attributes = (const void *)(body + 1);

	launch->function = function->backend;
	launch->info = &function->info;
	launch->grid[0] = body->grid_x;
	launch->grid[1] = body->grid_y;
	launch->grid[2] = body->grid_z;
	launch->block[0] = body->block_x;
	launch->block[1] = body->block_y;
	launch->block[2] = body->block_z;
	launch->shared_bytes = body->shared_bytes;
	launch->arguments = (const uint8_t *)(attributes + body->attribute_count);
	launch->argument_bytes = body->argument_bytes;
	launch->attributes = attributes;
	launch->attribute_count = body->attribute_count;
	launch->cooperative = cooperative;
}

/** Takes the part off the attributes of a graph's kernel. Return: 0: it has none */
static inline uint64_t body_take_part(struct backend_launch *launch)
{
	uint32_t count = launch->attribute_count;
	uint64_t part;

	if (!count || launch->attributes[count - 1].id != FRMPS_ATTRIBUTE_PART)
		return 0;
	launch->attribute_count--;
	memcpy(&part, launch->attributes[count - 1].value, sizeof(part));
	return part;
}

/** A copy for the backend: everything but arena offsets is final. Nothing is checked. */
struct backend_copy body_copy(const struct frmps_copy *body);

/**
 * Bytes that a box of rows spans from the first byte to the last.
 * Return: false where a size is zero, rows overlap or the sum overflows.
 */
bool body_span(
	uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t rows, uint64_t *ret_bytes);

#endif
