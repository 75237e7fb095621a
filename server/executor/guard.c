// The granules of a guard. The device part of the window consists of granules of 2 MiB:
//
//   BARE   nothing is mapped
//   SINK   a mapping of the sink: beside real memory
//   REAL   memory of the session
//   OWN    the service's own mapping of the sink, in the last granule
//
//   BARE ──beside real memory──► SINK ──make_room──► BARE ──note_mapped──► REAL ──note_unmapped──► BARE
//    ▲                            │
//    └──nothing beside it is real─┘
//
// A mapping begins at the start of its chunk and cannot be split, so the sink has one granule. To
// map one takes about 21 us, to unmap 13 us (H200): at most four of either for each change of the
// session's memory. The guard is for indices that run over the end of an array in a whole grid,
// which as faults would cost the other programs up to a second.
//
// The active executor and each standby map their own granules, from the same requests.

#include "server/executor/guard.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/executor/guard_watch.h"
#include "server/executor/job.h"
#include "server/executor/pace.h"
#include "server/executor/tenant.h"
#include "server/log.h"

#define GRANULE	     BACKEND_CHUNK_GRANULE
#define TENANTS_FAIR 64u /* a tenant gets this part of a bounded number of mappings */

enum granule { BARE, SINK, REAL, OWN };

static uint64_t address_of(const struct tenant *tenant, uint32_t granule)
{
	return tenant->window_base + granule * GRANULE;
}

static uint32_t granule_of(const struct tenant *tenant, uint64_t address)
{
	return (uint32_t)((address - tenant->window_base) / GRANULE);
}

/* Further windows of a session have no guard: mappings there grow piece by piece, and the sink
 * would have to give way each time. An access to bare memory is a fault, as natively. */
static bool is_guarded(const struct tenant *tenant, uint64_t address)
{
	return tenant->guard && tenant_is_device(tenant, address);
}

static bool is_real(const struct guard *guard, uint32_t granule)
{
	return granule < guard->count && guard->granules[granule] == REAL;
}

static bool is_beside_real(const struct guard *guard, uint32_t granule)
{
	return (granule && is_real(guard, granule - 1)) || is_real(guard, granule + 1);
}

/* ---- mapping ---- */

static bool may_map(struct tenant *tenant)
{
	const uint32_t most = tenant_ops(tenant)->sink_mappings_max;

	return most == UINT32_MAX ||
	       (tenant->guard->mapped < most / TENANTS_FAIR && tenant->executor->guard_watch.mapped < most);
}

static void count_mapped(struct tenant *tenant, int change)
{
	tenant->guard->mapped += (uint32_t)change;
	tenant->executor->guard_watch.mapped += (uint32_t)change;
}

static void map(struct tenant *tenant, uint32_t granule)
{
	struct guard *guard = tenant->guard;
	bool may = may_map(tenant);
	CUresult code = CUDA_ERROR_OUT_OF_MEMORY;

	if (may)
		code = executor_code(tenant->executor,
			tenant_ops(tenant)->sink_map(guard->sink, address_of(tenant, granule)));
	if (!code) {
		guard->granules[granule] = SINK;
		count_mapped(tenant, 1);
		return;
	}
	if (!guard->told_full)
		log_event(may ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG,
			"session %llu (%s, pid %d): some of its memory has no guard: no more than %u "
			"mappings can be had (code %d)",
			(unsigned long long)tenant->id, tenant->program, tenant->pid, guard->mapped, code);
	guard->told_full = true;
}

static CUresult unmap(struct tenant *tenant, uint32_t granule)
{
	struct guard *guard = tenant->guard;
	CUresult code = executor_code(
		tenant->executor, tenant_ops(tenant)->sink_unmap(guard->sink, address_of(tenant, granule)));

	if (code)
		return code;
	guard->granules[granule] = BARE;
	count_mapped(tenant, -1);
	return CUDA_SUCCESS;
}

/* The granule has the sink if and only if real memory is beside it. */
static void settle(struct tenant *tenant, uint32_t granule)
{
	struct guard *guard = tenant->guard;
	bool wants;

	if (granule >= guard->count)
		return;
	wants = is_beside_real(guard, granule);
	if (wants && guard->granules[granule] == BARE)
		map(tenant, granule);
	else if (!wants && guard->granules[granule] == SINK)
		unmap(tenant, granule);
}

/* ---- changes of the session's memory ---- */

struct span {
	uint32_t from, to;
};

static struct span span_of(const struct tenant *tenant, uint64_t address, uint64_t bytes)
{
	uint32_t from = granule_of(tenant, address);

	return (struct span){from, from + (uint32_t)(bytes / GRANULE)};
}

/* The granules directly beside a range of real memory. */
static void settle_ends(struct tenant *tenant, struct span span)
{
	if (span.from)
		settle(tenant, span.from - 1);
	settle(tenant, span.to);
}

CUresult guard_make_room(struct tenant *tenant, const struct wire_range *range)
{
	struct guard *guard = tenant->guard;
	struct span span = span_of(tenant, range->address, range->bytes);
	CUresult code = CUDA_SUCCESS;

	if (!is_guarded(tenant, range->address))
		return CUDA_SUCCESS;
	if (span.to > granule_of(tenant, guard->home))
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* The sink is only beside real memory: at the ends of the range. */
	for (uint32_t i = span.from; !code && i < span.to; i++)
		if (guard->granules[i] == SINK)
			code = unmap(tenant, i);
	return code;
}

