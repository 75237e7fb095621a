// The folder of an earlier checkpoint, whose pieces a later one shares: a piece with the same bytes
// is a link to the earlier folder's file. Hashes say where to look, and bytes decide: whatever has
// become of the earlier folder, a link has the right bytes. Any thread.

#ifndef FRMPS_SERVER_TOOLS_EARLIER_H
#define FRMPS_SERVER_TOOLS_EARLIER_H

#include <stdbool.h>
#include <stdint.h>

#include "server/tools/archive.h"

struct earlier;

/**
 * Opens a folder. Any build of the service may have written it: bytes are bytes.
 * @ret_text: ARCHIVE_TEXT bytes: on failure, a sentence without its subject
 * Return: for earlier_close(); NULL: there is no complete checkpoint
 */
struct earlier *earlier_open(const char *path, char *ret_text);
/** NULL is fine. Return: NULL */
struct earlier *earlier_close(struct earlier *earlier);

/**
 * Links a piece of the earlier folder, of any file and place there.
 * @piece: its hash and its bytes
 * @folder, @name: where the link is to be
 * Return: false: there is no such piece, or no link to it can be made, and so there is no file
 */
bool earlier_link(const struct earlier *earlier, const struct archive_piece *piece, const uint8_t *bytes,
	int folder, const char *name);

#endif
