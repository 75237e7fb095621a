// Sleeping and waking across processes, both directions.
//
//   client has work, executor may sleep          client thread waits, executor makes progress
//   ───────────────────────────────────          ────────────────────────────────────────────
//   client                executor               client                      executor
//   publish tail          asleep = 1             seen = wake                 done mark arrives
//   fence                 fence                  look at done, state         wake += 1
//   asleep? → eventfd     look at all tails      futex wait while            futex wake all
//                         epoll_wait             wake == seen
//
// The two fences (word_fence) forbid that both sides look before the other's store is visible. An
// eventfd belongs to a session and outlives executors; writing to it too often costs time, never
// correctness.

#ifndef FRMPS_SHM_DOORBELL_H
#define FRMPS_SHM_DOORBELL_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/order.h"

/**
 * Rings if the other side sleeps. Call after publishing; contains the fence. Any thread; no
 * cancellation point.
 */
void doorbell_ring(int eventfd, const word32 *asleep);

/** Rings in any case. */
void doorbell_force(int eventfd);

/**
 * Empties an eventfd that epoll reported; never waits, whatever the other side has done to the
 * eventfd.
 */
void doorbell_drain(int eventfd);

/**
 * Sleeps until the word differs from `seen` or the time is over; may return early without a reason.
 * This process may have only read access to the word.
 * @timeout_us: microseconds, 0 = do not sleep
 */
void wake_wait(const word32 *word, uint32_t seen, uint64_t timeout_us);

/**
 * Changes the word and wakes all threads that sleep on it. Only the word's writer process calls
 * this.
 */
void wake_all(word32 *word);

#endif
