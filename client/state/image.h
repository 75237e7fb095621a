// Images of modules: how many bytes a program handed over when all it gave is an address, and a
// copy of them in a sealed file of the service. Recognised by the first bytes:
//
//   fatbin wrapper   stands for the fatbin it points to (see below for version 2)
//   fatbin           header and payload, the header says how long the payload is
//   ELF, 64 bits     up to the furthest end of a section or of a header table (a cubin has its
//                    program headers last; a kernel library of the host backend is an ordinary
//                    shared object)
//   anything else    source text, with white space in front or not, up to and with its NUL
//
// A wrapper of version 2 comes from separately compiled device code (nvcc -rdc=true). What it
// points to is the linked result, which is all the driver needs where that holds machine code for
// the device. Its list of the unlinked inputs, from which the driver would link anew for a device
// that the program was not built for, is not sent: on such a device the load fails with the
// driver's own error and a line in the log says why.
//
// Any thread, no state. A program's bytes are read through the kernel, so a wrong or cut image
// gives an error instead of a crash.

#ifndef FRMPS_CLIENT_STATE_IMAGE_H
#define FRMPS_CLIENT_STATE_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/* Longer images are refused. */
#define IMAGE_BYTES_MAX (UINT64_C(4) << 30)

struct control_answer;
struct wire_message;

struct image {
	int fd;	       /* memfd, sealed against every change, close-on-exec; -1: none */
	uint64_t file; /* what the service calls it */
	uint64_t bytes;
	bool relocatable; /* came in a wrapper of version 2 */
};

/**
 * Copies the image at an address of this process.
 * Return: CUDA_ERROR_INVALID_VALUE for NULL, CUDA_ERROR_INVALID_IMAGE for what is none, is cut off
 * or is too long, CUDA_ERROR_OUT_OF_MEMORY, errors of image_leave_out(). image_close() the result.
 */
CUresult image_open(const void *code, struct image *ret_image);

/** The same from a file; CUDA_ERROR_FILE_NOT_FOUND where it cannot be read. Text needs no NUL at
 * its end. */
CUresult image_open_file(const char *path, struct image *ret_image);

/** A sealed copy of so many bytes, all of them readable, which were an image before. */
CUresult image_copy(const void *at, uint64_t bytes, bool relocatable, struct image *ret_image);

/**
 * Sends a request that names the image's file. A service that does not know the file (any more)
 * gets a new one.
 * @file: the request's word for it
 * Return: as control_call()
 */
CUresult image_send(
	struct image *image, struct wire_message *request, uint64_t *file, struct control_answer *answer);

void image_close(struct image *image);

/**
 * Measures an image of which at most `available` bytes may be looked at, all of them readable.
 * Wrappers are refused. Return: CUDA_ERROR_INVALID_IMAGE unless the whole image lies within them.
 */
CUresult image_measure(const void *at, uint64_t available, uint64_t *ret_bytes);

#endif
