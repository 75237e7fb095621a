// Shares of the device in the serving loop: the serving thread's view of a tenant, for share.c,
// which has the rules. See sharing.h.

#include "server/executor/sharing.h"

static bool waits_to_go(const struct tenant *tenant)
{
	const struct stream *stream;

	TAILQ_FOREACH (stream, &tenant->held, held)
		if (stream->hold == STREAM_HOLD_CREDIT || stream->hold == STREAM_HOLD_RESUME)
			return true;
	return ring_has_work(&tenant->ring) && !tenant->choked;
}

static struct share_sight look_at(struct tenant *tenant)
{
	struct share_sight sight = {0};
	struct stream *stream;

	TAILQ_FOREACH (stream, &tenant->watched, watch) {
		uint64_t undone = stream->issued - stream_done(tenant, stream);

		sight.undone += undone;
		sight.streams += undone != 0;
	}
	return sight;
}

void sharing_begin(struct tenant *tenant)
{
	struct shares *shares = &tenant->executor->shares;
	uint32_t word = word_relaxed(&tenant->view.server->share);
	struct share_sight sight;

	if (word != tenant->share.word)
		share_set(shares, &tenant->share, word);
	if (!word_relaxed(&tenant->executor->sharing)) {
		share_leave(shares, &tenant->share);
		return;
	}
	sight = look_at(tenant);
	sight.wants = tenant_is_running(tenant) && waits_to_go(tenant);
	share_look(shares, &tenant->share, &sight, tenant->now);
}

void sharing_end(struct tenant *tenant)
{
	share_note(&tenant->executor->shares, &tenant->share, look_at(tenant).undone, tenant->now);
	word_set(&tenant->view.server->device_ns, tenant->share.before + tenant->share.counted);
}

void sharing_join(struct tenant *tenant)
{
	tenant->share.before = word_relaxed(&tenant->view.server->device_ns);
	tenant->share.used = tenant->share.counted = 0;
}

void sharing_leave(struct tenant *tenant)
{
	share_set(&tenant->executor->shares, &tenant->share, 0);
	share_leave(&tenant->executor->shares, &tenant->share);
}

uint64_t sharing_next_look(const struct tenant *tenant, uint64_t now)
{
	return tenant->share.is_listed ? now + SHARE_LOOK_NS : UINT64_MAX;
}
