// The files of a folder with a saved program that have bytes of the service's: pieces of memory,
// and the bundle. See archive.h. Blocking.

#ifndef FRMPS_SERVER_TOOLS_CONTENT_H
#define FRMPS_SERVER_TOOLS_CONTENT_H

#include "server/tools/archive.h"

struct earlier;

/**
 * Notes pieces, sizes and seals of the contents, once more if they have changed.
 * @fds: of each file of the archive; those of CONTENT are readable
 * Return: 0 or -errno
 */
int content_measure(struct archive *archive, const int *fds);

/**
 * Stores the pieces of the contents, and notes their hashes and fates. Uses several threads.
 * @folder: of the archive
 * @fds: as before, measured
 * @earlier: a folder to share with; NULL: none
 * Return: 0; -EBADMSG: a file has lost bytes since it was measured; or -errno
 */
int content_store(int folder, struct archive *archive, const int *fds, const struct earlier *earlier);

/**
 * Makes files in memory with the contents. Uses several threads.
 * @fds: of each file of the archive, negative before; those of CONTENT become the caller's, and are
 * negative on failure
 * Return: 0; -EBADMSG: a content is not what was stored; or -errno
 */
int content_load(int folder, const struct archive *archive, int *fds);

/** Stores the bundle. Return: 0 or -errno */
int content_store_bundle(int folder, int fd, struct archive *archive);
/** Return: as content_load() */
int content_load_bundle(int folder, const struct archive *archive, int *ret_fd);

#endif
