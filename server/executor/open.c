// The beginning and the end of a session in this executor.
//
// End, each step only when the one before is over:
//   main thread     no more requests; the serving thread marks unmarked commands and releases the
//                   session (serve_detach)
//   main thread     wait for work on the device, up to the daemon's patience (drain.c); then end
//                   the session's kernels (end_kernels.c). If work does not end even so, the
//                   session stays as it is for as long as this process lives: the device could
//                   still touch its memory. Answer 0. (A later CloseSession tries again.)
//   module thread   streams, events, device memory, which is then free for others
//   main thread     out of the registry
//   module thread   when no session's work runs (deferred.c): pinned memory, arena and timelines,
//                   modules, the regions; then the window's addresses are free again
// The answer to CloseSession comes before the last step if that has to wait, and then has the
// number of bytes that stay pinned; another CloseSession is answered after the last step.
//
// Regions are not saved, pinned, for the next session: a process that could write a region once may
// have the region mapped for ever (a forked child, a descriptor that was passed on), and would read
// and write the next client's.

#include "server/executor/open.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/arena.h"
#include "server/executor/carry.h"
#include "server/executor/drain.h"
#include "server/executor/end_kernels.h"
#include "server/executor/guard.h"
#include "server/executor/memory.h"
#include "server/executor/pace.h"
#include "server/executor/takeover.h"
#include "server/executor/tenant.h"
#include "server/identity.h"
#include "server/log.h"

static bool take_scratch(struct tenant *tenant)
{
	struct executor *executor = tenant->executor;

	pthread_mutex_lock(&executor->tenants_lock);
	for (uint32_t i = 0; !tenant->has_scratch && i < EXECUTOR_SCRATCH_WORDS; i++) {
		if (executor->scratch_used[i / 64] >> i % 64 & 1)
			continue;
		executor->scratch_used[i / 64] |= UINT64_C(1) << i % 64;
		tenant->scratch = i;
		tenant->has_scratch = true;
	}
	pthread_mutex_unlock(&executor->tenants_lock);
	return tenant->has_scratch;
}

static void give_scratch_back(struct tenant *tenant)
{
	struct executor *executor = tenant->executor;

	pthread_mutex_lock(&executor->tenants_lock);
	if (tenant->has_scratch)
		executor->scratch_used[tenant->scratch / 64] &= ~(UINT64_C(1) << tenant->scratch % 64);
	tenant->has_scratch = false;
	pthread_mutex_unlock(&executor->tenants_lock);
}

