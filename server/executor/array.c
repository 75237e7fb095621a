// See array.h. Module thread, but for array_place(). An array is published to the serving thread
// like a function (module.c): in an array by id, and freed only when the serving thread has begun
// another turn after the removal from the table (drain.c).

#include "server/executor/array.h"

#include <stdlib.h>

#include "protocol/texel.h"
#include "server/clock.h"
#include "server/executor/drain.h"
#include "server/executor/object.h"
#include "server/executor/tenant.h"

static array_word *find_slot(const struct tenant *tenant, uint32_t id)
{
	/* Pairs with the release in make_slot(). */
	array_word *arrays =
		atomic_load_explicit(&((struct tenant *)tenant)->arrays.arrays, memory_order_acquire);

	return arrays && id && id < FRMPS_ARRAY_IDS ? &arrays[id] : NULL;
}

struct array *array_find(const struct tenant *tenant, uint32_t id)
{
	array_word *slot = find_slot(tenant, id);

	/* Pairs with the release in array_make(). */
	return slot ? atomic_load_explicit(slot, memory_order_acquire) : NULL;
}

static array_word *make_slot(struct tenant *tenant, uint32_t id)
{
	struct array_table *table = &tenant->arrays;

	if (!atomic_load_explicit(&table->arrays, memory_order_relaxed))
		atomic_store_explicit(
			&table->arrays, calloc(FRMPS_ARRAY_IDS, sizeof(array_word)), memory_order_release);
	return find_slot(tenant, id);
}

/* ---- making ---- */

void array_make(struct job *job)
{
	const struct wire_array *wish = &job->message.array;
	array_word *slot = make_slot(job->tenant, wish->array);
	struct array *array = calloc(1, sizeof(*array));
	CUresult code = array ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	struct texel_level level;
	uint64_t need[2];

	if (!code && (!slot || array_find(job->tenant, wish->array) || !texel_level(wish, 0, &level)))
		code = CUDA_ERROR_INVALID_VALUE;
	if (!code)
		code = executor_code(job->executor,
			job->executor->ops->array_make(wish, &array->backend, &need[0], &need[1]));
	if (code) {
		free(array);
	} else {
		array->form = *wish;
		/* Pairs with the acquire in array_find(). */
		atomic_store_explicit(slot, array, memory_order_release);
	}
	job_reply(job, code, need, code ? 0 : 2, NULL);
}

/* To a standby the memory may come a moment later, but the daemon knows that it is the
 * session's. */
static bool is_own_memory(struct tenant *tenant, const struct wire_back_array *wish)
{
	return !word_relaxed(&tenant->generation) ||
	       (tenant_is_device(tenant, wish->address) &&
		       tenant_admits_anywhere(tenant, wish->address, wish->bytes));
}

void array_back(struct job *job)
{
	const struct wire_back_array *wish = &job->message.back_array;
	struct array *array = array_find(job->tenant, wish->array);
	int fd = job->packet.fd_count ? job->packet.fds[0] : -1;
	CUresult code = CUDA_ERROR_INVALID_VALUE;

	if (array && array->memory.start == array->memory.end && fd >= 0 && wish->bytes &&
		wish->offset < wish->span && wish->bytes <= wish->span - wish->offset &&
		is_own_memory(job->tenant, wish))
		code = executor_code(job->executor, job->executor->ops->array_back(array->backend, wish, fd));
	if (!code) {
		array->memory = (struct range){wish->address, wish->address + wish->bytes};
		/* Pairs with the acquire in array_place(). */
		atomic_store_explicit(&array->is_backed, true, memory_order_release);
	}
	job_reply(job, code, NULL, 0, NULL);
}

/* ---- copies ---- */

CUresult array_place(const struct tenant *tenant, const struct frmps_array_copy *copy, bool is_dst,
	struct backend_place *ret_place, struct range *ret_memory)
{
	const struct frmps_copy *box = &copy->copy;
	uint32_t number = is_dst ? copy->dst_level : copy->src_level;
	uint64_t at = is_dst ? box->dst : box->src;
	const struct array *array = array_find(tenant, is_dst ? copy->dst_array : copy->src_array);
	struct texel_level level;
	uint64_t x, y, z;

