// See stream_slot.h. Runs on the program's threads.

#include "client/state/stream_slot.h"

#include "client/link/connect.h"

struct client_stream stream_table[SHM_STREAMS];

static word32 used = 1; /* slots from here on were never used */

void stream_table_init(void)
{
	stream_table[0] = (struct client_stream){.handle = (uint64_t)(uintptr_t)CU_STREAM_LEGACY, .id = 1};
}

uint32_t stream_slots_used(void)
{
	return word_acquire(&used);
}

struct client_stream *stream_slot_new(void)
{
	uint32_t next = word_relaxed(&used);

	if (next == shm_view_slots(&connection.view))
		return NULL;
	stream_table[next].slot = next;
	word_release(&used, next + 1);
	return &stream_table[next];
}