static CUresult map_regions(struct job *job, struct tenant *tenant)
{
	int client = packet_take_fd(&job->packet, 0), server = packet_take_fd(&job->packet, 1);
	int error = SHM_E_SHAPE;

	tenant->doorbell = packet_take_fd(&job->packet, 2);
	if (client >= 0 && server >= 0 && tenant->doorbell >= 0 &&
		job->message.open_session.shape.journal_blocks <= SHM_BLOCKS &&
		job->message.open_session.shape.more_offset)
		error = shm_view_map(
			&tenant->view, &job->message.open_session.shape, client, server, SHM_SIDE_SERVER);
	if (client >= 0)
		close(client);
	tenant->server_fd = server;
	if (!error)
		return CUDA_SUCCESS;
	return error < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

static bool is_window(const struct wire_open_session *wish)
{
	uint64_t bytes, end;

	return wish->device_bytes && wish->window_base && wish->window_base % BACKEND_CHUNK_GRANULE == 0 &&
	       wish->device_bytes % BACKEND_CHUNK_GRANULE == 0 && wish->host_bytes % 4096 == 0 &&
	       !__builtin_add_overflow(wish->device_bytes, wish->host_bytes, &bytes) &&
	       !__builtin_add_overflow(wish->window_base, bytes, &end);
}

static CUresult reserve_window(struct tenant *tenant)
{
	CUresult code = memory_reserve(tenant, tenant->window_base, tenant->device_bytes);

	if (code || !tenant->host_bytes)
		return code;
	return memory_reserve_host(tenant, tenant->window_base + tenant->device_bytes, tenant->host_bytes);
}

/* Pinned bytes of a session: memory and regions. */
static uint64_t pinned_bytes(struct tenant *tenant)
{
	return memory_pinned_bytes(tenant) + arena_bytes(tenant) + tenant->pieces * STREAM_WORDS_BYTES;
}

/* The last step of an end: modules and regions. Module thread, when nothing runs. */
static void release(struct tenant *tenant)
{
	arena_leave(tenant);
	stream_leave_words(tenant);
	module_table_deinit(tenant);
	shm_view_unmap(&tenant->view);
	if (tenant->server_fd >= 0)
		close(tenant->server_fd);
	tenant->server_fd = -1;
	give_scratch_back(tenant);
}

/* Releases all that does not stop other sessions, but for memory. */
static void release_work(struct tenant *tenant)
{
	struct pace pace;

	pace_begin(&pace, tenant->executor);
	for (uint32_t slot = 0; slot < tenant->known; slot++) {
		stream_close(tenant, &tenant->streams[slot]);
		pace_step(&pace);
	}
	if (tenant->poll_stream)
		executor_code(tenant->executor, tenant_ops(tenant)->stream_destroy(tenant->poll_stream));
	tenant->poll_stream = NULL;
	event_table_deinit(tenant, &tenant->events);
	graph_table_deinit(tenant);
	object_table_deinit(tenant);
	array_table_deinit(tenant);
	if (tenant->doorbell >= 0)
		close(tenant->doorbell);
	tenant->doorbell = -1;
}

/* Releases that and the memory, at once. */
static void release_all(struct tenant *tenant)
{
	struct pace pace;

	release_work(tenant);
	pace_begin(&pace, tenant->executor);
	memory_unmap_device(tenant, &pace);
}

void open_undo(struct tenant *tenant)
{
	release_all(tenant);
	guard_deinit(tenant);
	while (memory_unpin_next(tenant))
		;
	release(tenant);
}

/* @ret_text: the reason, where there is a text */
static CUresult open_tenant(struct job *job, struct tenant *tenant, const char **ret_text)
{
	const struct wire_open_session *wish = &job->message.open_session;
	CUresult code;

	tenant->window_base = wish->window_base;
	tenant->device_bytes = wish->device_bytes;
	tenant->host_bytes = wish->host_bytes;
	tenant->text = wish->text;
	tenant->replays = wish->recovery == 1;
	tenant->pid = wish->pid;
	snprintf(tenant->program, sizeof(tenant->program), "%s", wish->program ? wish->program : "");
	if (!is_window(wish))
		return CUDA_ERROR_INVALID_VALUE;
	if (deferred_is_stuck(tenant->executor)) {
		*ret_text = "memory of programs that have ended stays pinned until a long kernel of another "
			    "one ends";
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!take_scratch(tenant))
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = map_regions(job, tenant);
	if (!code)
		takeover_prepare(tenant);
	if (!code)
		code = reserve_window(tenant);
	return code ? code : stream_reach_words(tenant, 0);
}

/* Module thread. */
static void defer_half(struct job *job)
{
	struct tenant *tenant = tenant_ref(job->tenant);

	job_free(job);
	release_all(tenant);
	deferred_add_tenant(tenant, pinned_bytes(tenant), release);
}

/* Undoes half an opening. Memory that is pinned already takes the usual way (deferred.c). */
static void give_up(struct tenant *tenant)
{
	struct job *job = tenant->pieces ? job_new(tenant->executor) : NULL;

	if (tenant->pieces && !job) {
		log_error("no memory to free session %llu", (unsigned long long)tenant->id);
		return;
	}
	if (job) {
		job->message.type = WIRE_OPEN_SESSION;
		job->tenant = tenant;
		module_worker_queue(job, defer_half);
		return;
	}
	open_undo(tenant);
	tenant_unref(tenant);
}

/* Before any input of a program is read: the device is open, and an input that takes this process
 * over only gets the rights of the program's own user. */
static CUresult become_user(struct executor *executor, uint32_t user, const char **ret_text)
{
	int r;

	if (user == executor->user)
		return CUDA_SUCCESS;
	if (executor->user) {
		*ret_text = "the executor is another user's";
		return CUDA_ERROR_NOT_PERMITTED;
	}
	r = identity_become(user);
	if (r) {
		log_error("cannot become user %u: %s", user, strerror(-r));
		*ret_text = "the executor cannot run as the program's user";
		return CUDA_ERROR_NOT_PERMITTED;
	}
	executor->user = user;
	return CUDA_SUCCESS;
}

void open_handle(struct job *job)
{
	struct executor *executor = job->executor;
	struct tenant *tenant = NULL;
	const char *text = NULL;
	CUresult code;

	if (executor_tenant(executor, job->message.session)) {
		job_reply(job, CUDA_ERROR_INVALID_VALUE, NULL, 0, "there is a session of this number");
		return;
	}
	code = become_user(executor, job->message.open_session.user, &text);
	if (!code)
		tenant = tenant_new(executor, job->message.session);
	if (!code)
		code = tenant ? open_tenant(job, tenant, &text) : CUDA_ERROR_OUT_OF_MEMORY;
	if (code && tenant)
		give_up(tenant);
	if (!code) {
		pthread_mutex_lock(&executor->tenants_lock);
		TAILQ_INSERT_TAIL(&executor->tenants, tenant, link);
		pthread_mutex_unlock(&executor->tenants_lock);
		cap_look(tenant);
	}
	job_reply(job, code, NULL, 0, text);
}

/* Module thread. */
static void begin_deferred_free(struct job *job)
{
	struct tenant *tenant = job->tenant;
	uint64_t values[3] = {1, 0, end_kernels_ended(job)};

	deferred_add_tenant(tenant_ref(tenant), pinned_bytes(tenant), release);
	while (deferred_bytes(tenant) && !job_queue_is_wanted(&job->executor->modules.queue) &&
		deferred_work(job->executor))
		;
	values[1] = deferred_bytes(tenant);
	job_reply(job, CUDA_SUCCESS, values, values[2] ? 3 : values[1] ? 2 : 1, NULL);
}

/* Main thread. */
static int leave(struct job *job)
{
	struct executor *executor = job->executor;
	struct tenant *tenant = job->tenant;

	pthread_mutex_lock(&executor->tenants_lock);
	TAILQ_REMOVE(&executor->tenants, tenant, link);
	pthread_mutex_unlock(&executor->tenants_lock);
	tenant->exit = TENANT_IS_GONE;
	cap_leave(tenant);
	if (!tenant->guard_use.abandoned)
		guard_deinit(tenant);
	tenant_unref(tenant); /* the registry's */
	module_worker_queue(job, begin_deferred_free);
	return 0;
}

/* Module thread. Requests of other sessions come first, for there may be hundreds of calls here.
 * But not for ever: others may have requests all the time, and the daemon halts an executor that
 * does not answer (session_close.c). */
static void unmap_some(struct job *job)
{
	struct pace pace;

	pace_begin(&pace, job->executor);
	pace.yields = clock_now() - job->since < OPEN_GIVES_WAY_NS;
	if (!memory_unmap_device(job->tenant, &pace)) {
		module_worker_queue_again(job);
		return;
	}
	job_park(job, leave);
}

/* Module thread. */
static void tear_down(struct job *job)
{
	release_work(job->tenant);
	module_worker_queue(job, unmap_some);
}

/* Waits until no look at the session's sinks, and no copy of its memory, is under way. */
static int close_farewell(struct job *job)
{
	if (executor_is_lost(job->executor)) {
		job_free(job);
		return 0;
	}
	if (!guard_watch_last_look(job->tenant, job->since) || carry_is_busy(job->tenant))
		return JOB_E_WAIT;
	module_worker_queue(job, tear_down);
	return 0;
}

static void say_endless(struct job *job)
{
	struct tenant *tenant = job->tenant;
	uint64_t drained = 0;

	/* A detach goes on. */
	if (tenant->exit == TENANT_CLOSES)
		tenant->exit = TENANT_STAYS;
	log_warning("session %llu (%s, pid %d) is gone but its work does not end",
		(unsigned long long)tenant->id, tenant->program, tenant->pid);
	job_reply(job, CUDA_SUCCESS, &drained, 1, NULL);
}

static void close_drained(struct job *job)
{
	if (!job->drained && !job->end && end_kernels_can(job->executor) &&
		end_kernels_begin(job, close_drained))
		return;
	if (!job->drained) {
		say_endless(job);
		return;
	}
	job_park(job, close_farewell);
}

/* Waits until the serving thread has released the session. That thread may be in a call of the
 * driver that waits for the work. */
static int close_step(struct job *job)
{
	uint64_t now = clock_now();

	if (executor_is_lost(job->executor)) {
		job_free(job);
		return 0;
	}
	/* Pairs with the release in detach(). */
	if (word_acquire(&job->tenant->served)) {
		if (now < job->deadline + DRAIN_THREAD_NS)
			return JOB_E_WAIT;
		drain_say_why(job->tenant);
		say_endless(job);
		return 0;
	}
	job->tenant->thread = NULL;
	drain_begin(job, job->deadline > now ? job->deadline - now : 0, close_drained);
	return 0;
}

static int close_behind_detach(struct job *job)
{
	if (executor_is_lost(job->executor)) {
		job_free(job);
		return 0;
	}
	if (job->tenant->exit == TENANT_DETACHES && clock_now() < job->deadline + DRAIN_THREAD_NS)
		return JOB_E_WAIT;
	if (job->tenant->exit == TENANT_DETACHES)
		say_endless(job);
	else
		open_handle_close(job);
	return 0;
}

void open_handle_close(struct job *job)
{
	struct tenant *tenant = job->tenant;

	/* Not where the session lives on in another executor. */
	if (tenant->thread &&
		word_relaxed(&tenant->generation) == word_acquire(&tenant->view.server->generation))
		tenant_end_loops(tenant);
	if (tenant->exit == TENANT_DETACHES) {
		tenant->closing = true;
		job->deadline = clock_now() + job->message.close_session.patience_ms * CLOCK_MS;
		job_park(job, close_behind_detach);
		return;
	}
	if (tenant->exit == TENANT_CLOSES) {
		job_reply(job, CUDA_ERROR_NOT_READY, NULL, 0, "it is being closed");
		return;
	}
	if (tenant->thread && !tenant->closing)
		serve_detach(tenant);
	tenant->closing = true;
	tenant->exit = TENANT_CLOSES;
	job->deadline = clock_now() + job->message.close_session.patience_ms * CLOCK_MS;
	job_park(job, close_step);
}
