// A descriptor with several owners: a chunk's descriptor is in a ledger and in the output queues of
// several executors at the same time. Daemon, loop thread only (plain count).

#ifndef FRMPS_SERVER_LOOP_SHARED_FD_H
#define FRMPS_SERVER_LOOP_SHARED_FD_H

#include <stdbool.h>
#include <stdint.h>

struct handout;
struct store;

struct shared_fd {
	int fd;
	unsigned refs;
	struct store *store; /* that has a copy under `key`; NULL: none */
	uint32_t key;	     /* 0: not deposited */
	/* A program's own (session/taking.h): never opened once more, changed in size or given to
	 * another program. */
	bool is_programs;
	/* Gets the last reference instead of the descriptor being closed, once. NULL: the
	 * descriptor is closed */
	void (*on_last)(struct shared_fd *shared);
	struct handout *handout; /* on_last's */
};

/** Takes the descriptor over, and closes it on failure (NULL: no memory, or fd < 0). The caller
 * owns the reference. */
struct shared_fd *shared_fd_new(int fd);
/** Deposits the descriptor, once, until the last reference goes. @store: may be NULL. Return: as
 * store_deposit() */
int shared_fd_deposit(struct shared_fd *shared, struct store *store);
struct shared_fd *shared_fd_ref(struct shared_fd *shared);
/** Closes the descriptor with the last reference, or hands that on (on_last): behind the commit
 * if it is deposited. NULL is fine. Return: NULL. */
struct shared_fd *shared_fd_unref(struct shared_fd *shared);

#endif
