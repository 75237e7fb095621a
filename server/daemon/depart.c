// See depart.h. A departure waits for events with many sources, so a timer checks the session every
// LOOK_MS.

#include "server/daemon/depart.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/handover.h"
#include "server/daemon/neighbour.h"
#include "server/daemon/life.h"
#include "server/daemon/requests.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/events.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/standby/leaving.h"
#include "server/standby/swap.h"
#include "server/transfer.h"
#include "server/worker/worker.h"

#define LOOK_MS UINT64_C(5)
/* Time limits: for an answer without work; for requests and replacements of executors to end; for
 * the receiver's executors, which may have to start. */
#define ANSWER_US   UINT64_C(15000000)
#define PATIENCE_US UINT64_C(10000000)
#define MAKING_US   UINT64_C(90000000)
/* Time limit of the session's own work, which has ended before. */
#define LET_GO_MS  5000u
#define TEXT_BYTES 400u

#define SILENT "the other device's daemon does not answer"

enum depart_step { DEPART_GREETS, DEPART_ASKS, DEPART_LEAVES, DEPART_GIVES, DEPART_LETS_GO, DEPART_HANDS };

struct departure {
	struct daemon *daemon;
	struct session *session; /* a reference */
	uint32_t to;
	enum depart_step step;
	struct connection *connection; /* to the receiver's daemon */
	struct timer *look;
	uint64_t until_us; /* of the step */
	uint64_t begun_us;
	char failure[TEXT_BYTES]; /* why the session stays; empty: the departure goes on */
	depart_done_fn *done;	  /* NULL: nobody waits */
	void *context;
};

static void enter(struct departure *departure, enum depart_step step, uint64_t limit_us)
{
	departure->step = step;
	departure->until_us = timer_now_us() + limit_us;
	timer_start(departure->look, LOOK_MS);
}

/* The next look ends the departure: callers are in the middle of something. */
static void fail(struct departure *departure, const char *text)
{
	if (!*departure->failure)
		snprintf(departure->failure, sizeof(departure->failure), "%s", text);
	timer_start(departure->look, 0);
}

/*
 * Obstacles
 */

/* Another program may use the same events, or find pinned memory by its token, which names the
 * device. Nobody looks for memory without a handle, and what another device has lent stays lent. */
static bool shares_host_memory(const struct session *session)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &session->holdings.entries, link) {
		if (entry->type == WIRE_MAP_HOST && entry->range.flags & WIRE_HOST_EVENTS)
			return true;
		if (entry->type == WIRE_CREATE_MEMORY && chunk_is_host(entry->chunk) &&
			(entry->chunk->offer || entry->chunk->is_lent) && !entry->chunk->lease)
			return true;
	}
	return false;
}

/* Return: NULL, or why the session cannot leave */
static const char *refuses(const struct session *session)
{
	const char *text;
	uint64_t bytes = 0;

	if (!session_is_live(session) || session->daemon->phase >= DAEMON_STOPS ||
		!daemon_offers_device(session->daemon))
		return "it is not served now: it starts or ends, or its device is drained; try again";
	if (session->move)
		return "it is being moved to another executor";
	text = leaving_refuses(session, &bytes);
	if (!text && swap_shares(session))
		text = "it shares device memory with other programs (exported or imported)";
	if (!text && shares_host_memory(session))
		text = "it shares events or pinned memory with other programs";
	return text;
}

/* Return: the event that has to come first; NULL: none */
static const char *is_busy(const struct session *session)
{
	if (session->request && request_is_under_way(session->request))
		return "it waits for an answer of the service";
	if (session->sink_asked || session->attach.worker || session->let_go.worker ||
		!domain_serving(session->domain))
		return "its executor is being replaced";
	if (session->freeing)
		return "memory that it has freed is not back yet";
	if (connection_behind(session->connection))
		return "its program does not read its answers";
	return NULL;
}

/*
 * The end
 */

static void finish(struct departure *departure, int32_t code, const char *text)
{
	struct session *session = departure->session;

	swap_forget(session, departure);
	departure->daemon->departure = NULL;
	session->departure = NULL;
	connection_shutdown(departure->connection);
	timer_free(departure->look);
	if (departure->done)
		departure->done(departure->context, code, text);
	free(departure);
	session_unref(session);
}

static void on_back(void *context, int32_t code, const char *text)
{
	(void)context;
	(void)code;
	(void)text;
}

void depart_look_into(struct domain *domain)
{
	struct worker *serving = domain_serving(domain);
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link) {
		if (!serving || !session->is_detached || session->state != SESSION_SERVED ||
			session->departure || session->let_go.worker)
			continue;
		session->is_detached = false;
		session_attach(session, serving);
		session_tell_share(session);
		/* The executor dropped the guard with the session. */
		sink_tell_all(session);
	}
}

