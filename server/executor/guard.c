// The slots of a guard. The device part of the window consists of granules of 2 MiB:
//
//   FREE     farther than `reach` from any memory that the session has or had
//   WANTED   to be backed, not mapped yet
//   NEAR     a mapping of the near sink (one granule)
//   FAR      part of a mapping of the far sink (a block: as many granules, aligned to its size)
//   REAL     memory of the session, or the service's own mapping of the sinks: never a slot
//
//   FREE ──within reach──► WANTED ──step──► NEAR, FAR ──make_room──► WANTED ──note_mapped──► REAL ─┐
//                             ▲                                                                    │
//                             └─────────────────────────── note_unmapped ──────────────────────────┘
//
// A mapping begins at the start of its chunk and cannot be split, so a sink is as large as its
// slots, and there are two sinks: near slots fit into every gap, and far slots cover much memory
// cheaply. A slot of any size costs about 21 us to map, 13 us to unmap (H200): 4 GiB on either side
// of the memory are 4096 slots of 2 MiB, 88 ms, or 512 slots of 16 MiB, 11 ms.
//
// Device memory: 2 + 16 MiB per session at most (the daemon chooses, session/sink.c); 256 sessions
// have 4.5 GiB, 3.2 % of an H200's.
//
// Slots are prepared by the main thread in steps of GUARD_STEP_SLOTS, a third of a millisecond,
// with pauses between (stray.c), from the latest change outwards, then all other wanted granules.
// The immediate neighbours of new memory are backed before the request is answered. Memory that is
// freed while the guard is complete stays bare for FREED_NS: a program that allocates again at
// once, in a loop, pays for no slot (64 MiB: up to 16 to map, and to unmap). An access to bare
// granules is a fault, as natively.
// Where real memory takes the place of a far slot, the block is bare until near slots are mapped
// around the memory: for moments, and only for the session that asks for the memory. Slots are
// unmapped, for such memory (but in a standby) and at the end, with rests between (pace.h).
//
// The active executor and each standby map their own slots, from the same requests.

#include "server/executor/guard.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/job.h"
#include "server/executor/pace.h"
#include "server/executor/stray.h"
#include "server/executor/tenant.h"
#include "server/log.h"

#define GRANULE	     BACKEND_CHUNK_GRANULE
#define FAR_MOST     (UINT64_C(1) << 30)
#define FREED_NS     (1500 * CLOCK_US)
#define TENANTS_FAIR 64u /* a tenant gets this part of a bounded number of slots */

enum slot { FREE, WANTED, NEAR, FAR, REAL };

static uint64_t address_of(const struct tenant *tenant, uint32_t granule)
{
	return tenant->window_base + granule * GRANULE;
}

static uint32_t granule_of(const struct tenant *tenant, uint64_t address)
{
	return (uint32_t)((address - tenant->window_base) / GRANULE);
}

static void set(struct guard *guard, uint32_t granule, enum slot state)
{
	guard->wanted -= guard->slots[granule] == WANTED;
	guard->slots[granule] = (uint8_t)state;
	guard->wanted += state == WANTED;
}

static void set_all(struct guard *guard, uint32_t from, uint32_t to, enum slot state)
{
	for (uint32_t i = from; i < to; i++)
		set(guard, i, state);
}

/* Further windows of a session have no guard: mappings there grow piece by piece, and slots would
 * have to give way each time. An access to bare memory is a fault, as natively. */
static bool is_guarded(const struct tenant *tenant, uint64_t address)
{
	return tenant->guard && tenant_is_device(tenant, address);
}

/* Everything within reach of a range is to be backed; preparing starts there. */
static void surround(struct guard *guard, uint32_t low, uint32_t high)
{
	uint32_t from = low > guard->reach ? low - guard->reach : 0;
	uint32_t to = guard->granules - high > guard->reach ? high + guard->reach : guard->granules;

	for (uint32_t i = from; i < to; i++)
		if (guard->slots[i] == FREE)
			set(guard, i, WANTED);
	guard->low = low;
	guard->high = high;
	guard->radius = guard->sweep = 0;
}

/* ---- mapping ---- */

