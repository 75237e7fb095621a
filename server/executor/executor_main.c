// The executor role: start, main thread, end. See executor.h for the threads.
//
// The main thread takes one control message after the other, in the daemon's order, and between
// messages looks at the parked jobs. The thread leaves when the daemon sends Shutdown, or when the
// daemon's end of the socket is closed: then the whole service is gone, for a daemon that dies
// leaves a copy with the holder (server/holder/holder.c). After the loss of the context the thread
// only waits for that.

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/backend/trial.h"
#include "server/executor/carry.h"
#include "server/clock.h"
#include "server/executor/detach.h"
#include "server/executor/end_kernels.h"
#include "server/executor/executor.h"
#include "server/executor/halt.h"
#include "server/executor/hollow.h"
#include "server/executor/memory.h"
#include "server/executor/open.h"
#include "server/executor/stash.h"
#include "server/executor/takeover.h"
#include "server/executor/tenant.h"
#include "server/log.h"

/* A step of the main thread that takes longer is logged, ns. */
#define LONG_NS (UINT64_C(1000) * CLOCK_MS)
/* A step of the rehearsal, where other processes use the device as well. */
#define REHEARSAL_STEP_MS 3000u

static CUresult init_scratch(struct executor *executor)
{
	size_t bytes = EXECUTOR_SCRATCH_WORDS * sizeof(uint64_t);

	executor->scratch = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (executor->scratch == MAP_FAILED) {
		executor->scratch = NULL;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	executor->scratch_used[0] = 1;
	return executor->ops->host_register(executor->scratch, bytes);
}

int executor_init(struct executor *executor, const struct backend_ops *ops, int control_fd, unsigned threads)
{
	int error;

	*executor = (struct executor){.ops = ops, .control_fd = control_fd};
	hollow_watch();
	TAILQ_INIT(&executor->tenants);
	shares_init(&executor->shares, &executor->sharing);
	caps_init(&executor->caps);
	gate_init(executor);
	deferred_init(executor);
	contain_init(executor);
	carry_init(executor);
	stash_init(executor);
	pthread_mutex_init(&executor->control_lock, NULL);
	outbox_init(&executor->outbox);
	pthread_mutex_init(&executor->tenants_lock, NULL);
	pthread_mutex_init(&executor->ends_lock, NULL);
	executor->board.kick = -1;
	error = job_board_init(&executor->board);
	if (!error && (init_scratch(executor) || variable_open(executor)))
		error = -ENOMEM;
	if (!error)
		error = module_worker_init(executor);
	if (!error)
		error = serve_pool_init(executor, threads);
	return error;
}

/* In an orderly end no session is served any more, so sessions end without the waits of open.c. */
void executor_deinit(struct executor *executor)
{
	struct tenant *tenant;

	/* The module thread looks at the serving threads (gate.c). */
	module_worker_deinit(executor);
	carry_deinit(executor);
	stash_deinit(executor);
	serve_pool_deinit(executor);
	job_board_deinit(&executor->board);
	while ((tenant = TAILQ_FIRST(&executor->tenants))) {
		TAILQ_REMOVE(&executor->tenants, tenant, link);
		open_undo(tenant);
		tenant_unref(tenant);
	}
	array_reclaim_all(executor);
	object_pool_deinit(&executor->modules.objects);
	guard_watch_close(executor);
	canary_end(executor);
	variable_close(executor);
	if (executor->scratch) {
		executor_code(executor, executor->ops->host_unregister(executor->scratch));
		munmap(executor->scratch, EXECUTOR_SCRATCH_WORDS * sizeof(uint64_t));
	}
	contain_deinit(executor);
	deferred_deinit(executor);
	outbox_deinit(&executor->outbox);
	pthread_mutex_destroy(&executor->control_lock);
	pthread_mutex_destroy(&executor->tenants_lock);
	pthread_mutex_destroy(&executor->ends_lock);
	shares_deinit(&executor->shares);
	caps_deinit(&executor->caps);
}

enum route {
	ROUTE_NONE,
	ROUTE_MEMORY,
	ROUTE_MODULE,
	ROUTE_OPEN,
	ROUTE_CLOSE,
	ROUTE_DETACH,
	ROUTE_END_KERNELS,
	ROUTE_CARRY,
	ROUTE_STASH,
	ROUTE_ACTIVATE,
	ROUTE_PING,
	ROUTE_HALT,
	ROUTE_END
};

static const enum route routes[WIRE_TYPES] = {
	[WIRE_MAP_MEMORY] = ROUTE_MEMORY,
	[WIRE_UNMAP_MEMORY] = ROUTE_MEMORY,
	[WIRE_MAP_HOST] = ROUTE_MEMORY,
	[WIRE_UNMAP_HOST] = ROUTE_MEMORY,
	[WIRE_QUERY_MEMORY] = ROUTE_MEMORY,
	[WIRE_OPEN_GUARD] = ROUTE_MEMORY,
	[WIRE_RESERVE_WINDOW] = ROUTE_MEMORY,
	[WIRE_RELEASE_WINDOW] = ROUTE_MEMORY,
	[WIRE_ENCODE_TENSOR_MAP] = ROUTE_MEMORY,
	[WIRE_LOAD_MODULE] = ROUTE_MODULE,
	[WIRE_UNLOAD_MODULE] = ROUTE_MODULE,
	[WIRE_FIND_FUNCTION] = ROUTE_MODULE,
	[WIRE_FIND_GLOBAL] = ROUTE_MODULE,
	[WIRE_LIST_FUNCTIONS] = ROUTE_MODULE,
	[WIRE_SET_FUNCTION] = ROUTE_MODULE,
	[WIRE_SET_LIMIT] = ROUTE_MODULE,
	[WIRE_QUERY_OCCUPANCY] = ROUTE_MODULE,
	[WIRE_MAKE_GRAPH] = ROUTE_MODULE,
	[WIRE_DROP_GRAPH] = ROUTE_MODULE,
	[WIRE_MAKE_ARRAY] = ROUTE_MODULE,
	[WIRE_BACK_ARRAY] = ROUTE_MODULE,
	[WIRE_DROP_ARRAY] = ROUTE_MODULE,
	[WIRE_MAKE_OBJECT] = ROUTE_MODULE,
	[WIRE_DROP_OBJECT] = ROUTE_MODULE,
	[WIRE_OPEN_SESSION] = ROUTE_OPEN,
	[WIRE_CLOSE_SESSION] = ROUTE_CLOSE,
	[WIRE_DETACH_SESSION] = ROUTE_DETACH,
	[WIRE_END_KERNELS] = ROUTE_END_KERNELS,
	[WIRE_CARRY_MEMORY] = ROUTE_CARRY,
	[WIRE_MAP_STASH] = ROUTE_STASH,
	[WIRE_CARRY_STASH] = ROUTE_STASH,
	[WIRE_UNMAP_STASH] = ROUTE_STASH,
	[WIRE_ACTIVATE] = ROUTE_ACTIVATE,
	[WIRE_SHUTDOWN] = ROUTE_END,
	[WIRE_PING] = ROUTE_PING,
	[WIRE_HALT] = ROUTE_HALT,
};

/* Requests that name a session. */
static void route_to_tenant(struct job *job, enum route route)
{
	struct tenant *tenant = executor_tenant(job->executor, job->message.session);

	if (!tenant && route == ROUTE_CLOSE && deferred_watch(job->executor, job->message.session, NULL, job))
		return;
	if (!tenant || (tenant->closing && route != ROUTE_CLOSE)) {
		job_reply(job, CUDA_ERROR_INVALID_CONTEXT, NULL, 0, "there is no such session");
		return;
	}
	job->tenant = tenant_ref(tenant);
	if (route == ROUTE_MEMORY)
		memory_handle(job);
	else if (route == ROUTE_MODULE)
		module_handle(job);
	else if (route == ROUTE_DETACH)
		detach_handle(job);
	else if (route == ROUTE_END_KERNELS)
		end_kernels_handle(job);
	else if (route == ROUTE_CARRY)
		carry_handle(job);
	else
		open_handle_close(job);
}

int executor_handle(struct executor *executor, struct job *job)
{
	enum route route = job->message.type < WIRE_TYPES ? routes[job->message.type] : ROUTE_NONE;

	if (route == ROUTE_END) {
		job_free(job);
		return EXECUTOR_E_SHUTDOWN;
	}
	if (route == ROUTE_HALT) {
		halt_handle(job);
		return 0;
	}
	if (executor_is_lost(executor)) {
		job_free(job);
		return 0;
	}
	switch (route) {
	case ROUTE_OPEN:
		open_handle(job);
		break;
	case ROUTE_ACTIVATE:
		takeover_handle(job);
		break;
	case ROUTE_PING:
		serve_kick_all(executor);
		job_reply(job, CUDA_SUCCESS, NULL, 0, NULL);
		break;
	case ROUTE_STASH:
		stash_handle(job);
		break;
	case ROUTE_NONE:
	case ROUTE_HALT:
	case ROUTE_END:
		log_error(
			"the daemon sent %s, which is not for executors", wire_type_name(job->message.type));
		job_free(job);
		break;
	case ROUTE_MEMORY:
	case ROUTE_MODULE:
	case ROUTE_CLOSE:
	case ROUTE_DETACH:
	case ROUTE_END_KERNELS:
	case ROUTE_CARRY:
		route_to_tenant(job, route);
		break;
	}
	return 0;
}

/* The daemon hears nothing while this thread is in a call of the driver. Return: now, ns. */
static uint64_t note_time(const char *what, uint64_t begin)
{
	uint64_t now = clock_now();

	if (now - begin >= LONG_NS)
		log_warning("the main thread was at %s for %llu ms", what,
			(unsigned long long)((now - begin) / CLOCK_MS));
	return now;
}

/* Only this request fails; all others go on. */
static int refuse(struct job *job)
{
	log_error("%s is refused: no file descriptors are left (limit of open files)",
		wire_type_name(job->message.type));
	job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, "the executor has no file descriptors left");
	return 0;
}

