// The beginning and the end of a session in this executor.
//
// End, each step only when the one before is over:
//   main thread     no more requests; the serving thread marks what is unmarked and lets go (serve_detach)
//   main thread     wait for what is on the device, up to the daemon's patience (drain.c); then its kernels
//                   are ended (end_kernels.c). If something does not end even so the session stays as it is
//                   for as long as this process lives: the device could still touch its memory. Answer 0.
//                   (A later CloseSession tries again.)
//   module thread   streams, events, device memory: it can be given to others
//   main thread     out of the registry
//   module thread   when nothing of anybody runs (burial.c): pinned memory, arena and timelines, modules, the
//                   regions; then the window's addresses are free again
// The answer to CloseSession comes before the last step if that has to wait, and then says how many bytes
// stay pinned; another CloseSession is answered when it is over.
//
// Regions are not kept, pinned, for the next session: whoever could write them once may have them mapped for
// ever (a forked child, a descriptor that was passed on), and would read and write the next client's.

#include "server/executor/open.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/executor/clock.h"
#include "server/executor/drain.h"
#include "server/executor/end_kernels.h"
#include "server/executor/guard.h"
#include "server/executor/linker.h"
#include "server/executor/memory.h"
#include "server/executor/pace.h"
#include "server/executor/session.h"
#include "server/executor/takeover.h"
#include "server/log.h"

static uint64_t timelines_bytes(void)
{
	return SHM_TIMELINES * sizeof(struct shm_timeline);
}

static bool take_scratch(struct session *session)
{
	struct executor *executor = session->executor;

	pthread_mutex_lock(&executor->sessions_lock);
	for (uint32_t i = 0; !session->has_scratch && i < EXECUTOR_SCRATCH_WORDS; i++) {
		if (executor->scratch_used[i / 64] >> i % 64 & 1)
			continue;
		executor->scratch_used[i / 64] |= UINT64_C(1) << i % 64;
		session->scratch = i;
		session->has_scratch = true;
	}
	pthread_mutex_unlock(&executor->sessions_lock);
	return session->has_scratch;
}

static void give_scratch_back(struct session *session)
{
	struct executor *executor = session->executor;

	pthread_mutex_lock(&executor->sessions_lock);
	if (session->has_scratch)
		executor->scratch_used[session->scratch / 64] &= ~(UINT64_C(1) << session->scratch % 64);
	session->has_scratch = false;
	pthread_mutex_unlock(&executor->sessions_lock);
}

