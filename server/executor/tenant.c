// Tenants: life time, the memory that their commands may touch, and their ends. See tenant.h for
// states and threads.

#include "server/executor/tenant.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "server/executor/timing.h"
#include "server/log.h"
#include "shm/doorbell.h"

#define STREAMS_BYTES (SHM_STREAMS * sizeof(struct stream))

/* Maps the streams: zero, without pages yet. calloc() would clear all of a reused block. */
static struct stream *map_streams(void)
{
	void *at = mmap(NULL, STREAMS_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

struct tenant *tenant_new(struct executor *executor, uint64_t id)
{
	struct tenant *tenant = calloc(1, sizeof(*tenant));

	if (!tenant)
		return NULL;
	tenant->streams = map_streams();
	if (!tenant->streams) {
		free(tenant);
		return NULL;
	}
	tenant->executor = executor;
	tenant->id = id;
	tenant->references = 1;
	tenant->doorbell = -1;
	range_set_init(&tenant->windows, false);
	range_set_init(&tenant->host_windows, false);
	tenant->server_fd = -1;
	pthread_mutex_init(&tenant->graphs.lock, NULL);
	range_set_init(&tenant->device, true);
	range_set_init(&tenant->host, true);
	range_set_init(&tenant->globals, true);
	range_set_init(&tenant->device_maps, false);
	range_set_init(&tenant->host_maps, false);
	range_set_init(&tenant->changing, false);
	range_set_init(&tenant->unpinning, false);
	constant_set_init(&tenant->constants);
	share_init(&tenant->share);
	timing_init(tenant);
	TAILQ_INIT(&tenant->held);
	TAILQ_INIT(&tenant->unmarked);
	TAILQ_INIT(&tenant->watched);
	return tenant;
}

struct tenant *tenant_ref(struct tenant *tenant)
{
	atomic_fetch_add_explicit(&tenant->references, 1, memory_order_relaxed);
	return tenant;
}

struct tenant *tenant_unref(struct tenant *tenant)
{
	if (!tenant || atomic_fetch_sub_explicit(&tenant->references, 1, memory_order_acq_rel) > 1)
		return NULL;
	range_set_deinit(&tenant->windows);
	range_set_deinit(&tenant->host_windows);
	range_set_deinit(&tenant->device);
	range_set_deinit(&tenant->host);
	range_set_deinit(&tenant->globals);
	range_set_deinit(&tenant->device_maps);
	range_set_deinit(&tenant->host_maps);
	range_set_deinit(&tenant->changing);
	range_set_deinit(&tenant->unpinning);
	constant_set_deinit(&tenant->constants);
	pthread_mutex_destroy(&tenant->graphs.lock);
	munmap(tenant->streams, STREAMS_BYTES);
	free(tenant);
	return NULL;
}

void tenant_know_streams(struct tenant *tenant, uint32_t count)
{
	for (; tenant->known < count; tenant->known++)
		stream_init(
			&tenant->streams[tenant->known], tenant->known, &tenant->view.states[tenant->known]);
}

bool tenant_has_window(struct tenant *tenant, uint64_t address, uint64_t bytes)
{
	struct range_cache cache = {.version = 0};

	return range_set_covers_slow(&tenant->windows, &cache, address, bytes);
}

bool tenant_has_host_window(struct tenant *tenant, uint64_t address, uint64_t bytes)
{
	struct range_cache cache = {.version = 0};

	return range_set_covers_slow(&tenant->host_windows, &cache, address, bytes);
}

static bool admits(struct tenant *tenant, uint64_t address, uint64_t bytes, struct range_cache *device,
	struct range_cache *host, struct range_cache *global)
{
	if (tenant_is_device(tenant, address))
		return range_set_covers(&tenant->device, device, address, bytes);
	if (tenant_is_host(tenant, address))
		return range_set_covers(&tenant->host, host, address, bytes);
	/* Pairs with the release in count_further() of memory.c. */
	if (word_acquire(&tenant->further) && range_set_covers(&tenant->device, device, address, bytes))
		return true;
	return range_set_covers(&tenant->globals, global, address, bytes);
}

bool tenant_admits(struct tenant *tenant, uint64_t address, uint64_t bytes, bool writes)
{
	unsigned side = writes ? 0 : 1;

	return admits(tenant, address, bytes, &tenant->device_cache[side], &tenant->host_cache[side],
		&tenant->global_cache[side]);
}

bool tenant_admits_anywhere(struct tenant *tenant, uint64_t address, uint64_t bytes)
{
	struct range_cache device = {{0, 0}, 0}, host = device, global = device;

	return admits(tenant, address, bytes, &device, &host, &global);
}

void tenant_end_loops(struct tenant *tenant)
{
	word_release(&tenant->view.timelines[0].stream[0].over, 1);
}

void tenant_tell_end(struct tenant *tenant, enum shm_session_state state, CUresult code, const char *reason)
{
	struct shm_server_header *server = tenant->view.server;
	pthread_mutex_t *lock = &tenant->executor->ends_lock;
	bool is_first;

	tenant_end_loops(tenant);
	pthread_mutex_lock(lock);
	/* An end that the program may have seen already stays. */
	is_first = word_acquire(&server->state) <= SHM_SESSION_HELD;
	if (is_first) {
		snprintf(server->reason, sizeof(server->reason), "%s", reason);
		word_set(&server->error, (uint32_t)code);
		/* Pairs with the client's look at state: error and reason are there. */
		word_release(&server->state, state);
	}
	pthread_mutex_unlock(lock);
	if (is_first)
		wake_all(&server->wake);
}

bool tenant_tell_fault_of(struct executor *executor, uint64_t id, CUresult code, const char *reason)
{
	struct tenant *tenant;
	bool is_served = false;

	pthread_mutex_lock(&executor->tenants_lock);
	TAILQ_FOREACH (tenant, &executor->tenants, link)
		if (tenant->id == id && word_acquire(&tenant->generation)) {
			tenant_tell_end(tenant, SHM_SESSION_FAULTED, code, reason);
			is_served = true;
		}
	pthread_mutex_unlock(&executor->tenants_lock);
	return is_served;
}

void tenant_end(struct tenant *tenant, enum shm_session_state state, CUresult code, const char *reason)
{
	tenant->stopped = true;
	tenant_tell_end(tenant, state, code, reason);
}

void tenant_offend(struct tenant *tenant, const char *format, ...)
{
	struct wire_message message = {.type = WIRE_OFFENCE, .session = tenant->id};
	char reason[200];
	va_list list;

	if (tenant->stopped)
		return;
	va_start(list, format);
	vsnprintf(reason, sizeof(reason), format, list);
	va_end(list);
	log_warning("session %llu (%s, pid %d) broke the rules and is cut off: %s",
		(unsigned long long)tenant->id, tenant->program, tenant->pid, reason);
	tenant_end(tenant, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
	message.trouble = (struct wire_trouble){.code = CUDA_ERROR_MPS_CLIENT_TERMINATED, .text = reason};
	executor_send(tenant->executor, &message);
}

void tenant_late_error(struct tenant *tenant, CUresult code)
{
	struct shm_server_header *server = tenant->view.server;

	word_set(&server->late_error, (uint32_t)code);
	word_release(&server->late_errors, word_relaxed(&server->late_errors) + 1);
}

bool tenant_is_busy(const struct tenant *tenant)
{
	const struct shm_view *view = &tenant->view;
	uint32_t used = shm_view_used(view);
	struct shm_timeline *timeline = shm_view_timeline(view, word_acquire(&view->server->generation));

	for (uint32_t slot = 0; slot < used; slot++)
		if (word_acquire(&view->states[slot].issued) >
			word_acquire(&shm_timeline_at(timeline, slot)->done))
			return true;
	return false;
}

bool tenant_is_any_served(struct executor *executor)
{
	const struct tenant *tenant;
	bool serves = false;

	pthread_mutex_lock(&executor->tenants_lock);
	TAILQ_FOREACH (tenant, &executor->tenants, link)
		serves = serves || word_acquire((word32 *)&tenant->generation);
	pthread_mutex_unlock(&executor->tenants_lock);
	return serves;
}
