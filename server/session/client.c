// A session as the rest of the daemon handles it: references, what its program is told. See client.h.

#include "server/session/client.h"

#include <stdio.h>
#include <stdlib.h>

#include "protocol/cuda_abi.h"
#include "server/adopt/store.h"
#include "server/config/config.h"
#include "server/failover/overrun.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/reclaim.h"
#include "server/session/shared_event.h"
#include "server/session/sink.h"
#include "shm/doorbell.h"

static unsigned long long name(const struct client *client)
{
	return (unsigned long long)client->number;
}

struct client *client_ref(struct client *client)
{
	client->refs++;
	return client;
}

static void let_go(struct client *client)
{
	window_give(&client->domain->windows, client->window);
	shared_event_release(&client->holdings, client->number);
	holdings_deinit(&client->holdings);
	uploads_drop_all(&client->uploads);
	sink_drop(client);
	shared_fd_unref(client->again.fd);
	chunk_unref(client->again.chunk);
	/* Records name no descriptor that is given up. */
	store_drop(client->daemon->store, client->record);
	doubt_deinit(&client->common);
	overrun_forget(client);
	shm_view_unmap(&client->view);
	shared_fd_unref(client->client_fd);
	shared_fd_unref(client->server_fd);
	shared_fd_unref(client->doorbell_fd);
	timer_free(client->close_timer);
}

struct client *client_unref(struct client *client)
{
	struct daemon *daemon;
	struct domain *domain;
	bool opened;

	if (!client || --client->refs)
		return NULL;
	daemon = client->daemon;
	domain = client->domain;
	opened = client->opened;
	let_go(client);
	if (opened)
		userlog_event(daemon, client->uid, USERLOG_session, LOG_LEVEL_INFO,
			"session closed: %llu (process %d, %s)", name(client), (int)client->pid,
			client->program);
	TAILQ_REMOVE(&daemon->clients, client, link);
	TAILQ_REMOVE(&domain->clients, client, domain_link);
	free(client);
	daemon->client_count--;
	if (opened)
		reclaim_done(daemon, 1);
	domain_watch_idle(domain);
	domain_reap(domain);
	daemon_session_gone(daemon);
	return NULL;
}

/*
 * What the client sees
 */

bool client_is_live(const struct client *client)
{
	uint32_t state;

	if (!client->opened || client->state != CLIENT_SERVED)
		return false;
	state = word_acquire(&client->view.server->state);
	return state == SHM_SESSION_RUNNING || state == SHM_SESSION_HELD;
}

uint32_t client_policy(const struct client *client)
{
	if (!client->recovery_set)
		return CLIENT_RECOVER_BY_POLICY;
	return client->recovery ? CLIENT_RECOVER_BY_REPLAY : CLIENT_RECOVER_BY_FAIL;
}

void client_set_terms(struct client *client)
{
	uint64_t wish = client->memory_wish;

	terms_find(&client->daemon->rules, &client->subject, &client->terms);
	if (wish && (!client->terms.memory_limit || wish < client->terms.memory_limit))
		client->terms.memory_limit = wish;
}

void client_set_recovery(struct client *client, bool replay)
{
	client->recovery = replay;
	client->recovery_set = true;
	client_keep(client);
	userlog_event(client->daemon, client->uid, USERLOG_recovery, LOG_LEVEL_INFO,
		"session %llu (process %d, %s): recovery is %s from now on", name(client), (int)client->pid,
		client->program, replay ? "replay" : "fail");
}

void client_hold(struct client *client)
{
	uint32_t running = SHM_SESSION_RUNNING;

	/* What the executor has just said to be over stays so. */
	atomic_compare_exchange_strong(&client->view.server->state, &running, SHM_SESSION_HELD);
	wake_all(&client->view.server->wake);
}

void client_finish(struct client *client, uint32_t state, int32_t code, const char *reason)
{
	struct shm_server_header *header = client->view.server;
	uint32_t now;

	if (!header)
		return;
	now = word_acquire(&header->state);
	if (now == SHM_SESSION_FAULTED || now == SHM_SESSION_CLOSED)
		return;
	snprintf(header->reason, sizeof(header->reason), "%s", reason);
	word_set(&header->error, (uint32_t)code);
	word_release(&header->state, state);
	wake_all(&header->wake);
	userlog_event(client->daemon, client->uid, USERLOG_end, LOG_LEVEL_INFO,
		"session %llu (process %d, %s) ends with code %d: %s", name(client), (int)client->pid,
		client->program, (int)code, reason);
}

void client_terminate(struct client *client)
{
	static const char reason[] = "an operator has terminated it";

	/* With the refusal an OPENING one may be gone. */
	if (client->state == CLIENT_OPENING) {
		client_refuse(client, CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
		return;
	}
	client_finish(client, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
	client_end(client, 0);
}

void client_reject(struct client *client, const char *reason)
{
	if (client->state == CLIENT_CLOSING)
		return;
	userlog_event(client->daemon, client->uid, USERLOG_rejected, LOG_LEVEL_WARNING,
		"session rejected: %llu (process %d, %s): %s", name(client), (int)client->pid,
		client->program, reason);
	client->daemon->counters.sessions_rejected++;
	client_finish(client, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
	client_end(client, (uint32_t)client->daemon->config->orphan_seconds * 1000);
}
