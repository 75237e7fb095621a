// CLOSING: every executor that knows the session lets go of it, or ends. See client.h.

#include "server/session/client.h"

#include "protocol/cuda_abi.h"
#include "server/adopt/store.h"
#include "server/failover/endless.h"
#include "server/failover/move.h"
#include "server/failover/worker.h"
#include "server/loop/connection.h"
#include "server/loop/timer.h"
#include "server/loop/watch.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/linger.h"
#include "server/session/reclaim.h"
#include "server/session/request.h"

static void closing_done(struct client *client)
{
	client->close_timer = timer_free(client->close_timer);
	client_unref(client);
}

static void close_answered(struct client *client, const struct worker *worker)
{
	for (unsigned i = 0; i < KEPT_CLOSES; i++)
		if (client->closes[i].worker == worker->number)
			client->closes[i] = (struct kept_call){0};
	domain_keep(client->domain);
	client_keep(client);
}

static void on_session_closed(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct client *client = context;
	struct domain *domain = client->domain;
	bool orphan = reply && !reply->code && reply->values.count && !reply->values.at[0];

	(void)packet;
	if (orphan && worker == domain->active && !worker_is_failing(worker))
		promote_orphan(domain, client);
	if (reply && !reply->code && reply->values.count > 2 && reply->values.at[2])
		endless_report_orphan(domain, client);
	if (reply && !reply->code && reply->values.count > 1 && reply->values.at[1] &&
		worker->state != WORKER_CONDEMNED)
		linger_begin(client, worker, &(struct wire_message){.type = WIRE_CLOSE_SESSION},
			reply->values.at[1]);
	worker_forget_session(worker, client->number);
	close_answered(client, worker);
	if (--client->closings == 0)
		closing_done(client);
	client_unref(client);
}

static void await_closing(struct client *client)
{
	if (client->close_timer)
		timer_start(client->close_timer, (uint64_t)client->patience_ms + CLIENT_CLOSE_GRACE_MS);
}

/* An active executor that does not even answer is as bad as one whose work does not end: it is halted, so that what
 * the others have on the device can end. One that is being replaced already answers by its end, which others
 * may put off. A standby may have much to do before this; overdue.c ends one that hangs. */
static void on_close_timer(void *context)
{
	struct client *client = context;
	struct domain *domain = client->domain;
	bool owed = domain->active && worker_owes(domain->active, client);

	/* Also for whoever is active then. */
	await_closing(client);
	if (owed && domain->promotion.state == PROMOTE_ACTIVATING)
		worker_condemn(domain->active, "did not close a session in time");
	else if (owed && !domain->promotion.worn)
		promote_silent(domain, domain->active);
}

/* One that is dying has everything mapped: it answers by being reaped. */
static bool is_to_be_told(const struct client *client, const struct worker *worker)
{
	return worker->told && (client->opened || client->opening == worker);
}

void client_close_again(struct client *client, struct worker *worker)
{
	struct wire_message message = {.type = WIRE_CLOSE_SESSION, .session = client->number};

	message.close_session.patience_ms = client->patience_ms;
	client->closings++;
	worker_request(worker, &message, NULL, 0, on_session_closed, client_ref(client));
}

/* Records to whom the end is told, before it is. */
static void record_closing(struct client *client)
{
	struct worker *worker;
	unsigned count = 0;

	TAILQ_FOREACH (worker, &client->domain->workers, link)
		if (is_to_be_told(client, worker) && count < KEPT_CLOSES)
			client->closes[count++] = (struct kept_call){worker->number, worker->next_request};
	client_keep(client);
}

static void send_close(struct client *client)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &client->domain->workers, link)
		if (is_to_be_told(client, worker))
			client_close_again(client, worker);
}

void client_closing_again(struct client *client)
{
	if (!client->closings) {
		closing_done(client);
		return;
	}
	client->close_timer = timer_new(client->daemon->loop, on_close_timer, client);
	await_closing(client);
}

void client_end_given_up(struct client *client)
{
	client->given_up = false;
	/* Whoever was about to know it is told, too. */
	client->opened = true;
	client->state = CLIENT_SERVED;
	client_finish(client, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED,
		"the service ran out of file descriptors");
	client_end(client, 0);
}

/* The record says that it is closing and names the peer no more; then the peer's things go. */
static void let_peer_go(struct client *client)
{
	uint32_t connection = client->connection_key, process = client->process_key;

	client->connection_key = client->process_key = 0;
	record_closing(client);
	client->connection = connection_shutdown(client->connection);
	client->process = watch_free(client->process);
	store_forget(client->daemon->store, connection);
	store_forget(client->daemon->store, process);
}

void client_end(struct client *client, uint32_t patience_ms)
{
	if (client->state == CLIENT_CLOSING)
		return;
	client->state = CLIENT_CLOSING;
	client->patience_ms = patience_ms;
	if (client->request) {
		move_forget(client, client->request);
		request_cancel(client->request);
	}
	move_abandon(client);
	let_peer_go(client);
	if (client->opened)
		reclaim_begin(client->daemon);
	send_close(client);
	client_closing_again(client);
}
