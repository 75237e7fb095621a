// Does an image stay inside its own bytes? The driver takes images without a length and believes
// the sizes written in them, and the dynamic linker maps what they name: an image that lies about
// its size would take the whole executor with it. Both backends look at an image before anybody
// loads it.

#ifndef FRMPS_SERVER_BACKEND_IMAGE_H
#define FRMPS_SERVER_BACKEND_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum image_kind {
	IMAGE_BAD = 0,
	IMAGE_ELF,    /* headers, sections and segments lie inside */
	IMAGE_FATBIN, /* a header and entries, all inside; what is in them was not looked at */
	IMAGE_TEXT,   /* anything else that could be text; not necessarily NUL-terminated */
};

/**
 * Whether the image holds code that runs on a device as it is, so that a driver has nothing to
 * compile. No for what cannot be told. Any bytes; any thread.
 * @arch: of the device: 10 * major + minor
 */
bool image_has_code(const void *image, size_t bytes, unsigned arch);

/** The device that machine code is for, 10 * major + minor. @elf: has passed image_check() as
 * IMAGE_ELF */
unsigned image_architecture(const void *elf);

/** Whether these are the bytes of an archive (ar) whose members lie inside, and so does what is in
 * those that are images. Any bytes; any thread. */
bool image_is_archive(const void *image, size_t bytes);

/** Looks at the outer structure of an image. Any bytes, any alignment, any thread. */
enum image_kind image_check(const void *image, size_t bytes);

#endif
