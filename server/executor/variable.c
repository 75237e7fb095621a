// The executor's own way to the device's memory: copies through a registered page, on a stream of
// its own, with a wait. So first values of a module's variables come into their block of the
// program's memory (load.c), and constants get the values of their mirrors (constant.c).
//
// The device may do a late copy at any time: until then the path is not used.

#include "server/executor/variable.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "server/clock.h"
#include "server/executor/tenant.h"

#define PIECE (UINT64_C(256) << 10)
/* Time for a piece. */
#define PIECE_NS (UINT64_C(2000) * CLOCK_MS)

struct variable_page {
	word64 mark;
	uint64_t reserved[511];
	uint8_t piece[PIECE];
};

CUresult variable_open(struct executor *executor)
{
	struct variable_path *path = &executor->variables;
	void *page =
		mmap(NULL, sizeof(*path->page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CUresult code;

	if (page == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = executor->ops->host_register(page, sizeof(*path->page));
	if (!code) {
		code = executor->ops->stream_create(executor->device.priority_greatest, 0, &path->stream);
		if (code)
			executor->ops->host_unregister(page);
	}
	if (code) {
		munmap(page, sizeof(*path->page));
		return code;
	}
	pthread_mutex_init(&path->lock, NULL);
	path->page = page;
	return CUDA_SUCCESS;
}

void variable_close(struct executor *executor)
{
	struct variable_path *path = &executor->variables;

	if (!path->page)
		return;
	executor_code(executor, executor->ops->stream_destroy(path->stream));
	executor_code(executor, executor->ops->host_unregister(path->page));
	munmap(path->page, sizeof(*path->page));
	pthread_mutex_destroy(&path->lock);
	*path = (struct variable_path){0};
}

static void pause_for(uint64_t ns)
{
	const struct timespec time = {.tv_nsec = (long)ns};

	nanosleep(&time, NULL);
}

/* Locked. Puts a mark behind issued copies: without the mark their end is not known. */
static CUresult put_mark(struct executor *executor)
{
	struct variable_path *path = &executor->variables;
	CUresult code =
		executor_code(executor, executor->ops->mark(path->stream, &path->page->mark, path->mark));

	path->marked = code == CUDA_SUCCESS;
	return code;
}

static bool may_ask(struct executor *executor)
{
	return !executor_is_lost(executor) && !contain_is_open(executor);
}

/* Locked. True if the device may still use the page. A late copy may be done by now. */
static bool is_broken(struct executor *executor)
{
	struct variable_path *path = &executor->variables;

	if (path->broken && !path->marked && may_ask(executor))
		put_mark(executor);
	if (path->broken && path->marked && word_acquire(&path->page->mark) >= path->mark) {
		path->broken = false;
		word_set(&path->late, 0);
	}
	return path->broken;
}

/* Locked. Return: true if the device has done the copies. */
static bool carry_out(struct executor *executor, const struct backend_copy *copies, uint32_t count)
{
	struct variable_path *path = &executor->variables;
	uint64_t since = clock_now(), now = since;
	CUresult code = CUDA_SUCCESS;

	if (is_broken(executor))
		return false;
	for (uint32_t i = 0; !code && i < count; i++)
		code = executor_code(executor, executor->ops->copy(path->stream, &copies[i]));
	if (code)
		return false;
	path->mark++;
	code = put_mark(executor);
	/* Pairs with the device's write. */
	while (!code && word_acquire(&path->page->mark) < path->mark && now - since < PIECE_NS) {
		pause_for(clock_interval(since, now));
		now = clock_now();
	}
	path->broken = code || word_acquire(&path->page->mark) < path->mark;
	return !path->broken;
}

bool variable_carry_out(struct executor *executor, const struct backend_copy *copies, uint32_t count)
{
	bool fine;

	pthread_mutex_lock(&executor->variables.lock);
	fine = carry_out(executor, copies, count);
	pthread_mutex_unlock(&executor->variables.lock);
	return fine;
}

static struct backend_copy linear(uint64_t dst, uint64_t src, uint64_t bytes)
{
	return (struct backend_copy){.dst = dst, .src = src, .width = bytes, .height = 1, .depth = 1};
}

/* ---- moved variables ---- */

static bool fill_piece(struct tenant *tenant, uint64_t address, const uint8_t *values, uint64_t bytes)
{
	struct variable_path *path = &tenant->executor->variables;
	struct backend_copy copy = linear(address, (uintptr_t)path->page->piece, bytes);
	bool fine = false;

	copy.src_is_host = true;
	pthread_mutex_lock(&path->lock);
	/* The device may still read the page for a late copy. */
	if (!is_broken(tenant->executor)) {
		memcpy(path->page->piece, values, bytes);
		word_set(&path->late, tenant->id);
		fine = carry_out(tenant->executor, &copy, 1);
		if (!path->broken)
			word_set(&path->late, 0);
	}
	pthread_mutex_unlock(&path->lock);
	return fine;
}

bool variable_is_late(struct tenant *tenant)
{
	struct variable_path *path = &tenant->executor->variables;
	bool late;

	if (!path->page)
		return false;
	/* The session of the values in flight is known without the lock. */
	if (pthread_mutex_trylock(&path->lock))
		return word_relaxed(&path->late) == tenant->id;
	late = is_broken(tenant->executor) && word_relaxed(&path->late) == tenant->id;
	pthread_mutex_unlock(&path->lock);
	return late;
}

CUresult variable_fill(struct tenant *tenant, const struct range *block, const uint8_t *values)
{
	struct range_cache cache = {0}, host = {0};
	uint64_t bytes = block->end - block->start;

	if (block->end < block->start ||
		(!range_set_covers(&tenant->device, &cache, block->start, bytes) &&
			!range_set_covers(&tenant->host, &host, block->start, bytes)))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t done = 0; done < bytes; done += PIECE) {
		uint64_t size = bytes - done < PIECE ? bytes - done : PIECE;

		if (!fill_piece(tenant, block->start + done, values + done, size))
			return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	return CUDA_SUCCESS;
}
