// The watch over a session's work on the device. A fault shows in the next call of the driver,
// whoever makes it; when all clients only wait there is none, and their marks never come. So while
// something is on the device one of the session's streams is queried from time to time: after
// SENTRY_LEAST_NS, then after 1 % of the time since the session last issued something, at most
// every millisecond. The context is everybody's, and a query stands in the way of launches: while
// anybody has just heard that it is well (a mark was taken, or a query answered) it is asked every
// SENTRY_OWN_NS only. So sessions that wait behind full queues, or many that wait at all, do not
// ask one by one.
//
// A fatal code ends the context. Codes that say nothing about the context (backend_is_fatal) end it
// as well when SENTRY_FAILURES queries in a row give one. That a stream is ready, on the other
// hand, proves nothing: only marks do.

#include "server/executor/sentry.h"

#include "server/executor/clock.h"
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

/* The first stream that is not done; those before it are forgotten. */
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
	/* Whoever issues hears of a fault from the driver himself. */
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
