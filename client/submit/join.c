// See join.h. Runs inside the ring lock; accesses nothing but the streams.

#include "client/submit/join.h"

static void drop_first(struct join *join)
{
	struct client_stream *first = join->unjoined;

	join->unjoined = first->next_unjoined;
	first->next_unjoined = NULL;
	first->unjoined = false;
}

static bool next_of_legacy(
	struct join *join, join_done_fn *done, struct client_stream **ret_other, uint64_t *ret_seq)
{
	while (join->unjoined) {
		struct client_stream *other = join->unjoined;
		uint64_t seq = word_relaxed(&other->last);

		/* A stream that takes no part may have reused the slot. Then the earlier work is
		 * done: the slot was free. */
		if (other->blocking && !done(other, seq)) {
			*ret_other = other;
			*ret_seq = seq;
			return true;
		}
		drop_first(join);
	}
	return false;
}

/* True if the stream still has to wait for the latest early return. */
static bool owes_early(struct join *join, struct client_stream *stream, join_done_fn *done)
{
	if (stream->early_joined == join->early_count)
		return false;
	if (stream != join->early && !done(join->early, join->early_seq))
		return true;
	stream->early_joined = join->early_count;
	return false;
}

bool join_next(struct join *join, struct client_stream *stream, join_done_fn *done,
	struct client_stream **ret_other, uint64_t *ret_seq)
{
	uint64_t seq;

	if (owes_early(join, stream, done)) {
		*ret_other = join->early;
		*ret_seq = join->early_seq;
		return true;
	}
	if (stream == join->legacy)
		return next_of_legacy(join, done, ret_other, ret_seq);
	if (!stream->blocking)
		return false;
	seq = word_relaxed(&join->legacy->last);
	if (seq <= stream->joined)
		return false;
	if (done(join->legacy, seq)) {
		stream->joined = seq;
		return false;
	}
	*ret_other = join->legacy;
	*ret_seq = seq;
	return true;
}

void join_made(
	struct join *join, struct client_stream *stream, const struct client_stream *other, uint64_t seq)
{
	if (stream->early_joined != join->early_count && other == join->early && seq == join->early_seq)
		stream->early_joined = join->early_count;
	else if (stream == join->legacy)
		drop_first(join);
	else
		stream->joined = seq;
}

void join_early(struct join *join, struct client_stream *stream, uint64_t seq)
{
	join->early = stream;
	join->early_seq = seq;
	join->early_count++;
}