/* Nothing has changed for the program. */
static void stay(struct departure *departure)
{
	struct session *session = departure->session;
	const struct event_about about = events_about(session);
	char text[TEXT_BYTES];

	snprintf(text, sizeof(text), "%s", departure->failure);
	session->transfer = (struct transfer){0};
	if (session->state != SESSION_CLOSING) {
		events_note(departure->daemon, EVENT_move, LOG_LEVEL_WARNING, &about,
			"session %llu (process %d, %s) stays on this device: %s",
			(unsigned long long)session->number, (int)session->pid, session->program, text);
		session->departure = NULL;
		session_changed(session);
		depart_look_into(session->domain);
		if (session->drained && daemon_offers_device(session->daemon))
			swap_end(session, on_back, NULL);
		session_read_next(session);
		due_session(session, SESSION_DUE_GO_ON);
	}
	finish(departure, CUDA_ERROR_NOT_READY, text);
}

static void leave(struct departure *departure)
{
	struct session *session = departure->session;
	const struct event_about about = events_about(session);

	events_note(departure->daemon, EVENT_move, LOG_LEVEL_INFO, &about,
		"session %llu (process %d, %s) goes on on device %u: %llu MiB of device memory, %.0f ms",
		(unsigned long long)session->number, (int)session->pid, session->program, departure->to,
		(unsigned long long)(session->holdings.memory_bytes >> 20),
		(double)(timer_now_us() - departure->begun_us) / 1000.0);
	departure->daemon->counters.sessions_migrated++;
	if (session->state != SESSION_CLOSING)
		session_leave(session);
	finish(departure, CUDA_SUCCESS, "");
}

/* The shared table says which daemon owns the session. */
static void settle(struct departure *departure)
{
	const struct transfer *transfer = &departure->session->transfer;

	if (!transfer->number || transfer_close(departure->daemon->heritage->transfers, transfer))
		stay(departure);
	else
		leave(departure);
}

/*
 * Steps
 */

static int say(struct departure *departure, enum handover_step step, uint32_t files, struct shared_fd *fd)
{
	const struct daemon *daemon = departure->daemon;
	const struct transfers *transfers = daemon->heritage->transfers;
	const struct wire_handover what = {.step = step,
		.device = daemon->heritage->number,
		.transfer = departure->session->transfer.number,
		.key = {transfers->key[0], transfers->key[1]},
		.files = files};

	return handover_say(departure->connection, &what, fd);
}

static int send_files(struct departure *departure, const struct handover_files *files)
{
	struct wire_message message = {
		.type = WIRE_HANDOVER, .handover = {.step = HANDOVER_FILES, .text = ""}};
	int r = 0;

	for (uint32_t at = 0; !r && at < files->count; at += WIRE_FDS_MAX) {
		uint32_t left = files->count - at;

		r = connection_send(departure->connection, &message, files->at + at,
			left < WIRE_FDS_MAX ? left : WIRE_FDS_MAX);
	}
	return r;
}

/* @with_files: the descriptors follow. Return: false after a failure */
static bool send_bundle(struct departure *departure, enum handover_step step, bool with_files)
{
	struct handover_files files;
	struct shared_fd *bundle;
	int fd, r = handover_write(departure->session, &files, &fd);

	if (r) {
		fail(departure, "the service has no memory or no file descriptors left");
		return false;
	}
	bundle = shared_fd_new(fd);
	r = bundle ? say(departure, step, with_files ? files.count : 0, bundle) : -ENOMEM;
	if (!r && with_files)
		r = send_files(departure, &files);
	shared_fd_unref(bundle);
	handover_drop_files(&files);
	if (r)
		fail(departure, SILENT);
	return !r;
}

static void on_left(void *context, int32_t code, const char *text)
{
	struct departure *departure = context;

	if (code)
		fail(departure, text);
}

static void begin_leaving(struct departure *departure)
{
	struct session *session = departure->session;

	session->departure = departure;
	session_read_next(session);
	enter(departure, DEPART_LEAVES, PATIENCE_US);
}

static void look_leaving(struct departure *departure)
{
	struct session *session = departure->session;
	const char *text = is_busy(session), *obstacle;

	if (!text && session->memory == SESSION_MEMORY_HERE) {
		obstacle = refuses(session);
		obstacle = obstacle ? obstacle : swap_begin(session, SWAP_DRAINED, on_left, departure);
		if (obstacle)
			fail(departure, obstacle);
		/* The executor bounds the time of the session's work; copies have no limit. */
		departure->until_us = UINT64_MAX;
		return;
	}
	if (text || session->memory != SESSION_MEMORY_AWAY) {
		if (timer_now_us() >= departure->until_us)
			fail(departure, text ? text : "its device memory comes back");
		return;
	}
	/* Once more: a kernel may have left values in the context meanwhile. */
	obstacle = refuses(session);
	if (obstacle) {
		fail(departure, obstacle);
		return;
	}
	session->transfer = transfer_open(
		departure->daemon->heritage->transfers, departure->daemon->heritage->number, departure->to);
	session_changed(session);
	if (send_bundle(departure, HANDOVER_GIVE, true))
		enter(departure, DEPART_GIVES, MAKING_US);
}