static CUresult map_regions(struct job *job, struct session *session)
{
	int client = packet_take_fd(&job->packet, 0), server = packet_take_fd(&job->packet, 1);
	int error = SHM_E_SHAPE;

	session->doorbell = packet_take_fd(&job->packet, 2);
	if (client >= 0 && server >= 0 && session->doorbell >= 0 &&
		job->message.open_session.shape.journal_blocks <= SHM_BLOCKS)
		error = shm_view_map(
			&session->view, &job->message.open_session.shape, client, server, SHM_SIDE_SERVER);
	if (client >= 0)
		close(client);
	if (server >= 0)
		close(server);
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

static CUresult reserve_window(struct session *session)
{
	void *host = (void *)(uintptr_t)(session->window_base + session->device_bytes);
	CUresult code = executor_code(session->executor,
		session_ops(session)->window_reserve(session->window_base, session->device_bytes));

	if (code)
		return code;
	session->window_reserved = true;
	if (!session->host_bytes)
		return CUDA_SUCCESS;
	if (mmap(host, session->host_bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != host)
		return CUDA_ERROR_MAP_FAILED;
	session->host_reserved = true;
	return CUDA_SUCCESS;
}

static CUresult register_regions(struct session *session)
{
	const struct backend_ops *ops = session_ops(session);
	CUresult code;

	code = executor_code(
		session->executor, ops->host_register(session->view.arena, session->view.shape.arena_bytes));
	if (code)
		return code;
	session->arena_registered = true;
	code = executor_code(
		session->executor, ops->host_register(session->view.timelines, timelines_bytes()));
	if (!code)
		session->timelines_registered = true;
	return code;
}

/* What a session has pinned: its memory and its regions. */
static uint64_t pinned_bytes(struct session *session)
{
	return memory_pinned_bytes(session) +
	       (session->arena_registered ? session->view.shape.arena_bytes : 0) +
	       (session->timelines_registered ? timelines_bytes() : 0);
}

/* The last step of an end: modules and regions. Module thread, when nothing runs. */
static void release(struct session *session)
{
	const struct backend_ops *ops = session_ops(session);

	if (session->arena_registered)
		executor_code(session->executor, ops->host_unregister(session->view.arena));
	if (session->timelines_registered)
		executor_code(session->executor, ops->host_unregister(session->view.timelines));
	session->arena_registered = session->timelines_registered = false;
	module_table_deinit(session);
	shm_view_unmap(&session->view);
	give_scratch_back(session);
}

/* What goes without stopping anybody. */
static void release_work(struct session *session)
{
	struct pace pace;

	pace_begin(&pace, session->executor);
	for (uint32_t slot = 0; slot < SHM_STREAMS; slot++) {
		stream_close(session, &session->streams[slot]);
		pace_step(&pace);
	}
	if (session->poll_stream)
		executor_code(session->executor, session_ops(session)->stream_destroy(session->poll_stream));
	session->poll_stream = NULL;
	event_table_deinit(session, &session->events);
	graph_table_deinit(session);
	object_table_deinit(session);
	array_table_deinit(session);
	memory_unmap_device(session);
	if (session->doorbell >= 0)
		close(session->doorbell);
	session->doorbell = -1;
}

void open_undo(struct session *session)
{
	release_work(session);
	guard_deinit(session);
	while (memory_unpin_next(session))
		;
	release(session);
}

static CUresult open_session(struct job *job, struct session *session)
{
	const struct wire_open_session *wish = &job->message.open_session;
	CUresult code;

	session->window_base = wish->window_base;
	session->device_bytes = wish->device_bytes;
	session->host_bytes = wish->host_bytes;
	session->text = wish->text;
	session->replays = wish->recovery == 1;
	session->pid = wish->pid;
	snprintf(session->program, sizeof(session->program), "%s", wish->program ? wish->program : "");
	if (!is_window(wish))
		return CUDA_ERROR_INVALID_VALUE;
	if (!burial_admits(session->executor) || !take_scratch(session))
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = map_regions(job, session);
	if (!code)
		takeover_prepare(session);
	if (!code)
		code = reserve_window(session);
	return code ? code : register_regions(session);
}

/* Module thread. */
static void bury_half(struct job *job)
{
	struct session *session = session_ref(job->session);

	job_free(job);
	release_work(session);
	burial_add_session(session, pinned_bytes(session), release);
}

/* Undoes half an opening. What is pinned already goes the way of all. */
static void give_up(struct session *session)
{
	struct job *job = session->arena_registered ? job_new(session->executor) : NULL;

	if (session->arena_registered && !job) {
		log_error("no memory to bury session %llu", (unsigned long long)session->id);
		return;
	}
	if (job) {
		job->message.type = WIRE_OPEN_SESSION;
		job->session = session;
		job->run = bury_half;
		module_worker_queue(job);
		return;
	}
	open_undo(session);
	session_unref(session);
}

void open_handle(struct job *job)
{
	struct executor *executor = job->executor;
	struct session *session;
	CUresult code;

	if (executor_session(executor, job->message.session)) {
		job_reply(job, CUDA_ERROR_INVALID_VALUE, NULL, 0, "there is a session of this number");
		return;
	}
	session = session_new(executor, job->message.session);
	code = session ? open_session(job, session) : CUDA_ERROR_OUT_OF_MEMORY;
	if (code && session)
		give_up(session);
	if (!code) {
		pthread_mutex_lock(&executor->sessions_lock);
		TAILQ_INSERT_TAIL(&executor->sessions, session, link);
		pthread_mutex_unlock(&executor->sessions_lock);
	}
	job_reply(job, code, NULL, 0, NULL);
}

/* Module thread. */
static void begin_burial(struct job *job)
{
	struct session *session = job->session;
	uint64_t values[3] = {1, 0, end_kernels_ended(job)};

	burial_add_session(session_ref(session), pinned_bytes(session), release);
	while (burial_bytes(session) && burial_work(job->executor))
		;
	values[1] = burial_bytes(session);
	job_reply(job, CUDA_SUCCESS, values, values[2] ? 3 : values[1] ? 2 : 1, NULL);
}

/* Main thread. */
static int leave(struct job *job)
{
	struct executor *executor = job->executor;
	struct session *session = job->session;

	pthread_mutex_lock(&executor->sessions_lock);
	TAILQ_REMOVE(&executor->sessions, session, link);
	pthread_mutex_unlock(&executor->sessions_lock);
	session->gone = true;
	linker_forget(session);
	if (!session->stray.abandoned)
		guard_deinit(session);
	session_unref(session); /* the registry's */
	job->run = begin_burial;
	module_worker_queue(job);
	return 0;
}

/* Module thread. */
static void tear_down(struct job *job)
{
	release_work(job->session);
	job->step = leave;
	job_park(job);
}

/* Waits until nobody looks at its sinks. What a worn executor has goes with it (contain.h): that is the
 * answer. */
static int close_farewell(struct job *job)
{
	if (executor_is_lost(job->executor)) {
		job_free(job);
		return 0;
	}
	if (contain_is_worn(job->executor) || !stray_farewell(job->session, job->since))
		return JOB_E_WAIT;
	job->run = tear_down;
	module_worker_queue(job);
	return 0;
}

static void say_endless(struct job *job)
{
	struct session *session = job->session;
	uint64_t drained = 0;

	session->ending = false;
	log_warning("session %llu (%s, pid %d) is gone but its work does not end",
		(unsigned long long)session->id, session->program, session->pid);
	job_reply(job, CUDA_SUCCESS, &drained, 1, NULL);
}

static void close_drained(struct job *job)
{
	if (!job->drained && !job->end && end_kernels_can(job->executor)) {
		end_kernels_begin(job, close_drained);
		return;
	}
	if (!job->drained) {
		say_endless(job);
		return;
	}
	job->step = close_farewell;
	job_park(job);
}

/* Waits for the serving thread to let go. It may be in a call of the driver that waits for the work. */
static int close_step(struct job *job)
{
	uint64_t now = clock_now();

	if (executor_is_lost(job->executor)) {
		job_free(job);
		return 0;
	}
	if (contain_is_worn(job->executor))
		return JOB_E_WAIT;
	/* Pairs with the release in detach(). */
	if (word_acquire(&job->session->served)) {
		if (now < job->deadline + DRAIN_THREAD_NS)
			return JOB_E_WAIT;
		drain_say_why(job->session);
		say_endless(job);
		return 0;
	}
	job->session->thread = NULL;
	drain_begin(job, job->deadline > now ? job->deadline - now : 0, close_drained);
	return 0;
}

static int close_behind_detach(struct job *job)
{
	if (executor_is_lost(job->executor)) {
		job_free(job);
		return 0;
	}
	if (job->session->detaching && clock_now() < job->deadline + DRAIN_THREAD_NS)
		return JOB_E_WAIT;
	if (job->session->detaching)
		say_endless(job);
	else
		open_handle_close(job);
	return 0;
}

void open_handle_close(struct job *job)
{
	struct session *session = job->session;

	if (session->detaching) {
		session->closing = true;
		job->deadline = clock_now() + job->message.close_session.patience_ms * CLOCK_MS;
		job->step = close_behind_detach;
		job_park(job);
		return;
	}
	if (session->ending) {
		job_reply(job, CUDA_ERROR_NOT_READY, NULL, 0, "it is being closed");
		return;
	}
	if (session->thread && !session->closing && serve_detach(session)) {
		job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, NULL);
		return;
	}
	session->closing = session->ending = true;
	compiler_forget(session);
	job->deadline = clock_now() + job->message.close_session.patience_ms * CLOCK_MS;
	job->step = close_step;
	job_park(job);
}