void guard_note_mapped(struct tenant *tenant, const struct wire_range *range)
{
	struct span span = span_of(tenant, range->address, range->bytes);

	if (!is_guarded(tenant, range->address))
		return;
	memset(tenant->guard->granules + span.from, REAL, span.to - span.from);
	settle_ends(tenant, span);
}

void guard_note_unmapped(struct tenant *tenant, const struct wire_range *range)
{
	struct span span = span_of(tenant, range->address, range->bytes);

	if (!is_guarded(tenant, range->address))
		return;
	memset(tenant->guard->granules + span.from, BARE, span.to - span.from);
	settle_ends(tenant, span);
	settle(tenant, span.from);
	settle(tenant, span.to - 1);
}

/* ---- beginning and end ---- */

static bool is_sound(const struct tenant *tenant, const struct wire_open_guard *wish)
{
	return tenant->device_bytes >= 4 * GRANULE &&
	       (wish->policy == GUARD_ERROR || wish->policy == GUARD_WARN);
}

static struct guard *allocate(const struct tenant *tenant, const struct wire_open_guard *wish)
{
	struct guard *guard = calloc(1, sizeof(*guard));

	if (!guard)
		return NULL;
	*guard = (struct guard){.home = tenant->window_base + tenant->device_bytes - GRANULE,
		.policy = wish->policy,
		.count = (uint32_t)(tenant->device_bytes / GRANULE)};
	guard->granules = calloc(guard->count, 1);
	if (guard->granules)
		return guard;
	free(guard);
	return NULL;
}

static CUresult open_sink(struct tenant *tenant, int fd)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	struct guard *guard = tenant->guard;
	CUresult code = ops->sink_open(fd, GRANULE, &guard->sink);

	if (!code)
		code = ops->sink_map(guard->sink, guard->home);
	guard->home_mapped = !code;
	return code;
}

/* The session may have memory already. */
static void adopt(struct tenant *tenant)
{
	struct guard *guard = tenant->guard;
	struct range_set *maps = &tenant->device_maps;

	guard->granules[guard->count - 1] = OWN;
	/* Only this thread changes device_maps. */
	for (uint32_t i = 0; i < maps->count; i++) {
		struct span span;

		if (!tenant_is_device(tenant, maps->at[i].start))
			continue;
		span = span_of(tenant, maps->at[i].start, maps->at[i].end - maps->at[i].start);
		memset(guard->granules + span.from, REAL, span.to - span.from);
	}
	/* Sinks are only beside real memory. */
	for (uint32_t i = 0; i < maps->count; i++)
		if (tenant_is_device(tenant, maps->at[i].start))
			settle_ends(tenant,
				span_of(tenant, maps->at[i].start, maps->at[i].end - maps->at[i].start));
}

static CUresult open_guard(struct tenant *tenant, const struct wire_open_guard *wish, int fd)
{
	CUresult code;

	/* A daemon that does not know if the previous daemon had sent the request sends it
	 * again. */
	if (tenant->guard)
		return CUDA_SUCCESS;
	if (fd < 0 || !is_sound(tenant, wish))
		return CUDA_ERROR_INVALID_VALUE;
	code = guard_watch_open(tenant->executor, wish->interval_ms);
	if (code)
		return code;
	tenant->guard = allocate(tenant, wish);
	if (!tenant->guard)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = executor_code(tenant->executor, open_sink(tenant, fd));
	if (code)
		guard_end(tenant);
	else
		adopt(tenant);
	guard_watch_begin(tenant);
	return code;
}

void guard_handle(struct job *job)
{
	int fd = packet_take_fd(&job->packet, 0);
	CUresult code = open_guard(job->tenant, &job->message.open_guard, fd);

	if (fd >= 0)
		close(fd);
	job_board_kick(&job->executor->board);
	job_reply(job, code, NULL, 0, NULL);
}

static void unmap_home(struct tenant *tenant)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	struct guard *guard = tenant->guard;

	if (guard->home_mapped)
		executor_code(tenant->executor, ops->sink_unmap(guard->sink, guard->home));
	if (guard->sink)
		ops->sink_close(guard->sink);
	guard->sink = NULL;
	guard->home_mapped = false;
}

/* Return: the first granule that still has the sink; `count`: none has it */
static uint32_t next_sink(const struct guard *guard)
{
	const uint8_t *at = memchr(guard->granules + guard->unmapped, SINK, guard->count - guard->unmapped);

	return at ? (uint32_t)(at - guard->granules) : guard->count;
}

bool guard_unmap(struct tenant *tenant, struct pace *pace)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	struct guard *guard = tenant->guard;
	uint32_t i;

	while (guard && (i = next_sink(guard)) < guard->count) {
		guard->unmapped = i + 1;
		executor_code(tenant->executor, ops->sink_unmap(guard->sink, address_of(tenant, i)));
		if (!pace_step(pace))
			return false;
	}
	if (guard)
		unmap_home(tenant);
	return true;
}

void guard_deinit(struct tenant *tenant)
{
	struct guard *guard = tenant->guard;

	if (!guard)
		return;
	tenant->executor->guard_watch.mapped -= guard->mapped;
	free(guard->granules);
	free(guard);
	tenant->guard = NULL;
}

void guard_end(struct tenant *tenant)
{
	struct pace pace;

	pace_begin(&pace, tenant->executor);
	guard_unmap(tenant, &pace);
	guard_deinit(tenant);
}
