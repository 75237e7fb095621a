// Parts of a device's multiprocessors, as programs split them for green contexts. The program sees
// a CUdevResource, which it copies around; the part is in the bytes there that are the driver's
// own. So nothing is kept here but descriptors, which the interface never gives back. Any thread.
//
// The device's multiprocessors come in units, which the service can give to a stream in any
// combination, and some beside all units, which count as one unit more (shm/layout.h, `part` of
// shm_stream_entry). A program with a share of the device splits its share.

#ifndef FRMPS_CLIENT_STATE_PART_H
#define FRMPS_CLIENT_STATE_PART_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

/* A part of a device. */
struct part {
	uint64_t mask;	  /* bit i: has unit i; bit `units`: has those beside all units */
	uint32_t units;	  /* of the program's share of the device */
	uint32_t granule; /* multiprocessors of a unit */
	uint32_t beside;  /* those beside all units */
	int32_t device;
	uint32_t is_piece; /* 1: of a split, and not to be split again until a green context has it */
};

/** How many multiprocessors a part has. */
uint32_t part_count(const struct part *part);

/**
 * All multiprocessors of a device that the program has, at this moment. @device: a valid ordinal
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED: the device's cannot be split
 */
CUresult part_of_device(int device, struct part *ret_part);

/** Writes a part in the program's form. */
void part_show(const struct part *part, CUdevResource *ret_resource);

/**
 * Splits a part into groups of at least so many multiprocessors each.
 * @ret_groups: NULL: none are wanted, but their number
 * @groups: room there; becomes the number of groups
 * @ret_rest: what is left over, of no type if nothing is; NULL: not wanted
 * Return: CUDA_ERROR_INVALID_RESOURCE_TYPE: no multiprocessors;
 * CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: the part has fewer, or is of a split itself;
 * CUDA_ERROR_INVALID_VALUE
 */
CUresult part_split(CUdevResource *ret_groups, unsigned int *groups, const CUdevResource *of,
	CUdevResource *ret_rest, unsigned int flags, unsigned int least);

/**
 * A descriptor of parts together, valid for the life of the process.
 * @count: at least 1
 * Return: CUDA_ERROR_INVALID_RESOURCE_TYPE, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: the parts
 * are not of one device; CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult part_describe(
	const CUdevResource *resources, unsigned int count, CUdevResourceDesc *ret_description);

/** The part of a descriptor; of NULL: the whole device. CUDA_ERROR_INVALID_VALUE for any other
 * value, and for a part of another device; errors of part_of_device(). @device: a valid ordinal */
CUresult part_described(CUdevResourceDesc description, int device, struct part *ret_part);

#endif
