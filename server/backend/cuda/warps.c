// See warps.h. A record contains the first registers of the warp's 32 threads, and then:
//
//   0x20c  grid (3 words)            0x244  reason              0x270  parameters (address)
//   0x218  ordinal of the launch     0x248  place               0x284  mask of threads
//   0x220  block (3 words)           0x264  error               0x288  continuation address
//   0x22c  threads a block (3)       0x268  exception at        0x29c  1: saved, 0x100: stopped,
//   0x238  task (address)                                              0x10000: leaves
//
// A place is the slot in bits 8 to 15 and the multiprocessor in bits 20 to 28; between and above is
// the number of the block there.

#include "server/backend/cuda/warps.h"

#include <string.h>

#define STATE 0x29cu

#define STATE_SAVED   0x1u
#define STATE_STOPPED 0x100u
#define STATE_LEAVES  0x10000u

static size_t record_at(uint32_t index)
{
	return WARPS_HEAD_BYTES + (size_t)index * WARPS_RECORD_BYTES;
}

/* The device writes the word, too. */
static volatile uint32_t *state_of(const void *area, uint32_t index)
{
	return (volatile uint32_t *)((uintptr_t)area + record_at(index) + STATE);
}

static uint32_t word(const uint8_t *record, uint32_t at)
{
	uint32_t value;

	memcpy(&value, record + at, sizeof(value));
	return value;
}

static uint64_t address(const uint8_t *record, uint32_t at)
{
	return word(record, at) | (uint64_t)word(record, at + 4) << 32;
}

bool warps_is_stopped(const void *area, uint32_t index)
{
	return (*state_of(area, index) & STATE_STOPPED) != 0;
}

uint32_t warps_next(const void *area, uint32_t from)
{
	while (from < WARPS_COUNT && !warps_is_stopped(area, from))
		from++;
	return from;
}

bool warps_is_away(const void *area, uint32_t index)
{
	return (*state_of(area, index) & (STATE_SAVED | STATE_STOPPED)) == STATE_SAVED;
}

bool warps_read(const void *area, uint32_t index, struct warp *ret_warp)
{
	const uint8_t *record = (const uint8_t *)area + record_at(index);
	uint32_t place = word(record, WARPS_PLACE);

	*ret_warp = (struct warp){.index = index,
		.reason = word(record, WARPS_REASON),
		.error = word(record, WARPS_ERROR),
		.error_at = address(record, WARPS_ERROR_AT),
		.return_to = address(record, WARPS_RETURN_TO),
		.task = address(record, WARPS_TASK),
		.grid = address(record, WARPS_ORDINAL)};
	memcpy(ret_warp->block, record + WARPS_BLOCK, sizeof(ret_warp->block));
	return (place >> 20 & 0x1ff) == index / WARPS_PER_SM && (place >> 8 & 0xff) == index % WARPS_PER_SM;
}

uint64_t warps_task(const void *area, uint32_t index)
{
	return address((const uint8_t *)area + record_at(index), WARPS_TASK);
}

void warps_release(void *area, uint32_t index, uint64_t to)
{
	volatile uint32_t *state = state_of(area, index);

	if (to)
		memcpy((uint8_t *)area + record_at(index) + WARPS_RETURN_TO, &to, sizeof(to));
	*state = (*state & ~(STATE_STOPPED | STATE_LEAVES)) | (to ? STATE_LEAVES : 0);
}
