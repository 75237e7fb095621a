// The stash: room on the device for a copy of the memory of sessions that are saved. They stand
// still only until the copy is there, and go on while files are filled from it.
//
//   stash_begin()  the keeper makes memory, from what nobody has a claim to, and the executor of
//    │             the sessions maps it; they work meanwhile
//    ▼ stash_is_ready()
//   TAKES          swap copies their memory there: byte N of all is byte N of the stash, and of
//    │             the files. Memory beyond the stash goes to the files at once
//    ▼ stash_store()
//   STORES         the executor copies from there to the files; memory of which nothing is left
//    │             goes back
//    ▼ stash_is_gone()
//
// The stash is the service's, and no session's: no limit counts it, and programs that ask for the
// free memory see it as free. Who needs memory gets it back (stash_give_back()). While the sessions
// stand still all then goes to the files at once, as without a stash; later the copy is lost.
//
// The memory is doomed as soon as it is made (session/chunk.h), so requests without memory wait for
// it, and the next life of the daemon has it released. That life has the executor unmap it as well
// (stash_adopt()). Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_STASH_H
#define FRMPS_SERVER_STANDBY_STASH_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct pieces;
struct shared_fd;
struct stash;
struct swap_group;
struct worker;

/**
 * Begins to make a stash for sessions, all of their memory if there is room, or the first part. The
 * user looks at the stash when DAEMON_DUE_DEPARTURE says so, until stash_drop().
 * Return: NULL: there is no room, or more than one executor has the memory
 */
struct stash *stash_begin(const struct swap_group *members);
/** True once there is what there will be, or nothing. */
bool stash_is_ready(const struct stash *stash);
/**
 * True once all is stored, or lost. NULL is not gone.
 * @ret_code: CUDA_SUCCESS: the files are complete; @ret_text: static, the reason of a failure
 */
bool stash_is_gone(const struct stash *stash, int32_t *ret_code, const char **ret_text);
/** The user is done, whatever has become of the stash. NULL is fine. Return: NULL */
struct stash *stash_drop(struct stash *stash);

/** True if the executor may copy these bytes into the stash. NULL is fine */
bool stash_has_room(const struct stash *stash, const struct worker *executor, uint64_t place, uint64_t bytes);
/** Where that byte belongs. */
uint64_t stash_address(const struct stash *stash, uint64_t place);
/** True if what was copied into the stash is not there any more, or the files do not get it. NULL
 * is fine */
bool stash_is_lost(const struct stash *stash);

/** All is copied: the executor fills the files with what is in the stash.
 * @files: KEPT_SWAP_FILES; a reference to each is taken */
void stash_store(struct stash *stash, const struct pieces *pieces, struct shared_fd *const *files);
/** True from then on. NULL is fine */
bool stash_is_storing(const struct stash *stash);

/** Somebody needs memory of the device. Return: true if some is on its way back from the stash, or
 * was a moment ago */
bool stash_give_back(struct daemon *daemon);
/** The same, if the stash has what is promised to others, or in use by now. */
void stash_give_way(struct daemon *daemon);
/** Memory that the executor has mapped for the stash, and that is not on its way back, bytes. */
uint64_t stash_bytes(const struct daemon *daemon);

/** An earlier life of the daemon may have ended with a stash: it is unmapped. */
void stash_adopt(struct daemon *daemon);

#endif
