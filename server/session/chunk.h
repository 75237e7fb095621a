// A piece of device memory that the keeper made for a session. References: the holding, the request
// under way, unmappings that standbys have not answered yet. With the last reference, the daemon
// closes the descriptor, and the keeper, if still there, releases the memory. Or memory that no
// keeper here knows: pinned host memory that has a handle or was exported, which is a file of the
// daemon; or memory of another device of the service, which that device's daemon has lent
// (daemon/lending.h).
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_CHUNK_H
#define FRMPS_SERVER_SESSION_CHUNK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct chunk;
struct daemon;
struct offer;
struct kept_chunk;
struct record;
struct shared_fd;

/* The owner of chunks that nobody holds any more (offer.h). */
struct chunk_exported {
	bool (*is_wanted)(const struct chunk *chunk);
	void (*take)(struct chunk *chunk); /* the last reference */
	void (*end)(struct chunk *chunk);
};

enum chunk_kind {
	CHUNK_DEVICE,
	CHUNK_HOST,	/* never emptied */
	CHUNK_BORROWED, /* of another device: counts there, and is never emptied */
};

/* Whether another device may have the chunk mapped (exports_is_lent()). */
enum chunk_lent {
	CHUNK_NOT_LENT,
	CHUNK_LENT,
	/* by an earlier life of the daemon, which alone had the file that tells: until it ends */
	CHUNK_LENT_FOR_GOOD,
};

struct chunk {
	struct daemon *daemon;
	enum chunk_kind kind;
	unsigned refs;
	bool doomed;	 /* unmapped, on its way back (reclaim.h) */
	uint64_t handle; /* the keeper's; no other keeper knows the handle */
	/* number of the keeper that made the chunk, and may have ended since; 0: none */
	uint32_t keeper;
	/* proves the right to import the chunk (ExportMemory), and names the device where the
	 * chunk was made (WIRE_TOKEN_DEVICE): the same for good, wherever its programs go */
	uint64_t token[2];
	enum chunk_lent lent;
	unsigned holders; /* holdings of the chunk, of any session */
	/* number of the session that freed the chunk; 0: in use, or its holder ended */
	uint64_t freed_by;
	/* Those of the holders that count as memory. The session of the first owns the chunk
	 * (holdings.h). */
	TAILQ_HEAD(, holding) owners;
	bool is_shared; /* of several sessions, exported, or lent (holdings_note_sharing()) */
	/* NULL: empty, the content is in host memory (standby/swap.c) */
	struct shared_fd *fd;
	uint64_t place;	 /* of the content, bytes from the start of the files of its sessions */
	uint64_t offset; /* CHUNK_HOST: of the memory in the file, bytes */
	/* CHUNK_BORROWED, or CHUNK_HOST that another device's daemon has lent: open while the chunk
	 * is in use here; NULL: the chunk is this daemon's to count and to free */
	struct shared_fd *lease;
	const struct record *record;	       /* while doomed, or left without a holder */
	const struct chunk_exported *exported; /* behind `offer` */
	struct offer *offer;		       /* NULL: it was not exported */
};

/** Takes the descriptor over, on failure (NULL) too; the keeper's handle is then released at once.
 * @fd: -1: the daemon had no room for the descriptor, which is a failure */
struct chunk *chunk_new(struct daemon *daemon, uint64_t handle, int fd);
/** Makes a chunk of host memory. @fd: a reference is taken; @offset: of the memory in it, bytes */
struct chunk *chunk_new_host(struct daemon *daemon, struct shared_fd *fd, uint64_t offset);
/** Makes a chunk of another device's memory. @kind: CHUNK_BORROWED or CHUNK_HOST; @fd, @lease:
 * taken over, on failure (NULL: a descriptor is missing) too */
struct chunk *chunk_new_borrowed(
	struct daemon *daemon, enum chunk_kind kind, const uint64_t token[2], int fd, int lease);
struct chunk *chunk_ref(struct chunk *chunk);
/** Makes a chunk without memory. */
struct chunk *chunk_new_empty(struct daemon *daemon, const uint64_t token[2]);
/** Empties a chunk. Return: another chunk, which has the memory, and has no other reference. Doom
 * that chunk once the records say that the first is empty. */
struct chunk *chunk_split(struct chunk *chunk);
/** NULL is fine. */
static inline bool chunk_is_host(const struct chunk *chunk)
{
	return chunk && chunk->kind == CHUNK_HOST;
}
/** True if the memory is this device's, or will be. NULL: false. */
static inline bool chunk_is_own(const struct chunk *chunk)
{
	return chunk && chunk->kind == CHUNK_DEVICE;
}
/** Gives an empty chunk memory. @fd: taken over, on failure too; the keeper's handle is then
 * released. Return: true on success */
bool chunk_fill(struct chunk *chunk, uint64_t handle, int fd);
/** The owner freed the chunk: the last reference releases it, unless the chunk is wanted then. */
void chunk_doom(struct chunk *chunk);
/** The chunk has an owner again. */
void chunk_unleave(struct chunk *chunk);
/** The caller is about to drop a reference: if that is the last, dooms the chunk and records that
 * first. */
void chunk_leave(struct chunk *chunk);
/** The chunk's name in records; NULL is fine. */
void chunk_name(const struct chunk *chunk, struct kept_chunk *ret_kept);
/** A chunk of an earlier life of the daemon. @fd, @lease: taken over; @lease: NULL: none */
struct chunk *chunk_adopt(
	struct daemon *daemon, const struct kept_chunk *kept, struct shared_fd *fd, struct shared_fd *lease);
/** Has the keeper release a chunk that an earlier life of the daemon had doomed. @record: of that
 * chunk */
void chunk_release(struct daemon *daemon, const struct kept_chunk *kept, const struct record *record);
/** NULL is fine. Return: NULL. */
struct chunk *chunk_unref(struct chunk *chunk);

#endif
