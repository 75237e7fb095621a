// Images of modules: determines the size of an image of which a program passes only the address,
// and copies the image to a sealed file of the service. The first bytes tell the kind:
//
//   fatbin wrapper   stands for its fatbin (see below for version 2)
//   fatbin           header and payload; the header has the length of the payload
//   ELF, 64 bits     up to the furthest end of a section or of a header table (a cubin has its
//                    program headers last; a kernel library of the host backend is an ordinary
//                    shared object)
//   anything else    source text, with white space in front or not, up to and with its NUL
//
// A wrapper of version 2 comes from separately compiled device code (nvcc -rdc=true). The wrapper
// points to the linked result, which is all that the driver needs if that holds machine code for
// the device. Its list of unlinked inputs is not sent; the driver would link these for a device
// that the program was not built for. On such a device the load fails with the driver's own error
// and a line in the log has the reason.
//
// Any thread, no state. The kernel reads the program's bytes, so a wrong or truncated image gives
// an error instead of a crash.

#ifndef FRMPS_CLIENT_STATE_IMAGE_H
#define FRMPS_CLIENT_STATE_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

/* Longer images are refused. */
#define IMAGE_BYTES_MAX WIRE_FILE_BYTES

struct control_answer;

struct image {
	int fd;	       /* memfd, sealed against every change, close-on-exec; -1: none */
	uint64_t file; /* the service's number of the file */
	uint64_t bytes;
	bool relocatable; /* came in a wrapper of version 2 */
};

/**
 * Copies the image at an address of this process.
 * Return: CUDA_ERROR_INVALID_VALUE for NULL, CUDA_ERROR_INVALID_IMAGE for an invalid, truncated or
 * too long image, CUDA_ERROR_OUT_OF_MEMORY, errors of image_leave_out(). image_close() the result.
 */
CUresult image_open(const void *code, struct image *ret_image);

/**
 * As image_open(), from a file; CUDA_ERROR_FILE_NOT_FOUND for an unreadable file. Text needs no NUL
 * at its end.
 */
CUresult image_open_file(const char *path, struct image *ret_image);

/** A sealed copy of so many readable bytes, which were checked as an image before. */
CUresult image_copy(const void *at, uint64_t bytes, bool relocatable, struct image *ret_image);

/**
 * Sends a request that names the image's file. A service that does not know the file (any more)
 * gets a new file.
 * @file: the request's word for it
 * Return: as control_call()
 */
CUresult image_send(
	struct image *image, struct wire_message *request, uint64_t *file, struct control_answer *answer);

void image_close(struct image *image);

/**
 * Measures an image within at most `available` readable bytes. Refuses wrappers. Return:
 * CUDA_ERROR_INVALID_IMAGE unless the bytes hold the whole image.
 */
CUresult image_measure(const void *at, uint64_t available, uint64_t *ret_bytes);

#endif
