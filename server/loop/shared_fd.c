// Counted descriptors. See shared_fd.h.

#include "server/loop/shared_fd.h"

#include <stdlib.h>
#include <unistd.h>

#include "server/holder/store.h"

struct shared_fd *shared_fd_new(int fd)
{
	struct shared_fd *shared;

	if (fd < 0)
		return NULL;
	shared = malloc(sizeof(*shared));
	if (!shared) {
		close(fd);
		return NULL;
	}
	*shared = (struct shared_fd){.fd = fd, .refs = 1};
	return shared;
}

int shared_fd_deposit(struct shared_fd *shared, struct store *store)
{
	if (shared->key)
		return 0;
	shared->store = store;
	return store_deposit(store, shared->fd, &shared->key);
}

struct shared_fd *shared_fd_ref(struct shared_fd *shared)
{
	shared->refs++;
	return shared;
}

static void release(void *context)
{
	struct shared_fd *shared = context;
	void (*on_last)(struct shared_fd * shared) = shared->on_last;

	shared->on_last = NULL;
	if (on_last) {
		shared->refs = 1;
		on_last(shared);
		return;
	}
	close(shared->fd);
	free(shared);
}

struct shared_fd *shared_fd_unref(struct shared_fd *shared)
{
	struct store *store;

	if (!shared || --shared->refs)
		return NULL;
	/* on_last() may empty the file: only when no record names it. */
	store = shared->key ? shared->store : NULL;
	store_forget(shared->store, shared->key);
	shared->store = NULL;
	shared->key = 0;
	store_then(store, release, shared);
	return NULL;
}
