// The session object: life time, what its commands may touch, and its ends. See session.h for states and
// threads.

#include "server/executor/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/executor/timing.h"
#include "server/log.h"
#include "shm/doorbell.h"

struct session *session_new(struct executor *executor, uint64_t id)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->streams = calloc(SHM_STREAMS, sizeof(*session->streams));
	if (!session->streams) {
		free(session);
		return NULL;
	}
	session->executor = executor;
	session->id = id;
	session->references = 1;
	session->doorbell = -1;
	range_set_init(&session->device, true);
	range_set_init(&session->host, true);
	range_set_init(&session->globals, true);
	range_set_init(&session->device_maps, false);
	range_set_init(&session->host_maps, false);
	range_set_init(&session->unpinning, false);
	remains_init(&session->remains);
	constant_set_init(&session->constants);
	timing_init(session);
	TAILQ_INIT(&session->held);
	TAILQ_INIT(&session->unmarked);
	TAILQ_INIT(&session->watched);
	return session;
}

struct session *session_ref(struct session *session)
{
	atomic_fetch_add_explicit(&session->references, 1, memory_order_relaxed);
	return session;
}

struct session *session_unref(struct session *session)
{
	if (!session || atomic_fetch_sub_explicit(&session->references, 1, memory_order_acq_rel) > 1)
		return NULL;
	range_set_deinit(&session->device);
	range_set_deinit(&session->host);
	range_set_deinit(&session->globals);
	range_set_deinit(&session->device_maps);
	range_set_deinit(&session->host_maps);
	range_set_deinit(&session->unpinning);
	remains_deinit(&session->remains);
	constant_set_deinit(&session->constants);
	free(session->streams);
	free(session);
	return NULL;
}

bool session_is_annexed(const struct session *session, uint64_t address, uint64_t bytes)
{
	/* Pairs with the release in memory.c. */
	uint32_t count = word_acquire(&session->annexes);

	for (uint32_t i = 0; i < count; i++)
		if (range_holds(&session->annex[i], address, bytes))
			return true;
	return false;
}

static bool admits(struct session *session, uint64_t address, uint64_t bytes, struct range_cache *device,
	struct range_cache *host, struct range_cache *global)
{
	if (session_is_device(session, address))
		return range_set_covers(&session->device, device, address, bytes);
	if (session_is_host(session, address))
		return range_set_covers(&session->host, host, address, bytes);
	if (word_acquire(&session->annexes) && session_is_annexed(session, address, bytes))
		return range_set_covers(&session->device, device, address, bytes);
	return range_set_covers(&session->globals, global, address, bytes);
}

bool session_admits(struct session *session, uint64_t address, uint64_t bytes, bool writes)
{
	unsigned side = writes ? 0 : 1;

	return admits(session, address, bytes, &session->device_cache[side], &session->host_cache[side],
		&session->global_cache[side]);
}

bool session_admits_anywhere(struct session *session, uint64_t address, uint64_t bytes)
{
	struct range_cache device = {{0, 0}, 0}, host = device, global = device;

	return admits(session, address, bytes, &device, &host, &global);
}

void session_tell_end(struct session *session, enum shm_session_state state, CUresult code,
	const char *reason, const char *assertion)
{
	struct shm_server_header *server = session->view.server;
	pthread_mutex_t *lock = &session->executor->ends_lock;
	bool is_first;

	pthread_mutex_lock(lock);
	/* What the program may have been told already stays so. */
	is_first = word_acquire(&server->state) <= SHM_SESSION_HELD;
	if (is_first) {
		snprintf(server->reason, sizeof(server->reason), "%s", reason);
		if (assertion)
			snprintf(server->assertion, sizeof(server->assertion), "%s", assertion);
		word_set(&server->error, (uint32_t)code);
		/* Pairs with the client's look at state: error and reason are there. */
		word_release(&server->state, state);
	}
	pthread_mutex_unlock(lock);
	if (is_first)
		wake_all(&server->wake);
}

void session_end(struct session *session, enum shm_session_state state, CUresult code, const char *reason)
{
	session->stopped = true;
	session_tell_end(session, state, code, reason, NULL);
}

void session_offend(struct session *session, const char *format, ...)
{
	struct wire_message message = {.type = WIRE_OFFENCE, .session = session->id};
	char reason[200];
	va_list list;

	if (session->stopped)
		return;
	va_start(list, format);
	vsnprintf(reason, sizeof(reason), format, list);
	va_end(list);
	log_warning("session %llu (%s, pid %d) broke the rules and is cut off: %s",
		(unsigned long long)session->id, session->program, session->pid, reason);
	session_end(session, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
	message.trouble = (struct wire_trouble){.code = CUDA_ERROR_MPS_CLIENT_TERMINATED, .text = reason};
	executor_send(session->executor, &message, NULL, 0);
}

void session_late_error(struct session *session, CUresult code)
{
	struct shm_server_header *server = session->view.server;

	word_set(&server->late_error, (uint32_t)code);
	word_release(&server->late_errors, word_relaxed(&server->late_errors) + 1);
}

bool session_is_busy(const struct session *session)
{
	const struct shm_view *view = &session->view;
	const struct shm_timeline *timeline =
		shm_view_timeline(view, word_acquire(&view->server->generation));

	for (uint32_t slot = 0; slot < SHM_STREAMS; slot++)
		if (word_acquire(&view->states[slot].issued) > word_acquire(&timeline->stream[slot].done))
			return true;
	return false;
}

bool session_is_any_served(struct executor *executor)
{
	const struct session *session;
	bool serves = false;

	pthread_mutex_lock(&executor->sessions_lock);
	TAILQ_FOREACH (session, &executor->sessions, link)
		serves = serves || word_acquire((word32 *)&session->generation);
	pthread_mutex_unlock(&executor->sessions_lock);
	return serves;
}
