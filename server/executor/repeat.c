// The proof that commands in doubt may be repeated. Pure functions.
//
// Every command of the set may have run: wholly, partly (the last of its stream that began) or not
// at all. It is run again from its beginning, each stream in its order. The outcome is that of a
// single run if each command reads, when it is repeated, what it read the first time:
//   - a command that writes what c reads spoils c's repetition, unless it comes before c in the
//     same stream: then it is repeated before c, too, and writes the same again;
//   - that includes c itself: a copy onto its own source, a kernel that reads its output.
// Commands of different streams have no known order inside the set (a wait between two streams ends
// the set of the waiting one, because the awaited command is not done), so they must not touch each
// other either way.
//
// A kernel reads and writes everything that a program can name, which is everything but the arena.
// With `replays` the client vouches that its kernels do not read what they wrote, neither directly
// nor fetched to host memory; so kernels do not spoil kernels, and fetches do not either. It
// vouches for nothing else: an upload or fill after a kernel may change what the kernel reads, a
// kernel after a fetch what was fetched.
//
// Effects beyond memory: a word that was written for others to see (REPEAT_SIGNAL) may have been
// acted upon and reset; writing it again could be taken for a second signal. It is never repeated.

#include "server/executor/repeat.h"

static bool overlap(const struct range *a, const struct range *b)
{
	return a->start < b->end && b->start < a->end;
}

static bool is_empty(const struct range *range)
{
	return range->start == range->end;
}

/* Whether something that d writes is something that c reads. */
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

/* Whether d, run once or partly, makes a repetition of c come out differently. */
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
	/* Kernels first, because their names are what the client's reader understands. */
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
