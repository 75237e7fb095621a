// Memory of sessions: chunks in the device part of the window, pinned memory in its host part. Main
// thread; the module thread unpins, because the driver then waits for running kernels and blocks
// all other calls.
//
// A range leaves in this order: the range is removed from the set that commands may name; the
// serving thread begins another turn and commands on the device end (drain.c); then the range is
// unmapped. If the work does not end in time, the range is added again and the request is answered
// with CUDA_ERROR_NOT_READY. Pinned memory is free for the client then, but stays pinned, and its
// addresses taken, until no session's work runs (deferred.c). The answer reports that; the same
// request once more is answered after the unpinning.
//
// Requests of a session that is not served here follow one another without waiting. So the module
// thread owns all pinned memory of such a session: memory is pinned again at an address only after
// the unpinning there.
//
// A chunk is zero when the keeper makes it, and each mapping gets a chunk of its own: nothing is
// cleared here.

#include "server/executor/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "server/bytes.h"
#include "server/executor/carry.h"
#include "server/clock.h"
#include "server/executor/drain.h"
#include "server/executor/guard.h"
#include "server/executor/hollow.h"
#include "server/executor/module_worker.h"
#include "server/executor/pace.h"
#include "server/executor/tenant.h"
#include "server/log.h"

#define READY_NS (UINT64_C(1000) * CLOCK_MS)
#define PAGE	 UINT64_C(4096)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static bool fits(const struct wire_range *range, uint64_t granule)
{
	return range->bytes && range->address % granule == 0 && range->bytes % granule == 0 &&
	       range->bytes <= UINT64_MAX - range->address;
}

static bool is_device_range(struct tenant *tenant, const struct wire_range *range)
{
	return fits(range, BACKEND_CHUNK_GRANULE) && tenant_has_window(tenant, range->address, range->bytes);
}

static bool is_host_range(struct tenant *tenant, const struct wire_range *range)
{
	return fits(range, PAGE) && tenant_has_host_window(tenant, range->address, range->bytes);
}