static bool may_map(struct tenant *tenant, uint32_t count)
{
	const uint32_t most = tenant_ops(tenant)->sink_slots_max;
	struct guard *guard = tenant->guard;

	return most == UINT32_MAX || (guard->mapped + count <= most / TENANTS_FAIR &&
					     tenant->executor->strays.slots + count <= most);
}

static void count_slots(struct tenant *tenant, int change)
{
	tenant->guard->mapped += (uint32_t)change;
	tenant->executor->strays.slots += (uint32_t)change;
}

/* Maps slots from a granule on. Return: true on success. */
static bool map_slots(struct tenant *tenant, uint32_t granule, uint32_t count, bool is_far)
{
	struct guard *guard = tenant->guard;
	bool may = may_map(tenant, count);
	CUresult code = CUDA_ERROR_OUT_OF_MEMORY;

	if (may)
		code = executor_code(
			tenant->executor, tenant_ops(tenant)->sink_map(is_far ? guard->far : guard->near,
						  address_of(tenant, granule), count));
	if (!code) {
		count_slots(tenant, (int)count);
		set_all(guard, granule, granule + count * (is_far ? guard->block : 1), is_far ? FAR : NEAR);
		return true;
	}
	guard->full = true;
	log_event(may ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG,
		"session %llu (%s, pid %d): the guard ends after %u slots, %llu MiB of it are bare (code %d)",
		(unsigned long long)tenant->id, tenant->program, tenant->pid, guard->mapped,
		(unsigned long long)(guard->wanted * GRANULE >> 20), code);
	return false;
}

static bool is_bare(const struct guard *guard, uint32_t block)
{
	for (uint32_t i = 0; i < guard->block; i++)
		if (guard->slots[block + i] != WANTED)
			return false;
	return true;
}

/* Backs a wanted granule, and the following ones of the same block, with at most `most` slots.
 * Return: the number of slots. */
static uint32_t back(struct tenant *tenant, uint32_t granule, uint32_t most)
{
	struct guard *guard = tenant->guard;
	uint32_t block = granule / guard->block * guard->block, count = 1;

	if (block + guard->block <= guard->granules && is_bare(guard, block))
		return map_slots(tenant, block, 1, true);
	while (count < most && (granule + count) % guard->block && granule + count < guard->granules &&
		guard->slots[granule + count] == WANTED)
		count++;
	return map_slots(tenant, granule, count, false) ? count : 0;
}

/* ---- the next granule ---- */

static const uint8_t *find_wanted(const struct guard *guard, uint32_t from, uint32_t count)
{
	if (from >= guard->granules)
		return NULL;
	if (count > guard->granules - from)
		count = guard->granules - from;
	return memchr(guard->slots + from, WANTED, count);
}

/* A wanted granule in the two blocks at the present radius around the latest change; NULL if
 * none. */
static const uint8_t *find_at_radius(const struct guard *guard)
{
	uint32_t low = guard->low / guard->block, high = (guard->high - 1) / guard->block;
	const uint8_t *at = find_wanted(guard, (high + guard->radius) * guard->block, guard->block);

	/* Between the two, for a change of many blocks: the first look covers the inside. */
	if (!at && !guard->radius)
		at = find_wanted(guard, low * guard->block, (high - low + 1) * guard->block);
	if (!at && guard->radius && low >= guard->radius)
		at = find_wanted(guard, (low - guard->radius) * guard->block, guard->block);
	return at;
}

/* Some wanted granule, the nearest to the latest change first. There is one. */
static uint32_t next_wanted(struct guard *guard)
{
	uint32_t most = guard->reach / guard->block + 1;
	const uint8_t *at = NULL;

	while (guard->radius <= most && !(at = find_at_radius(guard)))
		guard->radius++;
	if (!at) {
		at = find_wanted(guard, guard->sweep, guard->granules);
		if (!at)
			at = find_wanted(guard, 0, guard->granules);
		guard->sweep = (uint32_t)(at - guard->slots);
	}
	return (uint32_t)(at - guard->slots);
}

void guard_step(struct tenant *tenant)
{
	struct guard *guard = tenant->guard;
	uint32_t left = GUARD_STEP_SLOTS;

	while (left && guard->wanted && !guard->full) {
		uint32_t count = back(tenant, next_wanted(guard), left);

		left -= count < left ? count : left;
	}
	if (!guard->wanted)
		log_debug("session %llu: the guard is complete, %u slots", (unsigned long long)tenant->id,
			guard->mapped);
}

