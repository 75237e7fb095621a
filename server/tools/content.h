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

/* Contents that threads load. */
struct copies;

/**
 * Begins to make files in memory with the contents.
 * @memory: the number of the first file of device memory, which are the last to be loaded; none has
 * the number archive->count
 * @fds: of each file of the archive, negative before; those of CONTENT become the caller's, on
 * failure too
 * @ret_copies: for content_end(); NULL on failure
 * Return: 0 or -errno
 */
int content_load(
	int folder, const struct archive *archive, uint32_t memory, int *fds, struct copies **ret_copies);

/**
 * Waits, for a moment, until all files but those of device memory are complete.
 * Return: 0; -EAGAIN: some are not; -EBADMSG: a content is not what was stored; or -errno
 */
int content_await_rest(struct copies *copies);
/**
 * Waits, for a moment, until there is more of device memory.
 * @ret_place: the first byte that may be missing in its files; UINT64_MAX: none is
 * Return: 0, -EBADMSG or -errno
 */
int content_await(struct copies *copies, uint64_t *ret_place);

/** Loads no more. NULL is fine. Return: NULL */
struct copies *content_end(struct copies *copies);

/** Stores the bundle. Return: 0 or -errno */
int content_store_bundle(int folder, int fd, struct archive *archive);
/** Return: 0, -EBADMSG or -errno */
int content_load_bundle(int folder, const struct archive *archive, int *ret_fd);

#endif