/* The message stays on the socket, which is looked at again at once. */
static void await_memory(struct executor *executor)
{
	const struct timespec pause = {.tv_nsec = CLOCK_MS};

	if (!executor->lacks_memory)
		log_error("no memory for a message: it waits");
	executor->lacks_memory = true;
	nanosleep(&pause, NULL);
}

/* One message. Return: 0 to go on, 1 to leave. */
static int receive_one(struct executor *executor)
{
	struct job *job = job_new(executor);
	bool lacks_files;
	const char *what;
	uint64_t begin;
	int error;

	if (!job) {
		await_memory(executor);
		return 0;
	}
	executor->lacks_memory = false;
	error = packet_receive(executor->control_fd, &job->packet);
	/* The message is there, and its descriptors are not. */
	lacks_files = error == PACKET_E_NO_FDS;
	if (!error || lacks_files)
		error = wire_decode(job->packet.bytes, job->packet.length, &job->message) ? PACKET_E_INVALID
											  : 0;
	if (!error && job->message.id && job->message.id <= executor->latest_request) {
		/* Sent again by a daemon that does not know if the previous daemon had sent the
		 * request. */
		job_free(job);
		return 0;
	}
	if (!error) {
		if (job->message.id)
			executor->latest_request = job->message.id;
		what = wire_type_name(job->message.type);
		begin = clock_now();
		error = lacks_files ? refuse(job) : executor_handle(executor, job);
		note_time(what, begin);
		return error == EXECUTOR_E_SHUTDOWN;
	}
	job_free(job);
	if (error == PACKET_E_AGAIN)
		return 0;
	if (error != PACKET_E_CLOSED)
		log_error("the daemon cannot be understood: error %d", error);
	return 1;
}