static void on_let_go(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct session *session = context;
	struct departure *departure = session->departure;
	bool is_gone = reply && !reply->code && reply->values.count && reply->values.at[0];

	(void)packet;
	/* A replaced executor may end after the successor has got the request. */
	if (session->let_go.worker != worker->number) {
		session_unref(session);
		return;
	}
	session->let_go = (struct kept_call){0};
	/* The successor of a lost executor serves the session. */
	session->is_detached |= is_gone && worker == domain_serving(session->domain);
	if (session->state != SESSION_CLOSING)
		session_changed(session);
	if (!departure)
		depart_look_into(session->domain);
	else if (!session->is_detached)
		fail(departure, "its executor is being replaced, or its own work does not end");
	else if (say(departure, HANDOVER_TAKE, 0, NULL))
		fail(departure, SILENT);
	else
		enter(departure, DEPART_HANDS, ANSWER_US);
	session_unref(session);
}

void depart_let_go_again(struct session *session, struct worker *worker)
{
	struct wire_message message = {.type = WIRE_DETACH_SESSION, .session = session->number};

	message.close_session.patience_ms = LET_GO_MS;
	worker_request(worker, &message, NULL, 0, on_let_go, session_ref(session));
}

static void let_go(struct departure *departure)
{
	struct session *session = departure->session;
	struct worker *active = domain_serving(session->domain);
	const char *text = is_busy(session);

	if (text) {
		fail(departure, text);
		return;
	}
	enter(departure, DEPART_LETS_GO, PATIENCE_US + UINT64_C(1000) * LET_GO_MS);
	session->let_go = (struct kept_call){active->number, active->next_request};
	session->let_go_to = 0;
	session_changed(session);
	depart_let_go_again(session, active);
}

/*
 * The receiver
 */

static void take_reply(struct departure *departure, const struct wire_handover *reply)
{
	if (reply->code) {
		fail(departure, reply->text);
		return;
	}
	switch (departure->step) {
	case DEPART_GREETS:
		enter(departure, DEPART_ASKS, ANSWER_US);
		send_bundle(departure, HANDOVER_ASK, false);
		break;
	case DEPART_ASKS:
		begin_leaving(departure);
		break;
	case DEPART_GIVES:
		let_go(departure);
		break;
	case DEPART_HANDS:
		fail(departure, "it was not taken");
		break;
	case DEPART_LEAVES:
	case DEPART_LETS_GO:
		fail(departure, "the other device's daemon says what was not asked");
		break;
	}
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	(void)packet;
	if (message->type == WIRE_HANDOVER && message->handover.step == HANDOVER_REPLY)
		take_reply(context, &message->handover);
	else
		fail(context, SILENT);
}

static void on_closed(void *context, const char *reason)
{
	(void)reason;
	fail(context, SILENT);
}

static bool is_over(const struct session *session)
{
	return session->state == SESSION_CLOSING;
}

static void on_look(void *context)
{
	struct departure *departure = context;

	if (is_over(departure->session))
		fail(departure, "it ends");
	if (!*departure->failure && departure->step == DEPART_LEAVES)
		look_leaving(departure);
	if (!*departure->failure && timer_now_us() >= departure->until_us)
		fail(departure, SILENT);
	if (*departure->failure && departure->session->let_go.worker && !is_over(departure->session))
		timer_start(departure->look, LOOK_MS);
	else if (*departure->failure)
		settle(departure);
	else
		timer_start(departure->look, LOOK_MS);
}

/*
 * Beginning
 */

/* Return: false without a daemon there */
static bool connect_to(struct departure *departure)
{
	const struct daemon *daemon = departure->daemon;
	int socket = neighbour_connect(daemon, departure->to);

	if (socket < 0)
		return false;
	departure->connection = connection_new(daemon->loop, CONNECTION_OURS, socket, HOLDINGS_ENTRIES_MAX,
		on_message, on_closed, departure);
	return departure->connection;
}

static struct departure *departure_new(struct session *session, uint32_t to)
{
	struct departure *departure = calloc(1, sizeof(*departure));

	log_bug_on(!departure);
	departure->daemon = session->daemon;
	departure->session = session_ref(session);
	departure->to = to;
	departure->begun_us = timer_now_us();
	departure->look = timer_new(session->daemon->loop, on_look, departure);
	log_bug_on(!departure->look);
	session->daemon->departure = departure;
	return departure;
}

void depart_begin(struct session *session, uint32_t to, depart_done_fn *done, void *context)
{
	const char *text = session->daemon->departure ? "another program is on its way to another device; "
							"try again"
						      : refuses(session);
	struct departure *departure;

	if (text) {
		done(context, CUDA_ERROR_NOT_SUPPORTED, text);
		return;
	}
	departure = departure_new(session, to);
	departure->done = done;
	departure->context = context;
	enter(departure, DEPART_GREETS, ANSWER_US);
	if (!connect_to(departure) || say(departure, HANDOVER_HELLO, 0, NULL))
		fail(departure, SILENT);
}

void depart_forget(struct daemon *daemon, const void *context)
{
	if (daemon->departure && daemon->departure->context == context)
		daemon->departure->done = NULL;
}

void depart_deinit(struct daemon *daemon)
{
	if (!daemon->departure)
		return;
	daemon->departure->done = NULL;
	finish(daemon->departure, CUDA_ERROR_NOT_READY, "");
}