/* ---- changes of the session's memory ---- */

/* Unmaps the slot that covers a granule. */
static CUresult clear(struct tenant *tenant, uint32_t granule)
{
	struct guard *guard = tenant->guard;
	bool is_far = guard->slots[granule] == FAR;
	uint32_t from = is_far ? granule / guard->block * guard->block : granule;
	CUresult code = executor_code(
		tenant->executor, tenant_ops(tenant)->sink_unmap(
					  is_far ? guard->far : guard->near, address_of(tenant, from), 1));

	if (code)
		return code;
	count_slots(tenant, -1);
	guard->full = false;
	set_all(guard, from, from + (is_far ? guard->block : 1), WANTED);
	return CUDA_SUCCESS;
}

CUresult guard_make_room(struct tenant *tenant, const struct wire_range *range)
{
	struct guard *guard = tenant->guard;
	uint32_t from = granule_of(tenant, range->address);
	uint32_t to = from + (uint32_t)(range->bytes / GRANULE);
	CUresult code = CUDA_SUCCESS;
	struct pace pace;
	bool rests;

	if (!is_guarded(tenant, range->address))
		return CUDA_SUCCESS;
	if (to > granule_of(tenant, guard->home))
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* In a standby no session launches, and a take-over may be next for this thread. */
	rests = tenant_is_any_served(tenant->executor);
	pace_begin(&pace, tenant->executor);
	for (uint32_t i = from; !code && i < to; i++)
		if (guard->slots[i] == NEAR || guard->slots[i] == FAR) {
			code = clear(tenant, i);
			if (rests)
				pace_step(&pace);
		}
	return code;
}

void guard_note_mapped(struct tenant *tenant, const struct wire_range *range)
{
	struct guard *guard = tenant->guard;
	uint32_t from = granule_of(tenant, range->address);
	uint32_t to = from + (uint32_t)(range->bytes / GRANULE);

	if (!is_guarded(tenant, range->address))
		return;
	set_all(guard, from, to, REAL);
	surround(guard, from, to);
	if (!guard->full && to < guard->granules && guard->slots[to] == WANTED)
		back(tenant, to, 1);
	if (!guard->full && from > 0 && guard->slots[from - 1] == WANTED)
		back(tenant, from - 1, 1);
	job_board_kick(&tenant->executor->board);
}

void guard_note_unmapped(struct tenant *tenant, const struct wire_range *range)
{
	struct guard *guard = tenant->guard;
	uint32_t from = granule_of(tenant, range->address);
	uint32_t to = from + (uint32_t)(range->bytes / GRANULE);

	if (!is_guarded(tenant, range->address))
		return;
	/* Granules that were wanted before do not wait. */
	if (!guard->wanted)
		guard->step_at = clock_now() + FREED_NS;
	log_debug("session %llu: to be backed: %llu MiB that are free again", (unsigned long long)tenant->id,
		(unsigned long long)(range->bytes >> 20));
	set_all(guard, from, to, WANTED);
	surround(guard, from, to);
	job_board_kick(&tenant->executor->board);
}

/* ---- beginning and end ---- */

static bool is_sound(const struct tenant *tenant, const struct wire_open_guard *wish)
{
	uint64_t far = wish->far_bytes;

	return wish->near_bytes == GRANULE && far > GRANULE && far <= FAR_MOST && (far & (far - 1)) == 0 &&
	       tenant->device_bytes >= 4 * far && (wish->policy == GUARD_ERROR || wish->policy == GUARD_WARN);
}

static struct guard *allocate(const struct tenant *tenant, const struct wire_open_guard *wish)
{
	struct guard *guard = calloc(1, sizeof(*guard));
	uint64_t reach = wish->reach / GRANULE + (wish->reach % GRANULE != 0);

	if (!guard)
		return NULL;
	*guard = (struct guard){.near_bytes = wish->near_bytes,
		.far_bytes = wish->far_bytes,
		.home = tenant->window_base + tenant->device_bytes - wish->near_bytes - wish->far_bytes,
		.policy = wish->policy,
		.granules = (uint32_t)(tenant->device_bytes / GRANULE),
		.block = (uint32_t)(wish->far_bytes / GRANULE),
		.high = 1};
	guard->reach = reach < guard->granules ? (uint32_t)reach : guard->granules;
	guard->slots = calloc(guard->granules, 1);
	if (guard->slots)
		return guard;
	free(guard);
	return NULL;
}

