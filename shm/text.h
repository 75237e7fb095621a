// Text of kernels on its way to the program: a ring in the program's own pinned memory, at the end
// of the host part of its window. The program's kernels write the ring and its own process empties
// it. No executor reads the ring, so the ring lives as long as the program, whatever happens to
// executors.
//
// The program makes the ring when it has loaded a module whose kernels print or assert. A record
// lies at its position modulo `bytes` and may wrap; words of eight bytes never do.
//
//   kernel   reserves room: adds the record's size to `head`, whatever was there; writes the record
//            but for its first word; then the first word, which also has the record's position, so
//            that no older word can be mistaken for it
//   program  reads the first word at its place. If the word has this position, takes the record out
//            and continues behind it. If `head` is more than `bytes` ahead, kernels have
//            overwritten records, as in the driver's buffer: continues at the oldest intact record
//
// So the program reads records in the order of their reservation, and no kernel waits for the
// program. Assertions get half a ring in all: their program is about to end, and a grid of failing
// assertions would overwrite its own records. A kernel that ends between reservation and record
// leaves a gap: the program skips the gap when none of its work runs any more. The program's own
// kernels write the ring, which may hold anything: the reader checks every word.
//
// A record's body is words: texts are NUL-terminated and padded with NULs to whole words.
//   SHM_TEXT_PRINTF  the format; then a word for each argument in the format's order, a text for
//                    a %s
//   SHM_TEXT_PLAIN   a text for standard output as it is
//   SHM_TEXT_ASSERT  the line; block x, y, z; thread x, y, z; the condition, the file, the function

#ifndef FRMPS_SHM_TEXT_H
#define FRMPS_SHM_TEXT_H

#include <assert.h>
#include <stddef.h>

#include "shm/order.h"

#define SHM_TEXT_MAGIC UINT32_C(0x74786574)

/* Room for a ring with its head, reserved at the end of the host part. */
#define SHM_TEXT_ROOM	   (UINT64_C(128) << 20)
#define SHM_TEXT_BYTES_MIN (UINT64_C(512) << 10)
#define SHM_TEXT_BYTES_MAX (UINT64_C(64) << 20)

struct shm_text {
	uint32_t magic;
	uint32_t reserved0;
	uint64_t bytes; /* of records: a power of two; constant while kernels run. The program writes */
	uint64_t reserved1[6];
	_Alignas(64) word64 head; /* kernels write */
	word64 asserted;	  /* bytes of assertions, dropped ones included. Kernels write */
	word64 told;		  /* not 0: there is a whole record of an assertion. Kernels write */
	uint64_t reserved2[5];
	word64 words[];
};

/* Uses of the ring by a module's kernels: bits of the answer to LoadModule. */
#define SHM_TEXT_PRINTS	 UINT64_C(1)
#define SHM_TEXT_ASSERTS UINT64_C(2)

/* First word of a record, from the lowest bit: its size in bytes with this word (32 bits), its kind
 * (8), its position in words (24: more than a lap). */
enum shm_text_kind { SHM_TEXT_PRINTF = 1, SHM_TEXT_PLAIN = 2, SHM_TEXT_ASSERT = 3 };
#define SHM_TEXT_FIRST(size, kind, position)                                                                 \
	((uint64_t)(size) | (uint64_t)(kind) << 32 | (uint64_t)(position) / 8 << 40)
#define SHM_TEXT_SIZE(first) ((uint32_t)(first))
#define SHM_TEXT_KIND(first) ((uint32_t)((first) >> 32) & 0xff)

/**
 * Address of a session's ring: at the end of its window's host part. 0: the host part is too small.
 */
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
