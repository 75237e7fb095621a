// The proof that commands in flight may be repeated. Pure functions.
//
// Every command of the set may have run: wholly, partly (the last of the stream that began) or not
// at all. All commands run again from their beginning, each stream in order. The outcome is that of
// a single run if each repeated command reads the same values as the first time:
//   - a command d that writes to c's sources spoils c's repetition, unless d comes before c in the
//     same stream: then d is repeated before c, too, and writes the same again;
//   - that includes c itself: a copy onto its own source, a kernel that reads its own output.
// Commands of different streams have no known order inside the set (a wait between two streams ends
// the set of the waiting one, because the awaited command is not done), so commands of different
// streams must not touch each other's memory either way.
//
// A kernel reads and writes all memory that a program can name: all but the arena. With `replays`
// the client vouches that kernels do not read values that kernels wrote, neither directly nor
// fetched to host memory; so kernels do not spoil kernels, and fetches do not either. The client
// vouches for nothing else: an upload or fill after a kernel may change the kernel's sources, a
// kernel after a fetch the fetched memory.
//
// Effects beyond memory: others may have acted upon a word that was written as a signal
// (REPEAT_SIGNAL), and reset the word; a second write could look like a second signal. Such a
// command is never repeated.

#include "server/executor/repeat.h"

static bool overlap(const struct range *a, const struct range *b)
{
	return a->start < b->end && b->start < a->end;
}

static bool is_empty(const struct range *range)
{
	return range->start == range->end;
}

/* True if d writes to memory that c reads. */
static bool writes_into(const struct repeat_command *d, const struct repeat_command *c)
{
	if (c->effect == REPEAT_NOTHING || d->effect == REPEAT_NOTHING)
		return false;
	if (c->effect == REPEAT_KERNEL)
		return d->effect == REPEAT_KERNEL || (!d->writes_arena && !is_empty(&d->writes));
	if (d->effect == REPEAT_KERNEL)
		return !c->reads_arena && !is_empty(&c->reads);
	return overlap(&d->writes, &c->reads);
}

/* True if d, run once or partly, changes the outcome of a repetition of c. */
static bool spoils(const struct repeat_command *d, const struct repeat_command *c, bool replays)
{
	if (d->stream == c->stream && d->seq < c->seq)
		return false;
	if (replays && c->effect == REPEAT_KERNEL && (d->effect == REPEAT_KERNEL || d->fetches))
		return false;
	return writes_into(d, c);
}

static bool is_repeatable(const struct repeat_command *commands, uint32_t count, bool replays, uint32_t index)
{
	const struct repeat_command *c = &commands[index];

	if (c->effect == REPEAT_SIGNAL || (c->effect == REPEAT_KERNEL && !replays))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (spoils(&commands[i], c, replays))
			return false;
	return true;
}

bool repeat_is_provable(
	const struct repeat_command *commands, uint32_t count, bool replays, uint32_t *ret_index)
{
	/* Kernels first, because the client's reader understands kernel names best. */
	for (int kernels = 1; kernels >= 0; kernels--) {
		for (uint32_t i = 0; i < count; i++) {
			if ((commands[i].effect == REPEAT_KERNEL) != kernels ||
				is_repeatable(commands, count, replays, i))
				continue;
			*ret_index = i;
			return false;
		}
	}
	return true;
}
