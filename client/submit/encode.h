// Kernel launches as records: makes the checks that the driver makes at the call, and writes the
// body of a LAUNCH command. Pure functions of their arguments, on the program's threads;
// encode_launch() runs inside the ring's critical section and only writes memory.

#ifndef FRMPS_CLIENT_SUBMIT_ENCODE_H
#define FRMPS_CLIENT_SUBMIT_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/state/function.h"
#include "protocol/command.h"
#include "protocol/cuda_abi.h"

/* A launch as the program requested it, with pointers into the program's memory. */
struct launch {
	const struct client_function *function;
	uint32_t grid[3], block[3];
	uint32_t shared_bytes;
	bool cooperative;	      /* goes as a flag of the record, never as an attribute */
	bool extended;		      /* was called with a configuration */
	bool is_node;		      /* becomes a node, which may get more attributes */
	struct client_stream *stream; /* that the program made; NULL: a default stream, or none */
	/* Arguments: pointers to each, or one packed buffer, or neither for a kernel without
	 * parameters. */
	void *const *params;
	const void *buffer;
	size_t buffer_bytes;
	/* The given attributes, the number that goes into the record, and the number of events to
	 * be recorded. */
	const CUlaunchAttribute *attributes;
	uint32_t attribute_total, attribute_count, event_count;
};

/** Sizes of grid, block and dynamic shared memory against the kernel and the device. A block of one
 * thread becomes the only size that the kernel has, if any. */
CUresult encode_check(struct launch *launch);

/** Blocks of a cluster of a checked launch; 0: no clusters. */
uint32_t encode_cluster_blocks(const struct launch *launch);

/**
 * Takes the program's arguments in either form.
 * @params, @extra: as in cuLaunchKernel; not both
 * Return: CUDA_ERROR_INVALID_VALUE if an argument is missing
 */
CUresult encode_arguments(struct launch *launch, void **params, void **extra);

/** Whether no later one is of the kind of an attribute: only that one counts. */
bool encode_is_last(const CUlaunchAttribute *attributes, uint32_t count, uint32_t at);

/**
 * Takes launch attributes.
 * Return: CUDA_ERROR_INVALID_VALUE for those that launches do not have, and for values that are
 * none; CUDA_ERROR_NOT_SUPPORTED for those that name nodes;
 * CUDA_ERROR_INVALID_HANDLE without an event
 */
CUresult encode_attributes(struct launch *launch, const CUlaunchAttribute *attributes, uint32_t count);

/** The event of an attribute, or NULL. */
CUevent encode_event(const CUlaunchAttribute *attribute);

/** False for a value that the driver refuses, of an attribute that has one. */
bool encode_is_value(CUlaunchAttributeID id, const CUlaunchAttributeValue *value);
/** Bytes of an attribute's value; the rest of the union is unused. */
size_t encode_value_bytes(CUlaunchAttributeID id);
/** An attribute in the form for records and questions. */
void encode_attribute(const CUlaunchAttribute *attribute, struct frmps_launch_attribute *ret_attribute);

/** Bytes of body and payload. */
static inline uint32_t encode_bytes(const struct launch *launch)
{
	return (uint32_t)(sizeof(struct frmps_launch) +
			  launch->attribute_count * sizeof(struct frmps_launch_attribute) +
			  launch->function->argument_bytes);
}

/** Writes body and payload: encode_bytes() bytes. Never reads the written bytes. */
void encode_launch(const struct launch *launch, void *body);

#endif
