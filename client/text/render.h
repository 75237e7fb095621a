// What a record of a kernel (shm/text.h) says, as text. The records are the program's own kernels',
// so a stray write may have spoiled them: nothing beyond the record is ever read, and no conversion
// is believed. Pure functions.

#ifndef FRMPS_CLIENT_TEXT_RENDER_H
#define FRMPS_CLIENT_TEXT_RENDER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/**
 * Writes what a printf() of a kernel says. What is missing in the record ends the text.
 * @words: the body: the format, then the arguments
 */
void render_printf(FILE *out, const uint64_t *words, size_t count);

/** Writes a text as it is. */
void render_plain(FILE *out, const uint64_t *words, size_t count);

/** Writes the line of an assertion that failed. */
void render_assert(FILE *out, const uint64_t *words, size_t count);

#endif
