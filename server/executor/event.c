// See event.h.

#include "server/executor/event.h"

#include <stdlib.h>

#include "server/executor/pace.h"
#include "server/executor/tenant.h"
#include "server/executor/timing.h"

CUresult event_drop(struct tenant *tenant, struct backend_event *event)
{
	if (!event || executor_is_lost(tenant->executor))
		return CUDA_SUCCESS;
	return executor_code(tenant->executor, tenant_ops(tenant)->event_destroy(event));
}

void event_table_deinit(struct tenant *tenant, struct event_table *table)
{
	struct pace pace;

	pace_begin(&pace, tenant->executor);
	for (uint32_t i = 0; table->at && i < table->used; i++) {
		if (!table->at[i].backend)
			continue;
		event_drop(tenant, table->at[i].backend);
		pace_step(&pace);
	}
	free(table->at);
	*table = (struct event_table){0};
}

/* The table is large and mostly untouched: calloc gives pages as they are used. */
static struct event *slot_of(struct event_table *table, uint32_t event)
{
	if (!table->at)
		table->at = calloc(SHM_EVENTS, sizeof(struct event));
	if (!table->at)
		return NULL;
	table->used = event < table->used ? table->used : event + 1;
	return &table->at[event];
}

void event_expect(struct tenant *tenant, uint32_t event, bool timing, uint32_t slot, uint64_t seq)
{
	struct event *at = timing	       ? slot_of(&tenant->events, event)
			   : tenant->events.at ? &tenant->events.at[event]
					       : NULL;

	if (!at || (!timing && !at->latest_seq))
		return;
	at->latest_seq = seq;
	at->latest_slot = slot;
}

static bool is_superseded(const struct event *at, uint32_t slot, uint64_t seq)
{
	return at->latest_seq && (at->latest_seq != seq || at->latest_slot != slot);
}

static CUresult replace_backend(struct tenant *tenant, struct event *at, bool timing)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	CUresult code;

	if (at->backend && at->timing == timing)
		return CUDA_SUCCESS;
	code = event_drop(tenant, at->backend);
	at->backend = NULL;
	at->timing = timing;
	return code ? code : ops->event_create(timing, &at->backend);
}

static CUresult record(
	struct tenant *tenant, struct stream *stream, struct event *at, bool timing, uint64_t seq)
{
	CUresult code = replace_backend(tenant, at, timing);

	timing_forget(tenant, at);
	at->seq = 0;
	if (!code)
		code = tenant_ops(tenant)->event_record(at->backend, stream->backend);
	if (code) {
		timing_refuse(tenant, at, shm_place(stream->slot, seq));
		return code;
	}
	at->slot = stream->slot;
	at->seq = seq;
	if (timing)
		timing_expect(tenant, at);
	return CUDA_SUCCESS;
}

CUresult event_record(struct tenant *tenant, struct stream *stream, uint32_t event, bool timing, uint64_t seq)
{
	struct event *at = slot_of(&tenant->events, event);

	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if ((timing || at->timing) && is_superseded(at, stream->slot, seq))
		return CUDA_SUCCESS;
	return record(tenant, stream, at, timing, seq);
}

struct backend_event *event_find(struct tenant *tenant, uint32_t event, uint32_t slot, uint64_t seq)
{
	struct event *at;

	if (event >= SHM_EVENTS || !tenant->events.at)
		return NULL;
	at = &tenant->events.at[event];
	return at->seq == seq && at->slot == slot ? at->backend : NULL;
}

CUresult event_destroy(struct tenant *tenant, uint32_t event)
{
	struct event *at = tenant->events.at ? &tenant->events.at[event] : NULL;
	CUresult code;

	if (!at || !at->backend)
		return CUDA_SUCCESS;
	timing_forget(tenant, at);
	code = event_drop(tenant, at->backend);
	*at = (struct event){.latest_seq = at->latest_seq, .latest_slot = at->latest_slot};
	return code;
}
