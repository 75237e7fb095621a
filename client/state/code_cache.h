// Compiled code on disk, so that a program's texts are compiled once and not at each start. The
// driver has such a cache too, in the program's process and with the program's rights; its three
// variables mean the same here:
//
//   CUDA_CACHE_DISABLE   1: nothing is looked up, nothing is kept
//   CUDA_CACHE_PATH      the folder; $HOME/.nv/ComputeCache without it
//   CUDA_CACHE_MAXSIZE   bytes of all files; the least recently used ones go first
//
// The files lie in the folder `frmps` of that one. Each holds one image, the options of its
// compilation and the code that came out of both; its name is a hash of image and options. An entry
// counts only where every byte of image and options is the same and the code has its checksum, so
// neither a collision nor a torn file gives wrong code. Any number of programs read and write the
// folder at a time: a file appears whole, by a rename.
//
// A load that asks for a log is compiled: the log is part of the answer. Any thread, after cuInit.

#ifndef FRMPS_CLIENT_STATE_CODE_CACHE_H
#define FRMPS_CLIENT_STATE_CODE_CACHE_H

#include <stdbool.h>

#include "client/state/image.h"
#include "client/state/jit.h"

/** Reads the variables. By process start, when the device is known. */
void code_cache_start(void);

/**
 * Finds code for an image that would have to be compiled.
 * @ret_code: a copy of the code that can be sent in the image's place, image_close() it
 * Return: false: the image needs no compiler, or is not there
 */
bool code_cache_find(const struct image *image, const struct jit *jit, struct image *ret_code);

/**
 * Keeps what an image was compiled to. A failure costs the next program a compilation, no more.
 * @code_fd: a file with the code, sealed; still the caller's
 */
void code_cache_keep(const struct image *image, const struct jit *jit, int code_fd);

#endif
