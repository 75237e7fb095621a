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

struct shared_fd *shared_fd_unref(struct shared_fd *shared)
{
	void (*on_last)(struct shared_fd * shared);

	if (!shared || --shared->refs)
		return NULL;
	store_forget(shared->store, shared->key);
	shared->store = NULL;
	shared->key = 0;
	on_last = shared->on_last;
	shared->on_last = NULL;
	if (on_last) {
		shared->refs = 1;
		on_last(shared);
		return NULL;
	}
	close(shared->fd);
	free(shared);
	return NULL;
}
