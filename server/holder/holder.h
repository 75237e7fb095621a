// The main process of the service: starts the daemon, preserves descriptors and records that the
// daemon must not lose, and starts another daemon after a crash. Each life of the daemon starts
// from struct legacy. Single thread.

#ifndef FRMPS_SERVER_HOLDER_HOLDER_H
#define FRMPS_SERVER_HOLDER_HOLDER_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "shm/order.h"

/* Keys are below this, whatever the limit of open files is. */
#define HOLDER_KEYS (1u << 20)

/*
 * The daemon's orders to the holder, apart from descriptors: words in memory that all lives share.
 * They need no room on a socket, and outlive the daemon. The daemon writes the words with release
 * order and then rings (legacy.bell); the holder only reads, with acquire order.
 */
struct holder_board {
	word32 up;	/* number of the latest life that has adopted everything, from 1 */
	word32 settled; /* ends that have been dealt with, over all lives, in the order of struct legacy */
	word32 syncs;	/* how often HOLDER_SYNCED was asked for, over all lives */
	word32 key_end; /* every key that was ever used is below */
	/* By key, incremented at each deposit and each forgetting: odd while the descriptor is to
	 * be preserved. The holder preserves a descriptor while its mark is that of its deposit. */
	word32 marks[HOLDER_KEYS];
};

/* The end of a process that a daemon had started. */
struct holder_end {
	pid_t pid;
	int status; /* as from waitpid() */
};

/* The holder's inheritance to a daemon, which owns its own copy after the fork. */
struct legacy {
	int socket; /* SOCK_SEQPACKET to the holder, struct holder_message */
	int memory; /* memfd with the records, empty at the first life */
	int bell;   /* eventfd: look at the board */
	struct holder_board *board;
	uint32_t fds_most; /* that the holder preserves at a time; the largest key */
	int *fds;	   /* by key: a copy of each deposited descriptor, -1 where none is */
	uint32_t fd_count;
	struct holder_end *ends; /* ends that no daemon has settled */
	uint32_t end_count;
	unsigned stops;	   /* how often the service was asked to stop */
	unsigned lives;	   /* previous daemons */
	int latest_signal; /* that ended the previous life; 0 at the first life */
};

enum holder_say {
	/* daemon → holder */
	HOLDER_DEPOSIT, /* preserve the descriptor beside this under `key`, while the key has the mark */
	/* holder → daemon */
	HOLDER_ENDED,  /* `pid` has ended with `status`; sent until settled, once per life */
	HOLDER_STOP,   /* the service is to stop */
	HOLDER_SYNCED, /* for the next `count` requests: all descriptors that were forgotten before are
			* closed */
};

struct holder_message {
	uint32_t say; /* enum holder_say */
	uint32_t key, mark, count;
	int32_t pid, status;
};

/** An empty board, which children share; to be unmapped with munmap(). Return: NULL without
 * memory. */
struct holder_board *holder_board_new(void);

/** The signals that the service handles; SIGCHLD means that a child has ended. */
void holder_signals(sigset_t *set);

/**
 * Becomes the holder and runs daemons in children until a daemon exits on purpose, or crashes too
 * often.
 * @run: the daemon; called in a child, which returns from holder_run() with its result
 * Return: exit code of the process, in the holder as in each child.
 */
int holder_run(int (*run)(void *context, const struct legacy *legacy), void *context);

#endif