	if (!array || !atomic_load_explicit(&array->is_backed, memory_order_acquire) ||
		!texel_level(&array->form, number, &level))
		return CUDA_ERROR_INVALID_HANDLE;
	x = at % level.row_bytes;
	y = at / level.row_bytes % level.rows;
	z = at / level.row_bytes / level.rows;
	if (box->width > level.row_bytes - x || box->height > level.rows - y || z >= level.planes ||
		box->depth > level.planes - z || !box->width || !box->height || !box->depth)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_place = (struct backend_place){.array = array->backend, .level = number, .x = x, .y = y, .z = z};
	*ret_memory = array->memory;
	return CUDA_SUCCESS;
}

/* ---- the end ---- */

static uint64_t bytes_of(const struct array *array)
{
	return array->memory.end - array->memory.start;
}

static void free_first(struct executor *executor)
{
	struct array_reclaim *reclaim = &executor->modules.array_reclaim;
	struct array *array = reclaim->first;

	reclaim->first = array->next;
	reclaim->bytes -= bytes_of(array);
	if (!executor_is_lost(executor))
		executor_code(executor, executor->ops->array_free(array->backend));
	free(array);
}

/* Other sessions wait during a gap: arrays that do not fit this gap wait for the next. */
void array_reclaim_all(struct executor *executor)
{
	const struct gate *gate = &executor->gate;

	while (executor->modules.array_reclaim.first &&
		(!gate->closed || clock_now() - gate->closed_at < GATE_BATCH_NS))
		free_first(executor);
}

static void reclaim_later(struct executor *executor, struct array *array)
{
	struct array_reclaim *reclaim = &executor->modules.array_reclaim;

	if (!reclaim->first)
		reclaim->since = clock_now();
	array->next = reclaim->first;
	reclaim->first = array;
	reclaim->bytes += bytes_of(array);
	if (executor->gate.closed)
		array_reclaim_all(executor);
}

/* Queues the arrays that were dropped before the drain with this ticket began. That drain has
 * succeeded. */
static void reclaim_dropped(struct tenant *tenant, uint64_t ticket)
{
	struct array **at = &tenant->arrays.dropped, *array;

	while ((array = *at)) {
		if (array->ticket >= ticket) {
			at = &array->next;
			continue;
		}
		*at = array->next;
		reclaim_later(tenant->executor, array);
	}
}

/* While many bytes wait for a gap, a session that frees more waits for a gap, too. If no gap comes
 * in time, the session goes on without. */
static void drop_finish(struct job *job)
{
	if (job->executor->modules.array_reclaim.bytes > ARRAY_RECLAIM_BYTES)
		module_worker_enter_gap(job->executor, job->tenant, job->since);
	graph_free_forgotten(job->tenant, job->ticket);
	reclaim_dropped(job->tenant, job->ticket);
	job_reply(job, CUDA_SUCCESS, NULL, 0, NULL);
}

/* Where the work does not end in time, the next drop queues this array, too, or the session's end
 * does. */
static void drop_drained(struct job *job)
{
	if (!job->drained) {
		job_reply(job, CUDA_SUCCESS, NULL, 0, NULL);
		return;
	}
	module_worker_queue(job, drop_finish);
}

static void drop(struct tenant *tenant, array_word *slot, struct array *array)
{
	atomic_store_explicit(slot, NULL, memory_order_release);
	array->ticket = word_relaxed(&tenant->asked);
	array->next = tenant->arrays.dropped;
	tenant->arrays.dropped = array;
}

/* The client says that no work is in flight. The executor verifies that before the client has the
 * memory back. */
void array_drop(struct job *job)
{
	uint32_t id = job->message.array.array;
	struct array *array = array_find(job->tenant, id);

	if (!array) {
		job_reply(job, CUDA_ERROR_INVALID_HANDLE, NULL, 0, NULL);
		return;
	}
	object_forget_array(job->tenant, id);
	graph_forget_array(job->tenant, id);
	drop(job->tenant, find_slot(job->tenant, id), array);
	drain_park(job, drop_drained);
}

void array_table_deinit(struct tenant *tenant)
{
	array_word *slot;

	for (uint32_t id = 1; (slot = find_slot(tenant, id)); id++) {
		struct array *array = atomic_load_explicit(slot, memory_order_relaxed);

		if (array)
			drop(tenant, slot, array);
	}
	reclaim_dropped(tenant, UINT64_MAX);
	free(atomic_load_explicit(&tenant->arrays.arrays, memory_order_relaxed));
	atomic_store_explicit(&tenant->arrays.arrays, NULL, memory_order_relaxed);
}
