// The page for last words: an executor's notes about faults, which outlive the executor. The
// executor writes, the daemon reads a copy. Daemon, loop thread only.

#ifndef FRMPS_SERVER_WORKER_WORDS_H
#define FRMPS_SERVER_WORKER_WORDS_H

#include <stdbool.h>
#include <stdint.h>

struct last_words;
struct worker;

/** Makes the page of a worker that starts. @ret_fd: for the worker to inherit. Return: 0 or
 * -errno */
int words_make(struct worker *worker, int *ret_fd);
/** Maps the page again in another life of the daemon. @fd: stays the caller's. Return: 0 or
 * -errno */
int words_map(struct worker *worker, int fd);
void words_unmap(struct worker *worker);

/**
 * Copies the last words, except about faults that are settled: those are no evidence of another
 * fault.
 * @ret_words: LAST_WORDS_MAX entries; those without magic are empty
 */
void words_read(const struct worker *worker, struct last_words *ret_words);

/** Faults up to this number are settled; a number below an earlier one changes nothing. */
void words_settle(struct worker *worker, uint32_t number);

/** True if a process that this signal ended has crashed. */
bool words_is_crash(int signal);
/** True if a reaped worker has crashed, and names no kernel of a session that was the cause. */
bool words_is_unexplained(const struct worker *worker);

#endif
