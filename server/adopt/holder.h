// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The main process of the service: it starts the daemon, keeps what the daemon must not lose, and starts
// another one when it crashes. What a life of the daemon finds is struct legacy. Single thread.

#ifndef FRMPS_SERVER_ADOPT_HOLDER_H
#define FRMPS_SERVER_ADOPT_HOLDER_H

#include <stdint.h>
#include <sys/types.h>

/* The end of a process that a daemon had started. */
struct holder_end {
	pid_t pid;
	int status; /* as from waitpid() */
};

/* What a daemon gets from the holder, its own copy: it is forked off. */
struct legacy {
	int socket; /* SOCK_SEQPACKET to the holder, struct holder_message */
	int memory; /* memfd with the records, empty at the first life */
	int *fds;   /* by key: a copy of each deposited descriptor, -1 where none is */
	uint32_t fd_count;
	struct holder_end *ends; /* ends that no daemon has settled */
	uint32_t end_count;
	unsigned stops;	   /* how often the service was told to stop */
	unsigned lives;	   /* daemons before this one */
	int latest_signal; /* what ended the one before; 0 at the first life */
};

enum holder_say {
	/* daemon → holder */
	HOLDER_DEPOSIT, /* keep the descriptor beside this under `key` */
	HOLDER_FORGET,	/* close it */
	HOLDER_SETTLED, /* the end of `pid` has been dealt with */
	HOLDER_UP,	/* everything is adopted */
	HOLDER_SYNC,	/* say HOLDER_SYNCED: what was to be forgotten before is closed */
	/* holder → daemon */
	HOLDER_ENDED, /* `pid` has ended with `status`; said until it is settled, once per life */
	HOLDER_STOP,  /* the service is to stop */
	HOLDER_SYNCED,
};

struct holder_message {
	uint32_t say; /* enum holder_say */
	uint32_t key;
	int32_t pid, status;
};

/**
 * Becomes the holder and runs daemons in children until one exits on purpose, or cannot be kept alive.
 * @run: the daemon; called in a child, which returns from holder_run() with its result
 * Return: exit code of the process, in the holder as in each child.
 */
int holder_run(int (*run)(void *context, const struct legacy *legacy), void *context);

#endif