static CUresult open_sinks(struct tenant *tenant, int near_fd, int far_fd)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	struct guard *guard = tenant->guard;
	CUresult code = ops->sink_open(near_fd, guard->near_bytes, &guard->near);

	if (!code)
		code = ops->sink_open(far_fd, guard->far_bytes, &guard->far);
	if (!code)
		code = ops->sink_map(guard->near, guard->home, 1);
	if (code)
		return code;
	code = ops->sink_map(guard->far, guard->home + guard->near_bytes, 1);
	if (code)
		ops->sink_unmap(guard->near, guard->home, 1);
	guard->home_mapped = !code;
	return code;
}

/* The session may have memory already. */
static void adopt(struct tenant *tenant)
{
	struct guard *guard = tenant->guard;
	struct range_set *maps = &tenant->device_maps;

	set_all(guard, granule_of(tenant, guard->home), guard->granules, REAL);
	/* Only this thread changes device_maps. */
	for (uint32_t i = 0; i < maps->count; i++)
		if (tenant_is_device(tenant, maps->at[i].start))
			set_all(guard, granule_of(tenant, maps->at[i].start),
				granule_of(tenant, maps->at[i].end), REAL);
	for (uint32_t i = 0; i < maps->count; i++)
		if (tenant_is_device(tenant, maps->at[i].start))
			surround(guard, granule_of(tenant, maps->at[i].start),
				granule_of(tenant, maps->at[i].end));
}

static CUresult open_guard(struct tenant *tenant, const struct wire_open_guard *wish, int near_fd, int far_fd)
{
	CUresult code;

	/* A daemon that does not know if the previous daemon had sent the request sends it
	 * again. */
	if (tenant->guard)
		return CUDA_SUCCESS;
	if (near_fd < 0 || far_fd < 0 || !is_sound(tenant, wish))
		return CUDA_ERROR_INVALID_VALUE;
	code = stray_open(tenant->executor, wish->interval_ms);
	if (code)
		return code;
	tenant->guard = allocate(tenant, wish);
	if (!tenant->guard)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = executor_code(tenant->executor, open_sinks(tenant, near_fd, far_fd));
	if (code) {
		guard_end(tenant);
	} else {
		adopt(tenant);
	}
	stray_begin(tenant);
	return code;
}

void guard_handle(struct job *job)
{
	int near_fd = packet_take_fd(&job->packet, 0), far_fd = packet_take_fd(&job->packet, 1);
	CUresult code = open_guard(job->tenant, &job->message.open_guard, near_fd, far_fd);

	if (near_fd >= 0)
		close(near_fd);
	if (far_fd >= 0)
		close(far_fd);
	job_board_kick(&job->executor->board);
	job_reply(job, code, NULL, 0, NULL);
}

static void unmap_home(struct tenant *tenant)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	struct guard *guard = tenant->guard;

	if (guard->home_mapped) {
		executor_code(tenant->executor, ops->sink_unmap(guard->near, guard->home, 1));
		executor_code(
			tenant->executor, ops->sink_unmap(guard->far, guard->home + guard->near_bytes, 1));
	}
	if (guard->near)
		ops->sink_close(guard->near);
	if (guard->far)
		ops->sink_close(guard->far);
	guard->near = guard->far = NULL;
	guard->home_mapped = false;
}

bool guard_unmap(struct tenant *tenant, struct pace *pace)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	struct guard *guard = tenant->guard;

	while (guard && guard->unmapped < guard->granules) {
		uint32_t i = guard->unmapped;
		bool is_far = guard->slots[i] == FAR;

		guard->unmapped += is_far ? guard->block : 1;
		if (!is_far && guard->slots[i] != NEAR)
			continue;
		executor_code(tenant->executor,
			ops->sink_unmap(is_far ? guard->far : guard->near, address_of(tenant, i), 1));
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
	tenant->executor->strays.slots -= guard->mapped;
	free(guard->slots);
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
