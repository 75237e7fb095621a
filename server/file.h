// Files of memory that another process has made, or will read. No state; any thread.

#ifndef FRMPS_SERVER_FILE_H
#define FRMPS_SERVER_FILE_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

/* Largest that is read, bytes. */
#define FILE_BYTES_MAX (UINT64_C(4) << 30)

/**
 * A private copy of a file, which may change meanwhile, whatever its seals claim. Free with free().
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (no file of that size), CUDA_ERROR_INVALID_IMAGE,
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult file_read(int fd, uint64_t bytes, uint8_t **ret_bytes);

/** Reads a part of a file. Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_IMAGE (beyond the end of the
 * file). */
CUresult file_read_at(int fd, void *ret_bytes, uint64_t count, uint64_t offset);

/** Writes a part of a file, which may fail in any way. Return: CUDA_SUCCESS,
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult file_write(int fd, const void *bytes, uint64_t count, uint64_t offset);

/**
 * Makes a file system in memory of huge pages, which nobody else sees, and which ends with its last
 * file. The kernel gives huge pages to memfds only if the administrator has enabled that for the
 * whole machine.
 * Return: a folder, the caller's. Negative: the process may not make a file system, or the kernel
 * has none
 */
int file_huge_folder(void);
/**
 * Makes a file in memory, which has no name.
 * @folder: of huge pages, or negative
 * @name: for people, if there is no such folder
 * Return: the caller's; negative: see errno
 */
int file_in_memory(int folder, const char *name);

#endif
