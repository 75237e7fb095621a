// Attributes of streams. All of them but the priority are hints: about caches, the way to wait, and
// fences between writes. The library keeps them for the program to read and for kernels that are
// captured; others run without them. Two threads that set an attribute of the same stream at once
// leave either value.

#ifndef FRMPS_CLIENT_STATE_STREAM_ATTRIBUTE_H
#define FRMPS_CLIENT_STATE_STREAM_ATTRIBUTE_H

#include <stdbool.h>

#include "protocol/cuda_abi.h"

struct client_stream;

/** Writes the bytes of the value that the attribute has. Return: false: streams have no such one */
bool stream_attribute_get(
	const struct client_stream *stream, CUlaunchAttributeID id, CUlaunchAttributeValue *ret_value);
/** Not the priority. Return: false: streams have no such attribute, or it has no such value */
bool stream_attribute_set(
	struct client_stream *stream, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);
/** All but the priority. */
void stream_attribute_copy(struct client_stream *to, const struct client_stream *from);
/** Whether the attribute, which streams have, has another value than in a new stream of the usual
 * priority. */
bool stream_attribute_differs(const struct client_stream *stream, CUlaunchAttributeID id);

#endif
