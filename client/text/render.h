// Renders a kernel's record (shm/text.h) as text. The program's own kernels write the records, so a
// stray write may have corrupted them: the functions never read beyond the record, and trust no
// conversion. Pure functions.

#ifndef FRMPS_CLIENT_TEXT_RENDER_H
#define FRMPS_CLIENT_TEXT_RENDER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/**
 * Renders a printf() of a kernel. The text ends where the record lacks data.
 * @words: the body: the format, then the arguments
 */
void render_printf(FILE *out, const uint64_t *words, size_t count);

/** Renders a text unchanged. */
void render_plain(FILE *out, const uint64_t *words, size_t count);

/** Writes the line of an assertion that failed. */
void render_assert(FILE *out, const uint64_t *words, size_t count);

#endif
