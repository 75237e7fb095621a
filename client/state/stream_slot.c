// See stream_slot.h. Runs on the program's threads.

#include "client/state/stream_slot.h"

#include "client/state/context.h"

struct client_stream stream_table[SHM_STREAMS];

static word32 used; /* slots from here on were never used */

uint32_t stream_slots_used(void)
{
	return word_acquire(&used);
}

struct client_stream *stream_slot_new(struct session *session, uint32_t bound)
{
	uint32_t next = word_relaxed(&used);

	if (next >= bound)
		return NULL;
	stream_table[next].session = session;
	stream_table[next].slot = next;
	word_release(&used, next + 1);
	return &stream_table[next];
}

bool stream_is_in(const struct client_stream *stream, CUcontext context)
{
	CUcontext own = stream->context, green = stream->green;

	if (green)
		return context == green || context == context_owner(green);
	return own ? own == context : !context_green(context);
}
