// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Asks, in a process of its own, which backend this machine can run: the daemon itself never loads the
// driver, and the question needs the children's environment anyway.

#ifndef FRMPS_SERVER_PROBE_H
#define FRMPS_SERVER_PROBE_H

#include <stddef.h>
#include <stdint.h>

/* The answer, as it travels through a pipe. */
struct probe_answer {
	char backend[16]; /* name of the backend that works; empty if none does */
	int32_t device_count;
	char text[256]; /* why nothing works, or why auto did not take the GPU; may be empty */
};

/**
 * Spawns the question and waits for its answer.
 * @backend: auto, cuda or host
 * @environment: of the child
 * Return: 0 or -errno; @ret_answer->backend says whether there is a backend
 */
int probe_ask(const char *backend, char *const *environment, struct probe_answer *ret_answer);

/** The child: answers on the descriptor. Return: exit code. */
int probe_main(const char *backend, int answer_fd);

#endif
