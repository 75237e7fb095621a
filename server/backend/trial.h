// The proof by trial that a backend contains faults: a kernel faults on purpose beside a kernel
// that counts.

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

/* The backend's kernels for a trial. */
struct trial_kernels {
	const void *image;
	size_t bytes;
	/* Makes code of the image, on the heap; NULL: the image is code. */
	CUresult (*compile)(const void *image, size_t bytes, void **ret_code, size_t *ret_bytes);
	/* Each thread counts in a word of its own in `counts`, and in other places beside, until
	 * the word at `gate` is not 0. Then the thread writes its two other counts into two words
	 * of its own in `results`. Three parameters: the addresses counts, results, gate. */
	const char *survivor;
	uint32_t blocks, threads; /* blocks * threads <= TRIAL_THREADS_MAX */
	/* Kernels of a single thread without parameters, and their faults; a NULL name ends the
	 * list early. */
	struct {
		const char *name;
		CUresult code;
	} culprits[TRIAL_CULPRITS];
};

/**
 * Tries the context of this process. Replaces backend_watch: nobody else gets reports of faults
 * from here on. Its objects are left behind, so the process must end.
 * @patience_ms: for each step, of the time in which this process runs: at most 10 ms count between
 *   two looks, so a machine that stands still ends no trial
 * @ret_why: TRIAL_TEXT; empty, or the reason for a failure
 */
void trial_run(const struct backend_ops *ops, const struct trial_kernels *kernels, unsigned patience_ms,
	char *ret_why);

/**
 * Makes the context's first fault happen, by the first culprit. Before the service sets
 * backend_watch: until then the backend's further reports of the fault arrive here. Frees its
 * objects. Parameters as above.
 * Return: true if the fault was contained; if not, the process must end
 */
bool trial_rehearse(const struct backend_ops *ops, const struct trial_kernels *kernels, unsigned patience_ms,
	char *ret_why);

#endif
