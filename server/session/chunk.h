// A piece of device memory that the keeper made for a session, counted by those who need it: the
// holding, the request that asks for it, unmappings that standbys have not answered yet. With the
// last reference its descriptor is closed and the keeper lets it go, if it is still there. Or a
// piece of pinned host memory with a handle: a file of the daemon, which no keeper knows. Daemon,
// loop thread only.

#ifndef FRMPS_SERVER_SESSION_CHUNK_H
#define FRMPS_SERVER_SESSION_CHUNK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct chunk;
struct daemon;
struct offer;
struct holding;
struct kept_chunk;
struct kept_doomed;
struct record;
struct shared_fd;

/* Who keeps a chunk that nobody holds any more (offer.h). */
struct chunk_exported {
	bool (*is_wanted)(const struct chunk *chunk);
	void (*take)(struct chunk *chunk); /* the last reference */
	void (*end)(struct chunk *chunk);
};

struct chunk {
	struct daemon *daemon;
	unsigned refs;
	bool doomed;	   /* unmapped, on its way back (reclaim.h) */
	uint64_t handle;   /* the keeper's, which no other one knows */
	uint32_t keeper;   /* which keeper of the service's life made it; it may have ended since; 0: none */
	uint64_t token[2]; /* proves the right to import it (ExportMemory) */
	unsigned holders;  /* holdings that have it, of any session */
	uint64_t freed_by; /* number of the session that gave it back; 0: it is there, or its holder ended */
	/* Those among them that count as memory. The first one's session owns it (holdings.h). */
	TAILQ_HEAD(, holding) owners;
	struct shared_fd *fd;	     /* NULL: it is empty: its content is in host memory (standby/swap.c) */
	const struct record *record; /* while doomed, or left without one that holds it */
	const struct chunk_exported *exported; /* behind `offer` */
	struct offer *offer;		       /* NULL: it was not exported */
};

/** Takes the descriptor over, on failure (NULL) too; the keeper's handle is then released at
 * once. @fd: -1: there was no room for it, which is a failure */
struct chunk *chunk_new(struct daemon *daemon, uint64_t handle, int fd);
/** One of host memory. @fd: a reference is taken. */
struct chunk *chunk_new_host(struct daemon *daemon, struct shared_fd *fd);
struct chunk *chunk_ref(struct chunk *chunk);
/** One that is empty, and has been since an earlier life of the daemon. */
struct chunk *chunk_new_empty(struct daemon *daemon, const uint64_t token[2]);
/** Empties a chunk. Return: another one that has its memory, and that nothing else refers to. It is
 * to be doomed when the first one's records say that it is empty. */
struct chunk *chunk_split(struct chunk *chunk);
/** Whether it is host memory: that is never emptied. NULL is fine. */
static inline bool chunk_is_host(const struct chunk *chunk)
{
	return chunk && chunk->fd && !chunk->keeper;
}
/** Gives an empty chunk memory. @fd: taken over, on failure too; the keeper's handle is then
 * released. Return: whether it has it */
bool chunk_fill(struct chunk *chunk, uint64_t handle, int fd);
/** Its owner gave it back: it will be released when the last reference goes, if it is not wanted
 * then. */
void chunk_doom(struct chunk *chunk);
/** It has an owner again. */
void chunk_unleave(struct chunk *chunk);
/** One reference is about to go: if it is the last one, the chunk is doomed, and that is recorded
 * first. */
void chunk_leave(struct chunk *chunk);
/** How records name it; NULL is fine. */
void chunk_name(const struct chunk *chunk, struct kept_chunk *ret_kept);
/** A chunk of an earlier life of the daemon. @fd: taken over, also on failure (NULL) */
struct chunk *chunk_adopt(struct daemon *daemon, const struct kept_chunk *kept, struct shared_fd *fd);
/** Has the keeper let go of what an earlier life of the daemon had doomed. It is recorded in
 * @record. */
void chunk_release(struct daemon *daemon, const struct kept_chunk *kept, const struct record *record);
/** NULL is fine. Return: NULL. */
struct chunk *chunk_unref(struct chunk *chunk);

#endif
