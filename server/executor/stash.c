// The stash: parts are mapped at addresses that no session has, so no command may name them.
//
//   MapStash     reserves the addresses, and starts the carriers: nobody waits for them while
//                programs stand still; or maps a part
//   CarryMemory  with `aside`: a carrier copies memory of a session into the stash (carry.c)
//   CarryStash   a carrier copies from the stash to a file
//   UnmapStash   a part: waits for the copies into the stash. The daemon waits for those out of it.
//                All parts and the addresses, also of an earlier life of the daemon: behind all
//                copies
//
// Main thread.

#include "server/executor/stash.h"

#include <unistd.h>

#include "server/executor/carry.h"
#include "server/executor/executor.h"

void stash_init(struct executor *executor)
{
	range_set_init(&executor->stash.parts, false);
	range_set_init(&executor->stash.all, true);
}

bool stash_covers(struct executor *executor, uint64_t address, uint64_t bytes)
{
	struct range_cache cache = {0};

	return bytes && range_set_covers_slow(&executor->stash.all, &cache, address, bytes);
}

static CUresult unmap(struct executor *executor, uint64_t address, uint64_t bytes)
{
	range_set_remove(&executor->stash.all, address, bytes);
	return executor_code(executor, executor->ops->chunk_unmap(address, bytes));
}

static CUresult unmap_part(struct executor *executor, const struct wire_range *range)
{
	if (range_set_remove(&executor->stash.parts, range->address, range->bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return unmap(executor, range->address, range->bytes);
}

static CUresult release_window(struct executor *executor)
{
	const struct range window = executor->stash.window;

	executor->stash.window = (struct range){0};
	if (!window.end)
		return CUDA_SUCCESS;
	return executor_code(
		executor, executor->ops->window_release(window.start, window.end - window.start));
}

static CUresult unmap_all(struct executor *executor)
{
	CUresult code = CUDA_SUCCESS;
	struct range range;

	while (!code && !range_set_pop(&executor->stash.parts, &range))
		code = unmap(executor, range.start, range.end - range.start);
	return code ? code : release_window(executor);
}

void stash_deinit(struct executor *executor)
{
	if (!executor_is_lost(executor))
		unmap_all(executor);
	range_set_deinit(&executor->stash.parts);
	range_set_deinit(&executor->stash.all);
}

static CUresult reserve(struct executor *executor, const struct wire_range *range)
{
	struct stash_parts *stash = &executor->stash;
	CUresult code = stash->window.end || range->address + range->bytes <= range->address
				? CUDA_ERROR_INVALID_VALUE
				: CUDA_SUCCESS;

	if (!code && !carry_prepare(executor))
		code = CUDA_ERROR_OUT_OF_MEMORY;
	if (!code)
		code = executor_code(executor, executor->ops->window_reserve(range->address, range->bytes));
	if (!code)
		stash->window = (struct range){range->address, range->address + range->bytes};
	return code;
}

static CUresult map_part(struct executor *executor, const struct wire_range *range, int fd)
{
	struct stash_parts *stash = &executor->stash;
	CUresult code;

	if (!range_holds(&stash->window, range->address, range->bytes) ||
		range_set_add(&stash->parts, range->address, range->bytes))
		return CUDA_ERROR_INVALID_VALUE;
	code = executor_code(executor, executor->ops->chunk_map(range->address, range->bytes, fd));
	if (!code && range_set_add(&stash->all, range->address, range->bytes)) {
		executor_code(executor, executor->ops->chunk_unmap(range->address, range->bytes));
		code = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (code)
		range_set_remove(&stash->parts, range->address, range->bytes);
	return code;
}

static void handle_map(struct job *job)
{
	const struct wire_range *range = &job->message.range;
	int fd = packet_take_fd(&job->packet, 0);

	job_reply(job, fd < 0 ? reserve(job->executor, range) : map_part(job->executor, range, fd), NULL, 0,
		NULL);
	if (fd >= 0)
		close(fd);
}

/* Pairs with the releases behind copies. */
static bool is_busy(const struct job *job)
{
	const struct stash_parts *stash = &job->executor->stash;

	return word_acquire(&stash->filling) || (!job->message.range.bytes && word_acquire(&stash->emptying));
}

static int unmap_idle(struct job *job)
{
	const struct wire_range *range = &job->message.range;

	if (executor_is_lost(job->executor)) {
		job_free(job);
		return 0;
	}
	if (is_busy(job))
		return JOB_E_WAIT;
	job_reply(job, range->bytes ? unmap_part(job->executor, range) : unmap_all(job->executor), NULL, 0,
		NULL);
	return 0;
}

static void handle_unmap(struct job *job)
{
	if (unmap_idle(job))
		job_park(job, unmap_idle);
}

void stash_handle(struct job *job)
{
	if (job->message.type == WIRE_MAP_STASH)
		handle_map(job);
	else if (job->message.type == WIRE_UNMAP_STASH)
		handle_unmap(job);
	else
		carry_handle_stash(job);
}
