// Does an image stay inside its own bytes? The driver takes images without a length and believes
// the sizes in them, and the dynamic linker maps all parts that they name: an image with a false
// size would crash the whole executor. Both backends check an image before any load.

#ifndef FRMPS_SERVER_BACKEND_IMAGE_H
#define FRMPS_SERVER_BACKEND_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

enum image_kind {
	IMAGE_BAD = 0,
	IMAGE_ELF,    /* headers, sections and segments lie inside */
	IMAGE_FATBIN, /* a header and entries, all inside; the contents of entries were not checked */
	IMAGE_TEXT,   /* anything else that could be text; not necessarily NUL-terminated */
};

/**
 * True if the image has code for a device as it is, so that a driver has nothing to compile. False
 * if that is unknown. Any bytes; any thread.
 * @arch: of the device: 10 * major + minor
 */
bool image_has_code(const void *image, size_t bytes, unsigned arch);

/** The device that machine code is for, 10 * major + minor. @elf: has passed image_check() as
 * IMAGE_ELF */
unsigned image_architecture(const void *elf);

/** True if these are the bytes of an archive (ar) whose members lie inside, and so do the parts of
 * those that are images. Any bytes; any thread. */
bool image_is_archive(const void *image, size_t bytes);

/** Looks at the outer structure of an image. Any bytes, any alignment, any thread. */
enum image_kind image_check(const void *image, size_t bytes);

#endif
