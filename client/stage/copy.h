// Copies and fills of the program. A side of a copy is device memory or an array, pinned host
// memory (the device reaches all of these), or pageable memory, which is staged. The state of a
// copy when its call returns follows the driver's rules:
//
//   pageable → device    the source was read; the copy may be in flight
//   device → pageable    done
//   host → pageable …    done, behind the stream's earlier work
//   managed ↔ pinned …   the same; an asynchronous copy with a managed side is submitted
//   pageable → managed   the same; of a small asynchronous copy the source was read
//   pinned ↔ device      done, unless asynchronous
//   device → device      submitted; from one device to another: done, unless asynchronous
//
// Where the stream's device does not reach the memory of another device (peer.h), a ferry copies
// (ferry.h). Pinned memory that it does not reach is copied as registered memory is.
//
// Any thread.

#ifndef FRMPS_CLIENT_STAGE_COPY_H
#define FRMPS_CLIENT_STAGE_COPY_H

#include <stdbool.h>

#include "client/stage/box.h"
#include "protocol/command.h"
#include "protocol/cuda_abi.h"

struct client_stream;
struct session;

enum copy_place { COPY_DEVICE, COPY_PINNED, COPY_PAGEABLE };

/* Properties of a side. */
struct copy_side {
	enum copy_place place; /* COPY_DEVICE for arrays */
	uint64_t shift;	       /* added by the device to the address of registered memory */
	bool managed;	       /* pinned memory that the program treats as the device's */
	/* Pageable memory that asynchronous copies access in stream order: registered, or pinned
	 * where the calling thread's session does not reach it. */
	bool registered;
	bool pinned;		 /* the latter */
	struct session *session; /* of device memory */
	uint64_t peers;		 /* other sessions that reach it: bit i: that of ordinal i */
	bool read_only;		 /* registered by the program as memory that the device does not write */
	bool sync; /* the program asked that synchronous calls on this memory are complete when they return */
};

/**
 * Classifies a side, as the calling thread's session reaches it. Memory that the library knows must
 * hold the whole side.
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE
 */
CUresult copy_classify(uint64_t address, uint64_t bytes, struct copy_side *ret_side);

/** True if the device of the calling thread's session reaches the side. */
bool copy_reaches(const struct copy_side *side);

/** True for memory that a call reads or writes before its return. */
static inline bool copy_is_plain(const struct copy_side *side)
{
	return side->place == COPY_PAGEABLE && !side->registered;
}

/* Properties of a copy's call. */
#define COPY_ASYNC 1u /* an asynchronous call */
#define COPY_DST_DEVICE                                                                                      \
	2u /* the destination must be memory that the device reaches: the call names a device address */
#define COPY_SRC_DEVICE 4u /* the same for the source */

/**
 * Examines a copy beforehand: the places of its sides, and if the call may name them. Simplifies
 * the box, which is not empty; shifts are not added yet. CUDA_ERROR_INVALID_VALUE.
 */
CUresult copy_examine(
	struct box *box, unsigned int how, struct copy_side *ret_dst, struct copy_side *ret_src);

/** The box of a copy in the driver's general form, and its COPY_* bits. */
CUresult copy_describe(const CUDA_MEMCPY3D *copy, struct box *ret_box, unsigned int *ret_how);

/** Writes the sides of a box that are arrays into a copy of the driver's general form. */
void copy_name_arrays(const struct box *box, CUDA_MEMCPY3D *copy);

/** True if a side of the box is an array. */
static inline bool copy_has_array(const struct box *box)
{
	return box->dst.array || box->src.array;
}

/**
 * The command that copies a box: a COPY is its first part, an ARRAY_COPY all of it. @kind:
 * FRMPS_COPY_*
 */
struct frmps_array_copy copy_form(const struct box *box, uint32_t kind);

/** Copies a box in stream order. */
CUresult copy_box(struct box box, struct client_stream *stream, unsigned int how);

/* A fill of `height` rows of `width` elements with a value. */
struct copy_fill {
	uint64_t dst, pitch;
	uint64_t width, height;
	uint32_t value;
	uint32_t element_bytes;
};

/**
 * The command of a fill that is not empty. CUDA_ERROR_INVALID_VALUE if the driver refuses the fill
 * at the call.
 */
CUresult copy_fill_form(const struct copy_fill *fill, struct frmps_set *ret_form);

/** Fills in stream order. @how: COPY_ASYNC or 0 */
CUresult copy_set(const struct copy_fill *fill, struct client_stream *stream, unsigned int how);

#endif