/* The work between messages. Return: microseconds until the next call; -1: when something
 * happens. */
static int64_t step(struct executor *executor, uint64_t now)
{
	int64_t wait_us = job_board_step(&executor->board, now), next_us;
	uint64_t begin = note_time("what waits for something to end", now), next, contain, canary, unsent;

	next = guard_watch_step(executor, now);
	begin = note_time("guards", begin);
	contain = contain_step(executor, now);
	canary = canary_step(executor, now);
	note_time("faults and the canary", begin);
	next = contain < next ? contain : next;
	next = canary < next ? canary : next;
	unsent = outbox_step(executor, now);
	next = unsent < next ? unsent : next;
	if (next == UINT64_MAX)
		return wait_us;
	next_us = next > now ? (int64_t)((next - now) / CLOCK_US) : 0;
	return wait_us < 0 || next_us < wait_us ? next_us : wait_us;
}

static void serve_control(struct executor *executor)
{
	struct pollfd fds[2] = {
		{.fd = executor->control_fd, .events = POLLIN},
		{.fd = executor->board.kick, .events = POLLIN},
	};

	for (;;) {
		int64_t wait_us = step(executor, clock_now());
		struct timespec wait = {
			.tv_sec = (time_t)(wait_us / 1000000), .tv_nsec = wait_us % 1000000 * 1000};

		fds[0].revents = 0;
		if (ppoll(fds, 2, wait_us < 0 ? NULL : &wait, NULL) < 0 && errno != EINTR) {
			log_error("cannot wait for messages: %m");
			return;
		}
		if (fds[0].revents && receive_one(executor))
			return;
	}
}

