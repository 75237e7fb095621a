// The only place that names memory orders. Every shared word has a single writer; a reader that
// acts on a word's announcement uses word_acquire(), which pairs with the writer's word_release().
// word_relaxed() is for a word's own writer and for hints. word_fence() is the full fence of the
// two sleep protocols (doorbell.h): "publish, fence, check that the other side sleeps" against
// "announce sleep, fence, check again for work".

#ifndef FRMPS_SHM_ORDER_H
#define FRMPS_SHM_ORDER_H

#include <stdatomic.h>
#include <stdint.h>

/* Shared words. layout.h names the writer of each, per region. */
typedef _Atomic uint32_t word32;
typedef _Atomic uint64_t word64;

/* Bytes of a cache line: a write by a processor takes the line from all others. */
#define SHM_LINE 64

#define word_acquire(w)	   atomic_load_explicit((w), memory_order_acquire)
#define word_relaxed(w)	   atomic_load_explicit((w), memory_order_relaxed)
#define word_release(w, v) atomic_store_explicit((w), (v), memory_order_release)
#define word_set(w, v)	   atomic_store_explicit((w), (v), memory_order_relaxed)
/* For a word with several writers, each with bits of its own. */
#define word_add(w, bits)    atomic_fetch_or_explicit((w), (bits), memory_order_release)
#define word_remove(w, bits) atomic_fetch_and_explicit((w), ~(bits), memory_order_release)
#define word_fence()	     atomic_thread_fence(memory_order_seq_cst)

/* Tells the processor that this is a spin loop. */
static inline void word_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

/* Between two looks of a loop that must see a change at once: a pause can take 140 cycles. The
 * fence costs a few, and prevents speculative looks, which the processor would discard when the
 * word changes. */
static inline void word_glance(void)
{
#if defined(__x86_64__)
	__builtin_ia32_lfence();
#else
	word_pause();
#endif
}

#endif
