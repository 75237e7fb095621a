// The watch over a session's work on the device. A fault shows in the next call of the driver, by
// any thread; when all clients only wait there is no call, and their marks never come. So while
// commands are on the device, the serving thread queries a stream of the session from time to time:
// after SENTRY_LEAST_NS, then after 1 % of the time since the session last issued something, at
// most every millisecond. The sessions share the context, and a query delays launches: while a
// recent call of any thread shows that the context is well (a mark was taken, or a query answered),
// the session queries every SENTRY_OWN_NS only. So sessions that wait behind full queues, or many
// waiting sessions, do not query one by one.
//
// A fatal code ends the context. Codes that say nothing about the context (backend_is_fatal) end
// the context as well after SENTRY_FAILURES such queries in a row. That a stream is ready, on the
// other hand, proves nothing: only marks do.

#include "server/executor/sentry.h"

#include "server/clock.h"
#include "server/executor/lost.h"
#include "server/log.h"

#define SENTRY_FAILURES 100u

void sentry_note(struct tenant *tenant, struct stream *stream)
{
	if (stream->watched)
		return;
	if (TAILQ_EMPTY(&tenant->watched))
		tenant->watch_at = tenant->now + SENTRY_LEAST_NS;
	stream->watched = true;
	TAILQ_INSERT_TAIL(&tenant->watched, stream, watch);
}

static uint64_t interval(const struct tenant *tenant, uint64_t now)
{
	uint64_t ns = clock_interval(tenant->busy_at, now);

	return ns < SENTRY_LEAST_NS ? SENTRY_LEAST_NS : ns;
}

/* The first stream that is not done; streams before that are forgotten. */
static struct stream *find_undone(struct tenant *tenant)
{
	struct stream *stream;

	while ((stream = TAILQ_FIRST(&tenant->watched))) {
		if (stream_done(tenant, stream) < stream->issued)
			return stream;
		TAILQ_REMOVE(&tenant->watched, stream, watch);
		stream->watched = false;
	}
	return NULL;
}

static void query(struct tenant *tenant, struct stream *stream)
{
	struct executor *executor = tenant->executor;
	CUresult code = executor->ops->stream_query(stream->backend);

	tenant->queried_at = tenant->now;
	if (!code || code == CUDA_ERROR_NOT_READY) {
		tenant->watch_failures = 0;
		sentry_heard(tenant);
		return;
	}
	executor_code(executor, code);
	if (++tenant->watch_failures < SENTRY_FAILURES || executor_is_lost(executor))
		return;
	log_error("a stream's state cannot be read: code %d, %u times in a row", code, SENTRY_FAILURES);
	lost_report(executor, code);
}

/* Clocks of threads differ by the length of a turn: a word from later than now is as good. */
static bool is_known_well(const struct tenant *tenant)
{
	uint64_t heard_at = word_relaxed(&tenant->executor->heard_at);

	return !tenant->watch_failures && tenant->now < heard_at + SENTRY_LEAST_NS &&
	       tenant->now < tenant->queried_at + SENTRY_OWN_NS;
}

void sentry_look(struct tenant *tenant)
{
	struct stream *stream;

	if (TAILQ_EMPTY(&tenant->watched) || tenant->now < tenant->watch_at ||
		executor_is_lost(tenant->executor))
		return;
	tenant->watch_at = tenant->now + interval(tenant, tenant->now);
	word_set(&tenant->view.server->active, tenant->now);
	/* A session that issues notices a fault in its own calls. */
	if (tenant->now - tenant->busy_at < SENTRY_LEAST_NS)
		return;
	stream = find_undone(tenant);
	if (!stream)
		return;
	if (!is_known_well(tenant))
		query(tenant, stream);
	canary_want(tenant);
}

uint64_t sentry_next_look(const struct tenant *tenant, uint64_t now)
{
	if (TAILQ_EMPTY(&tenant->watched))
		return UINT64_MAX;
	return tenant->watch_at > now ? tenant->watch_at : now;
}