static bool send_ready(struct executor *executor)
{
	const struct backend_device *device = &executor->device;
	struct wire_message *message = calloc(1, sizeof(*message));

	if (!message)
		return false;
	message->type = WIRE_READY;
	message->ready = (struct wire_ready){
		.device = {.name = device->name,
			.uuid = {device->uuid, sizeof(device->uuid)},
			.attributes = {device->attributes, BACKEND_DEVICE_ATTRS},
			.total_bytes = device->total_bytes,
			.priority_least = device->priority_least,
			.priority_greatest = device->priority_greatest,
			.limits = {device->limits, BACKEND_DEVICE_LIMITS},
			.sm_granule = device->sm_granule,
			.sm_units = device->sm_units},
		.driver_version = device->driver_version,
		.contains = backend_contains,
	};
	executor_send(executor, message);
	free(message);
	return true;
}

static void map_words(int words_fd)
{
	void *words;

	if (words_fd < 0)
		return;
	words = mmap(NULL, LAST_WORDS_MAX * sizeof(struct last_words), PROT_READ | PROT_WRITE, MAP_SHARED,
		words_fd, 0);
	if (words == MAP_FAILED)
		log_error("cannot map the page for last words: %m");
	else
		backend_last_words = words;
}

/* The daemon learns why there is no executor. */
static int give_up(int control_fd, CUresult code, const char *text)
{
	struct wire_message message = {.type = WIRE_LOST, .trouble = {.code = code, .text = text}};

	log_error("%s: code %d", text, code);
	message_send(control_fd, &message, NULL, 0);
	return EXIT_FAILURE;
}

static int run(const struct backend_ops *ops, int device, int control_fd)
{
	static struct executor executor;
	struct backend_device properties = {0};
	char why[TRIAL_TEXT], text[TRIAL_TEXT + 64];
	CUresult code;

	uint64_t begin = clock_now(), opened, rehearsed;

	code = ops->open_executor(device, &properties);
	opened = clock_now();
	if (code)
		return give_up(control_fd, code,
			code == CUDA_ERROR_DEVICE_UNAVAILABLE
				? "another process has the device, whose compute mode permits one at most"
				: "cannot open the device");
	code = ops->thread_enter();
	if (!code && ops->trial && backend_contains &&
		!trial_rehearse(ops, ops->trial, REHEARSAL_STEP_MS, why)) {
		snprintf(text, sizeof(text), "a fault cannot be rehearsed: %s", why);
		return give_up(control_fd, CUDA_ERROR_LAUNCH_FAILED, text);
	}
	rehearsed = clock_now();
	if (code || executor_init(&executor, ops, control_fd, 0))
		return give_up(control_fd, code ? code : CUDA_ERROR_OUT_OF_MEMORY, "cannot start");
	log_debug("ready after %llu ms: device %llu, rehearsal of a fault %llu",
		(unsigned long long)((clock_now() - begin) / CLOCK_MS),
		(unsigned long long)((opened - begin) / CLOCK_MS),
		(unsigned long long)((rehearsed - opened) / CLOCK_MS));
	executor.device = properties;
	if (!backend_contains)
		log_warning("faults of kernels cannot be contained with this driver or device: at each one "
			    "this executor "
			    "is replaced, and programs whose work is on the device get an error");
	if (!send_ready(&executor))
		return give_up(control_fd, CUDA_ERROR_OUT_OF_MEMORY, "cannot start");
	serve_control(&executor);
	/* With work on the device, cleaning up could wait for ever. The end of the process cleans
	 * up as well.
	 */
	if (executor_is_lost(&executor) || !TAILQ_EMPTY(&executor.tenants))
		_exit(EXIT_SUCCESS);
	executor_deinit(&executor);
	ops->close();
	return EXIT_SUCCESS;
}

int executor_main(const struct backend_ops *ops, int device, int control_fd, int words_fd)
{
	map_words(words_fd);
	backend_is_served = true;
	return run(ops, device, control_fd);
}
