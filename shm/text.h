// Text that kernels print, on its way to the program: a ring in the program's own pinned memory, at
// the end of the host part of its window, that its kernels write and its own process empties. No
// executor reads it, so it is there as long as the program is, whatever becomes of executors.
//
// The program makes the ring when it has loaded a module whose kernels print or assert. A record
// lies at its position modulo `bytes` and may wrap; words of eight bytes never do.
//
//   kernel   takes room: `head` moves on by the record's size, whatever was there; writes the
//            record but for its first word; then the first word, which says where it lies as well,
//            so that it cannot be mistaken for an older one
//   program  the first word at its place is that of a record there: takes the record out and goes
//            on behind it. If `head` is more than `bytes` ahead, what was there is overwritten, as
//            in the driver's buffer: it goes on at the oldest record that is left
//
// So records are taken out in the order in which room was taken for them, and no kernel waits for
// the program. Assertions get half a ring in all: their program is at its end, and a grid of them
// would write over its own records. A kernel that is cut off between the two leaves room in which
// no record comes: the program looks for the next one when nothing of it runs any more. What is in
// the ring is the program's own kernels' and may be anything: the reader checks it.
//
// A record's body is words: texts are NUL-terminated and padded with NULs to whole words.
//   SHM_TEXT_PRINTF  the format; then one word for each argument in the format's order, a text for
//                    a %s
//   SHM_TEXT_PLAIN   a text for standard output as it is
//   SHM_TEXT_ASSERT  the line; block x, y, z; thread x, y, z; the condition, the file, the function

#ifndef FRMPS_SHM_TEXT_H
#define FRMPS_SHM_TEXT_H

#include <assert.h>
#include <stddef.h>

#include "shm/order.h"

#define SHM_TEXT_MAGIC UINT32_C(0x74786574)

/* What the end of the host part is kept for: a ring with its head. */
#define SHM_TEXT_ROOM	   (UINT64_C(128) << 20)
#define SHM_TEXT_BYTES_MIN (UINT64_C(512) << 10)
#define SHM_TEXT_BYTES_MAX (UINT64_C(64) << 20)

struct shm_text {
	uint32_t magic;
	uint32_t reserved0;
	uint64_t bytes; /* of records: a power of two. The program's, constant while kernels run that print */
	uint64_t reserved1[6];
	_Alignas(64) word64 head; /* kernels write */
	word64 asserted;	  /* bytes of assertions, and of those that had no room. Kernels write */
	word64 told;		  /* not 0: there is a whole record of an assertion. Kernels write */
	uint64_t reserved2[5];
	word64 words[];
};

/* What the kernels of a module do with the ring: bits of the answer to LoadModule. */
#define SHM_TEXT_PRINTS	 UINT64_C(1)
#define SHM_TEXT_ASSERTS UINT64_C(2)

/* First word of a record, from the lowest bit: its size in bytes with this word (32 bits), its kind
 * (8), its position in words (24: more than a lap). */
enum shm_text_kind { SHM_TEXT_PRINTF = 1, SHM_TEXT_PLAIN = 2, SHM_TEXT_ASSERT = 3 };
#define SHM_TEXT_FIRST(size, kind, position)                                                                 \
	((uint64_t)(size) | (uint64_t)(kind) << 32 | (uint64_t)(position) / 8 << 40)
#define SHM_TEXT_SIZE(first) ((uint32_t)(first))
#define SHM_TEXT_KIND(first) ((uint32_t)((first) >> 32) & 0xff)

/** Where a session's ring is: at the end of its window's host part. 0: that is too small for
 * one. */
static inline uint64_t shm_text_address(uint64_t window_base, uint64_t device_bytes, uint64_t host_bytes)
{
	return host_bytes / 4 < SHM_TEXT_ROOM ? 0 : window_base + device_bytes + host_bytes - SHM_TEXT_ROOM;
}

static_assert(offsetof(struct shm_text, bytes) == 8, "part of the ABI");
static_assert(offsetof(struct shm_text, head) == 64, "part of the ABI");
static_assert(offsetof(struct shm_text, asserted) == 72, "part of the ABI");
static_assert(offsetof(struct shm_text, told) == 80, "part of the ABI");
static_assert(sizeof(struct shm_text) == 128, "part of the ABI");

#endif