static CUresult range_code(int error)
{
	if (!error)
		return CUDA_SUCCESS;
	return error == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map_chunk(struct tenant *tenant, const struct wire_range *range, int fd)
{
	struct executor *executor = tenant->executor;
	const struct backend_ops *ops = executor->ops;
	CUresult code = guard_make_room(tenant, range);

	if (!code)
		code = executor_code(executor, ops->chunk_map(range->address, range->bytes, fd));
	if (code)
		return code;
	guard_note_mapped(tenant, range);
	code = range_code(range_set_add(&tenant->device, range->address, range->bytes));
	if (code) {
		executor_code(executor, ops->chunk_unmap(range->address, range->bytes));
		guard_note_unmapped(tenant, range);
	}
	return code;
}

/* True if a range of an exact set has a part of this one. */
static bool touches(struct range_set *set, const struct wire_range *range)
{
	if (range_set_add(set, range->address, range->bytes))
		return true;
	range_set_remove(set, range->address, range->bytes);
	return false;
}

static void map_memory_now(struct job *job)
{
	const struct wire_range *range = &job->message.range;
	struct tenant *tenant = job->tenant;
	int fd = packet_take_fd(&job->packet, 0);
	CUresult code = CUDA_ERROR_INVALID_VALUE;

	if (fd >= 0 && is_device_range(tenant, range))
		code = range_code(range_set_add(&tenant->device_maps, range->address, range->bytes));
	if (!code) {
		if (range->flags)
			tenant->aliased = true;
		code = map_chunk(tenant, range, fd);
		if (code)
			range_set_remove(&tenant->device_maps, range->address, range->bytes);
	}
	if (fd >= 0)
		close(fd);
	range_set_remove(&tenant->changing, range->address, range->bytes);
	job_reply(job, code, NULL, 0, NULL);
}

/* Guard hits around memory that the guard is not ready for would go unseen at first. The guard is
 * ready within microseconds, unless no work finds room on the device: then the request waits for
 * READY_NS at most. */
static int map_memory_ready(struct job *job)
{
	if (!guard_watch_is_ready(job->tenant) && !executor_is_lost(job->executor) &&
		clock_now() - job->since < READY_NS)
		return JOB_E_WAIT;
	map_memory_now(job);
	return 0;
}

static void map_memory(struct job *job)
{
	const struct wire_range *range = &job->message.range;

	range_set_add(&job->tenant->changing, range->address, range->bytes);
	if (guard_watch_is_ready(job->tenant)) {
		map_memory_now(job);
		return;
	}
	job_park(job, map_memory_ready);
}

/* Removes a range, which must be exactly a mapped one, from the set that commands may name; on
 * failure nothing changes. */
static int withdraw(struct range_set *maps, struct range_set *set, const struct wire_range *range)
{
	int error = range_set_remove(maps, range->address, range->bytes);

	if (error)
		return error;
	error = range_set_remove(set, range->address, range->bytes);
	/* The removal has just made room for the range. */
	if (error)
		range_set_add(maps, range->address, range->bytes);
	return error;
}

static void restore(struct range_set *maps, struct range_set *set, const struct wire_range *range)
{
	if (range_set_add(maps, range->address, range->bytes) ||
		range_set_add(set, range->address, range->bytes))
		log_error("no memory to take an unmapping back: %s of addresses stay out of reach",
			BYTES_OF(range->bytes));
}

static void unmap_memory_drained(struct job *job);

/* A copy of a request that is not waited for any more may be under way (carry.h). */
static int unmap_memory_carried(struct job *job)
{
	if (carry_is_busy(job->tenant) && !executor_is_lost(job->executor))
		return JOB_E_WAIT;
	unmap_memory_drained(job);
	return 0;
}

static void unmap_memory_drained(struct job *job)
{
	const struct wire_range *range = &job->message.range;
	struct tenant *tenant = job->tenant;
	CUresult code = CUDA_ERROR_NOT_READY;

	if (job->drained && carry_is_busy(tenant) && !executor_is_lost(job->executor)) {
		job_park(job, unmap_memory_carried);
		return;
	}

	if (job->drained)
		code = executor_code(
			job->executor, tenant_ops(tenant)->chunk_unmap(range->address, range->bytes));
	range_set_remove(&tenant->changing, range->address, range->bytes);
	if (code)
		restore(&tenant->device_maps, &tenant->device, range);
	else
		guard_note_unmapped(tenant, range);
	job_reply(job, code, NULL, 0, NULL);
}

static void unmap_memory(struct job *job)
{
	struct tenant *tenant = job->tenant;
	const struct wire_range *range = &job->message.range;
	CUresult code = range_code(withdraw(&tenant->device_maps, &tenant->device, range));

	if (!code) {
		code = range_code(range_set_add(&tenant->changing, range->address, range->bytes));
		if (code)
			restore(&tenant->device_maps, &tenant->device, range);
	}
	if (code)
		job_reply(job, code, NULL, 0, NULL);
	else
		drain_begin(job, DRAIN_PATIENCE_NS, unmap_memory_drained);
}

static void begin_change(struct job *job)
{
	if (job->message.type == WIRE_MAP_MEMORY)
		map_memory(job);
	else
		unmap_memory(job);
}

static int change_memory_free(struct job *job)
{
	if (touches(&job->tenant->changing, &job->message.range) && !executor_is_lost(job->executor))
		return JOB_E_WAIT;
	job->tenant->changes_queued--;
	begin_change(job);
	return 0;
}

/* Requests for the same range are carried out in their order. A daemon that has taken over does not
 * know how far those of the earlier one have come. */
static void change_memory(struct job *job)
{
	struct tenant *tenant = job->tenant;
	const struct wire_range *range = &job->message.range;

	if (!is_device_range(tenant, range) ||
		(!tenant->changes_queued && !touches(&tenant->changing, range))) {
		begin_change(job);
		return;
	}
	tenant->changes_queued++;
	job_park(job, change_memory_free);
}

/* True if reading the file can never fault: the file is large enough and cannot shrink. A file of
 * huge pages may have holes, and there may be no huge page left when a hole is read. */
static bool is_steady(int fd, uint64_t bytes)
{
	struct stat status;
	struct statfs system;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && seals & F_SEAL_SHRINK && fstat(fd, &status) == 0 && status.st_size >= 0 &&
	       (uint64_t)status.st_size >= bytes && fstatfs(fd, &system) == 0 &&
	       system.f_type != HUGETLBFS_MAGIC;
}

/* True if a file of the program's has all bytes at the moment. Then its size may change. */
static bool is_long_enough(int fd, const struct wire_range *range)
{
	struct stat status;

	return fstat(fd, &status) == 0 && status.st_size >= 0 &&
	       range->offset + range->bytes <= ((uint64_t)status.st_size + PAGE - 1) / PAGE * PAGE;
}

static bool is_of_program(const struct wire_range *range)
{
	return range->flags & WIRE_HOST_FILE;
}

/* Puts the host part's reservation back in the place of the mapping. */
static void hide(uint64_t address, uint64_t bytes)
{
	hollow_remove(address);
	if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		log_error("cannot reserve %s again: %m", BYTES_OF(bytes));
}

/* Pages that are not there, and for which there is no room, are a code here, and not the driver's
 * trouble. */
static CUresult populate(const struct wire_range *range)
{
	void *at = (void *)(uintptr_t)range->address;

	if (!hollow_add(range->address, range->bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (madvise(at, range->bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) /* before Linux 5.14 */
		return CUDA_SUCCESS;
	return errno == EFAULT ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pin_pages(struct tenant *tenant, const struct wire_range *range)
{
	void *at = (void *)(uintptr_t)range->address;
	CUresult code;

	/* Commands may name the range a moment too early; undoing the registration would stop all
	 * sessions. */
	code = range_code(range_set_add(&tenant->host, range->address, range->bytes));
	if (!code) {
		code = executor_code(tenant->executor, tenant_ops(tenant)->host_register(at, range->bytes));
		if (code)
			range_set_remove(&tenant->host, range->address, range->bytes);
	}
	return code;
}

static CUresult map_pages(struct tenant *tenant, const struct wire_range *range, int fd)
{
	void *at = (void *)(uintptr_t)range->address;
	CUresult code;

	if (mmap(at, range->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		    (off_t)range->offset) == MAP_FAILED)
		return errno == EPERM ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	code = is_of_program(range) ? populate(range) : CUDA_SUCCESS;
	if (!code)
		code = pin_pages(tenant, range);
	if (code)
		hide(range->address, range->bytes);
	return code;
}

static bool is_served(const struct tenant *tenant)
{
	return word_relaxed(&tenant->generation);
}

static void run_in_order(struct job *job, void (*run)(struct job *job))
{
	if (is_served(job->tenant)) {
		run(job);
		return;
	}
	module_worker_queue(job, run);
}

static void map_host_now(struct job *job)
{
	const struct wire_range *range = &job->message.range;
	struct tenant *tenant = job->tenant;
	int fd = packet_take_fd(&job->packet, 0);
	const char *text = NULL;
	CUresult code = CUDA_ERROR_INVALID_VALUE;

	if (fd < 0 || !is_host_range(tenant, range))
		text = "not a range of the host part, or no memory beside it";
	else if (is_of_program(range) && !is_long_enough(fd, range))
		text = "the program's file is too short";
	else if (!is_of_program(range) && !is_steady(fd, range->bytes))
		text = "the memory is too small, could shrink, or is of huge pages";
	else if (touches(&tenant->unpinning, range) || !deferred_admits(job->executor))
		code = CUDA_ERROR_OUT_OF_MEMORY;
	else
		code = range_code(range_set_add(&tenant->host_maps, range->address, range->bytes));
	if (!code) {
		code = map_pages(tenant, range, fd);
		if (code)
			range_set_remove(&tenant->host_maps, range->address, range->bytes);
	}
	if (fd >= 0)
		close(fd);
	job_reply(job, code, NULL, 0, text);
}

static void map_host(struct job *job)
{
	run_in_order(job, map_host_now);
}

/* In a standby nothing runs as soon as the serving threads have looked at the gate, and the
 * requests behind this one must find the range unpinned. */
static void unpin_at_once(struct job *job)
{
	const struct timespec pause = {.tv_nsec = 100 * CLOCK_US};
	struct executor *executor = job->executor;
	uint64_t begin = clock_now();

	while (touches(&job->tenant->unpinning, &job->message.range) && !tenant_is_any_served(executor) &&
		!executor_is_lost(executor) && clock_now() - begin < READY_NS)
		if (!deferred_work(executor))
			nanosleep(&pause, NULL);
}

/* Module thread. */
static void unmap_host_finish(struct job *job)
{
	const struct wire_range *wish = &job->message.range;
	struct range range = {wish->address, wish->address + wish->bytes};
	struct tenant *tenant = job->tenant;

	if (deferred_add_range(tenant, &range)) {
		restore(&tenant->host_maps, &tenant->host, wish);
		job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, NULL);
		return;
	}
	deferred_work(job->executor);
	unpin_at_once(job);
	job_reply(job, CUDA_SUCCESS, &wish->bytes, touches(&tenant->unpinning, wish) ? 1 : 0, NULL);
}

static void unmap_host_drained(struct job *job)
{
	if (!job->drained) {
		restore(&job->tenant->host_maps, &job->tenant->host, &job->message.range);
		job_reply(job, CUDA_ERROR_NOT_READY, NULL, 0, NULL);
		return;
	}
	module_worker_queue(job, unmap_host_finish);
}

static void unmap_host_now(struct job *job)
{
	const struct wire_range *wish = &job->message.range;
	struct range range = {wish->address, wish->address + wish->bytes};
	struct tenant *tenant = job->tenant;
	CUresult code;

	if (deferred_watch(job->executor, tenant->id, &range, job))
		return;
	code = range_code(withdraw(&tenant->host_maps, &tenant->host, wish));
	if (code) {
		job_reply(job, code, NULL, 0, NULL);
	} else if (is_served(tenant)) {
		drain_park(job, unmap_host_drained);
	} else {
		unmap_host_finish(job);
	}
}

static void unmap_host(struct job *job)
{
	run_in_order(job, unmap_host_now);
}

static void query_memory(struct job *job)
{
	uint64_t values[2] = {0, 0};
	CUresult code = executor_code(job->executor, job->executor->ops->memory_info(&values[0], &values[1]));

	job_reply(job, code, values, code ? 0 : 2, NULL);
}

static bool is_window(uint64_t address, uint64_t bytes)
{
	return bytes && address % BACKEND_CHUNK_GRANULE == 0 && bytes % BACKEND_CHUNK_GRANULE == 0 &&
	       address + bytes > address;
}

CUresult memory_reserve(struct tenant *tenant, uint64_t address, uint64_t bytes)
{
	CUresult code = CUDA_ERROR_INVALID_VALUE;

	if (is_window(address, bytes))
		code = range_code(range_set_add(&tenant->windows, address, bytes));
	if (code)
		return code;
	code = executor_code(tenant->executor, tenant_ops(tenant)->window_reserve(address, bytes));
	if (code)
		range_set_remove(&tenant->windows, address, bytes);
	return code;
}

CUresult memory_reserve_host(struct tenant *tenant, uint64_t address, uint64_t bytes)
{
	void *at = (void *)(uintptr_t)address;
	CUresult code = CUDA_ERROR_INVALID_VALUE;

	if (fits(&(struct wire_range){.address = address, .bytes = bytes}, PAGE))
		code = range_code(range_set_add(&tenant->host_windows, address, bytes));
	if (code)
		return code;
	if (mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
		    0) != at) {
		range_set_remove(&tenant->host_windows, address, bytes);
		return CUDA_ERROR_MAP_FAILED;
	}
	return CUDA_SUCCESS;
}

static void count_further(word32 *further, int change)
{
	/* Pairs with the acquire in admits(), tenant_is_host(): mappings there come behind this. */
	word_release(further, word_relaxed(further) + (uint32_t)change);
}

static void reserve_window(struct job *job)
{
	const struct wire_window *wish = &job->message.window;
	const uint64_t values[2] = {wish->address, wish->bytes};
	struct tenant *tenant = job->tenant;
	CUresult code = wish->host ? memory_reserve_host(tenant, wish->address, wish->bytes)
				   : memory_reserve(tenant, wish->address, wish->bytes);

	if (!code)
		count_further(wish->host ? &tenant->host_further : &tenant->further, 1);
	job_reply(job, code, values, code ? 0 : 2, NULL);
}

/* The daemon knows that the window is empty; the driver refuses if a mapping is left. */
static void release_window(struct job *job)
{
	const struct wire_window *wish = &job->message.window;
	struct tenant *tenant = job->tenant;
	CUresult code = CUDA_ERROR_INVALID_VALUE;

	if (wish->address != tenant->window_base)
		code = range_code(range_set_remove(&tenant->windows, wish->address, wish->bytes));
	if (!code) {
		code = executor_code(
			tenant->executor, tenant_ops(tenant)->window_release(wish->address, wish->bytes));
		if (code)
			range_set_add(&tenant->windows, wish->address, wish->bytes);
		else
			count_further(&tenant->further, -1);
	}
	job_reply(job, code, NULL, 0, NULL);
}

/* The driver only computes, and accepts any address: programs make maps without one, and put it in
 * later. What a kernel does with a map is as what it does with an address. */
static void encode_tensor_map(struct job *job)
{
	uint64_t values[WIRE_TENSOR_MAP_WORDS];
	CUresult code = executor_code(
		job->executor, tenant_ops(job->tenant)->tensor_map(&job->message.tensor_map, values));

	job_reply(job, code, values, code ? 0 : WIRE_TENSOR_MAP_WORDS, NULL);
}

static void (*const handlers[WIRE_TYPES])(struct job *job) = {
	[WIRE_MAP_MEMORY] = change_memory,
	[WIRE_UNMAP_MEMORY] = change_memory,
	[WIRE_MAP_HOST] = map_host,
	[WIRE_UNMAP_HOST] = unmap_host,
	[WIRE_QUERY_MEMORY] = query_memory,
	[WIRE_OPEN_GUARD] = guard_handle,
	[WIRE_RESERVE_WINDOW] = reserve_window,
	[WIRE_RELEASE_WINDOW] = release_window,
	[WIRE_ENCODE_TENSOR_MAP] = encode_tensor_map,
};

void memory_handle(struct job *job)
{
	log_bug_on(!handlers[job->message.type]);
	handlers[job->message.type](job);
}

bool memory_unmap_device(struct tenant *tenant, struct pace *pace)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	struct range range;

	if (!tenant->guard_use.abandoned && !guard_unmap(tenant, pace))
		return false;
	while (!range_set_pop(&tenant->device_maps, &range)) {
		executor_code(tenant->executor, ops->chunk_unmap(range.start, range.end - range.start));
		if (!pace_step(pace))
			return false;
	}
	while (!range_set_pop(&tenant->windows, &range)) {
		/* Slots of the guard may be left in the session's first window. */
		if (range.start == tenant->window_base && tenant->guard_use.abandoned)
			continue;
		executor_code(tenant->executor, ops->window_release(range.start, range.end - range.start));
	}
	word_set(&tenant->further, 0);
	return true;
}

static void unpin(struct tenant *tenant, const struct range *range)
{
	executor_code(tenant->executor, tenant_ops(tenant)->host_unregister((void *)(uintptr_t)range->start));
	hide(range->start, range->end - range->start);
}

void memory_unpin(struct tenant *tenant, const struct range *range)
{
	unpin(tenant, range);
	range_set_remove(&tenant->unpinning, range->start, range->end - range->start);
}

uint64_t memory_unpin_next(struct tenant *tenant)
{
	struct range range;

	if (!range_set_pop(&tenant->host_maps, &range)) {
		unpin(tenant, &range);
		return range.end - range.start;
	}
	while (!range_set_pop(&tenant->host_windows, &range))
		munmap((void *)(uintptr_t)range.start, range.end - range.start);
	return 0;
}

uint64_t memory_pinned_bytes(struct tenant *tenant)
{
	uint64_t bytes = 0;

	pthread_rwlock_rdlock(&tenant->host_maps.lock);
	for (uint32_t i = 0; i < tenant->host_maps.count; i++)
		bytes += tenant->host_maps.at[i].end - tenant->host_maps.at[i].start;
	pthread_rwlock_unlock(&tenant->host_maps.lock);
	return bytes;
}
