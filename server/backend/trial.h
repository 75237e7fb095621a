// The proof by trial that a backend contains faults: a kernel faults on purpose beside one that
// counts.

#ifndef FRMPS_SERVER_BACKEND_TRIAL_H
#define FRMPS_SERVER_BACKEND_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct backend_ops;

#define TRIAL_CULPRITS	  3u
#define TRIAL_THREADS_MAX 1024u
#define TRIAL_TEXT	  256u

/* What a backend is tried with. */
struct trial_kernels {
	const void *image;
	size_t bytes;
	/* Makes code of the image, on the heap; NULL: it is code. */
	CUresult (*compile)(const void *image, size_t bytes, void **ret_code, size_t *ret_bytes);
	/* Each thread counts in a word of its own in `counts`, and in other places beside, until
	 * the word at `gate` is not 0. Then it writes what it has counted there into two words of
	 * its own in `results`. Three parameters: the addresses counts, results, gate. */
	const char *survivor;
	uint32_t blocks, threads; /* blocks * threads <= TRIAL_THREADS_MAX */
	/* Kernels of one thread without parameters, and with what they fault; fewer end with a NULL
	 * name. */
	struct {
		const char *name;
		CUresult code;
	} culprits[TRIAL_CULPRITS];
};

/**
 * Tries the context of this process. Calls backend_watch's part of the service: nobody else is told
 * of faults from here on. What it makes is left behind, so the process is to end.
 * @patience_ms: for each step, of the time in which this process runs: at most 10 ms count between
 *   two looks, so a machine that stands still ends no trial
 * @ret_why: TRIAL_TEXT; empty, or why it is not proved
 */
void trial_run(const struct backend_ops *ops, const struct trial_kernels *kernels, unsigned patience_ms,
	char *ret_why);

/**
 * Lets the context of this process have its first fault, by the first culprit. Before the service
 * sets backend_watch: until then what is still said of the fault comes here. Gives back what it has
 * made. Parameters as above.
 * Return: whether the fault was contained; if not, the process is to end
 */
bool trial_rehearse(const struct backend_ops *ops, const struct trial_kernels *kernels, unsigned patience_ms,
	char *ret_why);

#endif
