// Compiled code on disk, so that a program's texts are compiled once and not at each start. The
// driver has such a cache too, in the program's process and with the program's rights; its three
// variables have the same meaning here:
//
//   CUDA_CACHE_DISABLE   1: no lookups, and nothing is stored
//   CUDA_CACHE_PATH      the folder; $HOME/.nv/ComputeCache without it
//   CUDA_CACHE_MAXSIZE   bytes of all files; the least recently used files are removed first
//
// The files lie in the subfolder `frmps`. Each holds an image, the options of its compilation and
// the resulting code; its name is a hash of image and options. An entry is valid only if every byte
// of image and options is the same and the code has its checksum, so neither a collision nor a torn
// file gives wrong code. Any number of programs read and write the folder at a time: a rename makes
// a whole file visible.
//
// A load with a log is always compiled: the log is part of the answer. Any thread, after cuInit.

#ifndef FRMPS_CLIENT_STATE_CODE_CACHE_H
#define FRMPS_CLIENT_STATE_CODE_CACHE_H

#include <stdbool.h>

#include "client/state/image.h"
#include "client/state/jit.h"

/** Reads the variables. By process start, when the device is known. */
void code_cache_start(void);

/**
 * Finds code for an image that needs a compilation.
 * @ret_code: a copy of the code that can be sent instead of the image; image_close() it
 * Return: false: the image needs no compilation, or is not cached
 */
bool code_cache_find(const struct image *image, const struct jit *jit, struct image *ret_code);

/**
 * Stores the code of a compiled image. A failure only costs the next program a compilation.
 * @code_fd: a file with the code, sealed; the caller closes it
 */
void code_cache_keep(const struct image *image, const struct jit *jit, int code_fd);

#endif
