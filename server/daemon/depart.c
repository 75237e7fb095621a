// See depart.h. A departure waits for events with many sources, so a timer checks the sessions
// every LOOK_MS.

#include "server/daemon/depart.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/handover.h"
#include "server/daemon/life.h"
#include "server/daemon/neighbour.h"
#include "server/daemon/obstacle.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/events.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/standby/stash.h"
#include "server/standby/swap.h"
#include "server/transfer.h"
#include "server/worker/worker.h"

#define LOOK_MS UINT64_C(5)
/* Time limits: for an answer without work; for requests and replacements of executors to end; for
 * the receiver's executors, which may have to start. */
#define ANSWER_US   UINT64_C(15000000)
#define PATIENCE_US UINT64_C(10000000)
#define MAKING_US   UINT64_C(90000000)
/* Of the operator's tool: that saves the process, too, and programs wait meanwhile. */
#define SAVING_US UINT64_C(600000000)
/* Time limit of the session's own work, which has ended before. */
#define LET_GO_MS  5000u
#define TEXT_BYTES 400u

#define SILENT "the other device's daemon does not answer"
#define ENDS   "it ends, or a program that shares its device memory does"

enum depart_step {
	DEPART_GREETS,
	DEPART_ASKS,
	DEPART_STASHES,
	DEPART_LEAVES,
	DEPART_COPIED,
	DEPART_GIVES,
	DEPART_SAVED,
	DEPART_STORES,
	DEPART_LETS_GO,
	DEPART_HANDS
};

struct departure {
	struct daemon *daemon;
	struct swap_group members; /* the first is the one that was to go */
	uint32_t to;		   /* a device, or HANDOVER_NO_DEVICE */
	enum depart_step step;
	enum session_memory memory;    /* of all members, from GIVES on, if they are saved */
	struct connection *connection; /* to the receiver's daemon */
	struct timer *look;
	uint64_t until_us; /* of the step */
	uint64_t begun_us;
	uint64_t stopped_us, went_on_us; /* a set that is saved: when it stood still */
	struct stash *stash;		 /* it has a part of the copy; NULL: none */
	bool is_copying;		 /* the files get that part from the programs' memory */
	bool is_answered;		 /* and the tool has answered meanwhile */
	char failure[TEXT_BYTES];	 /* why the set stays; empty: the departure goes on */
	depart_done_fn *done;		 /* NULL: nobody waits */
	void *context;
};

static void enter(struct departure *departure, enum depart_step step, uint64_t limit_us)
{
	departure->step = step;
	departure->until_us = timer_now_us() + limit_us;
	timer_start(departure->look, LOOK_MS);
}

/* The next look is at once: programs stand still. */
static void hurry(struct departure *departure)
{
	timer_start(departure->look, 0);
}

void depart_hurry(struct daemon *daemon)
{
	if (daemon->departure)
		hurry(daemon->departure);
}

/* The next look ends the departure: callers are in the middle of something. A set is saved
 * with the tool's answer, even if the tool goes before that look. */
static void fail(struct departure *departure, const char *text)
{
	if (!*departure->failure && departure->step != DEPART_SAVED)
		snprintf(departure->failure, sizeof(departure->failure), "%s", text);
	timer_start(departure->look, 0);
}

static bool is_to_files(const struct departure *departure)
{
	return departure->to == HANDOVER_NO_DEVICE;
}

/* Why nothing more comes from the other end. */
static const char *silence(const struct departure *departure)
{
	return is_to_files(departure) ? "the tool that saves it has gone" : SILENT;
}

static struct session *first_of(const struct departure *departure)
{
	return departure->members.at[0];
}

static bool is_over(const struct session *session)
{
	return session->state == SESSION_CLOSING;
}

/* A saved program that ends while the files are stored is saved all the same. */
static bool has_ended(const struct departure *departure)
{
	if (is_to_files(departure) && departure->step > DEPART_COPIED)
		return false;
	for (uint32_t i = 0; i < departure->members.count; i++)
		if (is_over(departure->members.at[i]))
			return true;
	return false;
}

/*
 * The end
 */

/* @files: that are not complete yet: another answer comes */
static void answer_tool(struct connection *connection, uint32_t files, int32_t code, const char *text)
{
	const struct wire_handover what = {
		.step = HANDOVER_REPLY, .files = files, .code = code, .text = text};

	handover_say(connection, &what, NULL);
}

static void finish(struct departure *departure, int32_t code, const char *text)
{
	struct swap_group *members = &departure->members;

	for (uint32_t i = 0; i < members->count; i++) {
		swap_forget(members->at[i], departure);
		members->at[i]->departure = NULL;
	}
	departure->daemon->departure = NULL;
	stash_drop(departure->stash);
	/* Imports that waited find their memory here again, or ask the other device. */
	due_daemon(departure->daemon, DAEMON_DUE_MEMORY);
	if (is_to_files(departure))
		answer_tool(departure->connection, 0, code, text);
	connection_shutdown(departure->connection);
	timer_free(departure->look);
	if (departure->done)
		departure->done(departure->context, code, text);
	swap_free_group(members);
	free(departure);
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

/* @what, @details: behind the session's name. Members of a set name the one that was to go. */
static void note(const struct departure *departure, uint32_t i, enum log_level level, const char *what,
	const char *details)
{
	const struct session *session = departure->members.at[i];
	const struct event_about about = events_about(session);
	char with[64] = "";

	if (i)
		snprintf(with, sizeof(with), ", with session %llu",
			(unsigned long long)first_of(departure)->number);
	events_note(departure->daemon, EVENT_move, level, &about, "session %llu (process %d, %s) %s%s: %s",
		(unsigned long long)session->number, (int)session->pid, session->program, what, with,
		details);
}

static void note_end(const struct departure *departure, uint32_t i, const char *what)
{
	char details[120];
	int length = snprintf(details, sizeof(details), "%llu MiB of device memory, %.0f ms",
		(unsigned long long)(departure->members.at[i]->holdings.memory_bytes >> 20),
		(double)(timer_now_us() - departure->begun_us) / 1000.0);

	if (departure->stopped_us && departure->went_on_us)
		snprintf(details + length, sizeof(details) - (size_t)length,
			", of which it stood still for %.0f",
			(double)(departure->went_on_us - departure->stopped_us) / 1000.0);
	note(departure, i, LOG_LEVEL_INFO, what, details);
}

/* Executors serve it again. */
static void stay_here(struct departure *departure, uint32_t i)
{
	struct session *session = departure->members.at[i];

	session->transfer = (struct transfer){0};
	if (is_over(session))
		return;
	session->departure = NULL;
	session_changed(session);
}

static void note_outcome(const struct departure *departure, uint32_t i)
{
	if (!*departure->failure) {
		/* Also one whose process was ended with that. */
		note_end(departure, i, "has been saved");
		departure->daemon->counters.sessions_saved++;
	} else if (!is_over(departure->members.at[i])) {
		note(departure, i, LOG_LEVEL_WARNING,
			is_to_files(departure) ? "is not saved" : "stays on this device", departure->failure);
	}
}

/* The members go on here. */
static void conclude(struct departure *departure)
{
	char text[TEXT_BYTES];

	snprintf(text, sizeof(text), "%s", departure->failure);
	for (uint32_t i = 0; i < departure->members.count; i++)
		note_outcome(departure, i);
	finish(departure, *text ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS, text);
}

/* Nothing has changed for the programs. */
static void stay(struct departure *departure)
{
	const struct swap_group *members = &departure->members;

	departure->went_on_us = timer_now_us();
	for (uint32_t i = 0; i < members->count; i++)
		stay_here(departure, i);
	for (uint32_t i = 0; i < members->count; i++)
		if (!is_over(members->at[i]))
			depart_look_into(members->at[i]->domain);
	for (uint32_t i = 0; i < members->count; i++) {
		struct session *session = members->at[i];

		if (is_over(session))
			continue;
		if (session->memory == SESSION_MEMORY_LEAVES ||
			(session->drained && daemon_offers_device(session->daemon)))
			swap_end(session, on_back, NULL);
		session_read_next(session);
		due_session(session, SESSION_DUE_GO_ON);
	}
	if (*departure->failure || !departure->stash) {
		conclude(departure);
		return;
	}
	due_daemon(departure->daemon, DAEMON_DUE_MEMORY);
	answer_tool(departure->connection, KEPT_SWAP_FILES, CUDA_SUCCESS, "");
	enter(departure, DEPART_STORES, 0);
	departure->until_us = UINT64_MAX;
}

static void leave(struct departure *departure)
{
	const struct swap_group *members = &departure->members;
	struct daemon *daemon = departure->daemon;
	char what[64];

	snprintf(what, sizeof(what), "goes on on device %u", departure->to);
	for (uint32_t i = 0; i < members->count; i++) {
		note_end(departure, i, what);
		daemon->counters.sessions_migrated++;
	}
	/* Before the first of them ends here: the others do not go on without it. */
	for (uint32_t i = 0; i < members->count; i++)
		swap_hand_over(members->at[i]);
	for (uint32_t i = 0; i < members->count; i++)
		if (!is_over(members->at[i]))
			session_leave(members->at[i]);
	finish(departure, CUDA_SUCCESS, "");
}

/* The shared table says which daemon owns the set. */
static void settle(struct departure *departure)
{
	const struct transfer *transfer = &first_of(departure)->transfer;

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
	/* A service with one device has no table. */
	const struct transfers *transfers = daemon->heritage->transfers;
	struct wire_handover what = {.step = step,
		.device = daemon->heritage->number,
		.transfer = first_of(departure)->transfer.number,
		.files = files};

	if (!is_to_files(departure))
		memcpy(what.key, transfers->key, sizeof(what.key));
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
	int fd, r = handover_write(&departure->members, &files, &fd);

	if (r) {
		fail(departure, r == -E2BIG
					? "the service has too many records of it, and of those that share "
					  "with it, for one bundle"
					: "the service has no memory or no file descriptors left");
		return false;
	}
	bundle = shared_fd_new(fd);
	r = bundle ? say(departure, step, with_files ? files.count : 0, bundle) : -ENOMEM;
	if (!r && with_files)
		r = send_files(departure, &files);
	shared_fd_unref(bundle);
	handover_drop_files(&files);
	if (r)
		fail(departure, silence(departure));
	return !r;
}

static void on_left(void *context, int32_t code, const char *text)
{
	struct departure *departure = context;

	if (code)
		fail(departure, text);
	else if (is_to_files(departure))
		enter(departure, DEPART_COPIED, PATIENCE_US);
	hurry(departure);
	if (!stash_is_storing(departure->stash))
		departure->stash = stash_drop(departure->stash);
}

static void begin_leaving(struct departure *departure)
{
	for (uint32_t i = 0; i < departure->members.count; i++) {
		departure->members.at[i]->departure = departure;
		session_read_next(departure->members.at[i]);
	}
	enter(departure, DEPART_LEAVES, PATIENCE_US);
}

static void on_copied_again(void *context, int32_t code, const char *text)
{
	struct departure *departure = context;

	departure->is_copying = false;
	if (code)
		fail(departure, text);
	hurry(departure);
}

/* Unlike others, this failure counts behind the tool's answer as well. While the programs stand
 * still, nothing is lost with the stash. */
static void look_whether_stored(struct departure *departure)
{
	const char *text;
	int32_t code;

	if (!stash_is_gone(departure->stash, &code, &text))
		return;
	departure->stash = stash_drop(departure->stash);
	if (code == CUDA_ERROR_OUT_OF_MEMORY && departure->step <= DEPART_GIVES && !*departure->failure)
		departure->is_copying = swap_copy_again(first_of(departure), on_copied_again, departure);
	if (code && !departure->is_copying && !*departure->failure)
		snprintf(departure->failure, sizeof(departure->failure), "%s", text);
}

/* Without a stash in time, they are saved all the same. */
static void look_at_stash(struct departure *departure)
{
	const bool is_ready = stash_is_ready(departure->stash);

	if (!is_ready && timer_now_us() < departure->until_us)
		return;
	if (!is_ready)
		departure->stash = stash_drop(departure->stash);
	begin_leaving(departure);
}

/* The members work on while there is room made for their copy. */
static void begin_stash(struct departure *departure)
{
	enter(departure, DEPART_STASHES, PATIENCE_US);
	departure->stash = stash_begin(&departure->members);
	if (!departure->stash)
		begin_leaving(departure);
}

/* All members are at rest: requests wait. */
static void send_away(struct departure *departure)
{
	struct swap_group *members = &departure->members;
	const char *obstacle = obstacle_by_change(members);

	obstacle = obstacle ? obstacle : obstacle_of_set(members);
	departure->stopped_us = timer_now_us();
	obstacle = obstacle
			   ? obstacle
			   : swap_begin(first_of(departure),
				     is_to_files(departure) ? SWAP_COPIED : SWAP_DRAINED, on_left, departure);
	if (obstacle)
		fail(departure, obstacle);
	/* Executors bound the time of the sessions' work; copies have no limit. */
	departure->until_us = UINT64_MAX;
}

static void open_transfer(struct departure *departure)
{
	const struct daemon *daemon = departure->daemon;
	const struct transfer transfer =
		transfer_open(daemon->heritage->transfers, daemon->heritage->number, departure->to);

	for (uint32_t i = 0; i < departure->members.count; i++) {
		departure->members.at[i]->transfer = transfer;
		session_changed(departure->members.at[i]);
	}
}

static void give(struct departure *departure)
{
	struct swap_group *members = &departure->members;
	/* Once more: a kernel may have left values in the context meanwhile. */
	const char *obstacle = obstacle_of_set(members);

	if (obstacle) {
		fail(departure, obstacle);
		return;
	}
	if (is_to_files(departure))
		departure->memory = first_of(departure)->memory;
	else
		open_transfer(departure);
	if (send_bundle(departure, HANDOVER_GIVE, true))
		enter(departure, DEPART_GIVES, is_to_files(departure) ? SAVING_US : MAKING_US);
}

static void look_leaving(struct departure *departure)
{
	const char *text = obstacle_of_moment(&departure->members);
	/* The same of all members. */
	enum session_memory memory = first_of(departure)->memory;

	if (!text && memory == SESSION_MEMORY_HERE)
		send_away(departure);
	else if (!text && memory == SESSION_MEMORY_AWAY)
		give(departure);
	else if (timer_now_us() >= departure->until_us)
		fail(departure, text ? text : "its device memory comes back");
}

/* Return: true if an executor has not answered */
static bool is_letting_go(const struct departure *departure)
{
	bool is = false;

	for (uint32_t i = 0; i < departure->members.count; i++)
		is |= departure->members.at[i]->let_go.worker && !is_over(departure->members.at[i]);
	return is;
}

static bool are_detached(const struct swap_group *members)
{
	for (uint32_t i = 0; i < members->count; i++)
		if (!members->at[i]->is_detached)
			return false;
	return true;
}

static void hand(struct departure *departure)
{
	if (*departure->failure || is_letting_go(departure))
		return;
	if (!are_detached(&departure->members))
		fail(departure, "its executor is being replaced, or its own work does not end");
	else if (say(departure, HANDOVER_TAKE, 0, NULL))
		fail(departure, SILENT);
	else
		enter(departure, DEPART_HANDS, ANSWER_US);
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
	if (departure)
		hand(departure);
	else
		depart_look_into(session->domain);
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
	const struct swap_group *members = &departure->members;
	const char *text = obstacle_of_moment(members);

	if (text) {
		fail(departure, text);
		return;
	}
	enter(departure, DEPART_LETS_GO, PATIENCE_US + UINT64_C(1000) * LET_GO_MS);
	for (uint32_t i = 0; i < members->count; i++) {
		struct session *session = members->at[i];
		struct worker *active = domain_serving(session->domain);

		/* The request before this one has failed. */
		if (!active) {
			fail(departure, "its executor is being replaced");
			return;
		}
		session->let_go = (struct kept_call){active->number, active->next_request};
		session->let_go_to = 0;
		session_changed(session);
		depart_let_go_again(session, active);
	}
}

/*
 * The receiver
 */

/* The members' memory has to be what the tool got until it answers. */
static bool is_disturbed(const struct departure *departure)
{
	bool is = false;

	for (uint32_t i = 0; i < departure->members.count; i++)
		is |= !is_over(departure->members.at[i]) &&
		      departure->members.at[i]->memory != departure->memory;
	return is && is_to_files(departure) && departure->step == DEPART_GIVES;
}

static void note_disturbed(struct departure *departure)
{
	if (is_disturbed(departure))
		fail(departure, "it goes on already: its executor was replaced, or a program that shares "
				"with it has ended");
}

static void be_saved(struct departure *departure)
{
	enter(departure, DEPART_SAVED, 0);
	hurry(departure);
}

static void await_copy(struct departure *departure)
{
	departure->is_answered = true;
	departure->until_us = UINT64_MAX;
}

static void take_reply(struct departure *departure, const struct wire_handover *reply)
{
	/* A session that has ended has no connection any more to hand over. */
	if (reply->code || has_ended(departure)) {
		fail(departure, reply->code ? reply->text : ENDS);
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
		note_disturbed(departure);
		if (!is_to_files(departure))
			let_go(departure);
		else if (departure->is_copying || stash_is_lost(departure->stash))
			await_copy(departure);
		else if (!*departure->failure)
			be_saved(departure);
		break;
	case DEPART_HANDS:
		fail(departure, "it was not taken");
		break;
	case DEPART_STASHES:
	case DEPART_LEAVES:
	case DEPART_COPIED:
	case DEPART_SAVED:
	case DEPART_STORES:
	case DEPART_LETS_GO:
		fail(departure, "the other end says what was not asked");
		break;
	}
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	(void)packet;
	if (message->type == WIRE_HANDOVER && message->handover.step == HANDOVER_REPLY)
		take_reply(context, &message->handover);
	else
		fail(context, silence(context));
}

static void on_closed(void *context, const char *reason)
{
	(void)reason;
	fail(context, silence(context));
}

static void on_look(void *context)
{
	struct departure *departure = context;
	bool is_saved;

	look_whether_stored(departure);
	if (departure->step == DEPART_STORES && (!departure->stash || *departure->failure)) {
		conclude(departure);
		return;
	}
	if (has_ended(departure))
		fail(departure, ENDS);
	if (!*departure->failure && departure->step == DEPART_STASHES)
		look_at_stash(departure);
	else if (!*departure->failure && departure->step == DEPART_LEAVES)
		look_leaving(departure);
	else if (!*departure->failure && departure->step == DEPART_COPIED)
		give(departure);
	note_disturbed(departure);
	if (!*departure->failure && departure->is_answered && !departure->is_copying && !departure->stash)
		departure->step = DEPART_SAVED;
	is_saved = departure->step == DEPART_SAVED;
	if (!is_saved && !*departure->failure && timer_now_us() >= departure->until_us)
		fail(departure, silence(departure));
	if ((is_saved || *departure->failure) && !is_letting_go(departure))
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

/* @members: taken over */
static struct departure *departure_new(struct daemon *daemon, const struct swap_group *members, uint32_t to)
{
	struct departure *departure = calloc(1, sizeof(*departure));

	log_bug_on(!departure);
	departure->daemon = daemon;
	departure->members = *members;
	departure->to = to;
	departure->begun_us = timer_now_us();
	departure->look = timer_new(daemon->loop, on_look, departure);
	log_bug_on(!departure->look);
	daemon->departure = departure;
	return departure;
}

/* @ret_text: NULL, or why the set cannot go. Return: NULL then */
static struct departure *begin(struct session *session, uint32_t to, const char **ret_text)
{
	struct daemon *daemon = session->daemon;
	struct swap_group members = {0};
	const char *text =
		daemon->departure
			? "another program is on its way to another device, or being saved; try again"
			: swap_find_group(session, &members);

	text = text ? text : obstacle_by_order(&members);
	*ret_text = text ? text : obstacle_of_set(&members);
	if (!*ret_text)
		return departure_new(daemon, &members, to);
	swap_free_group(&members);
	return NULL;
}

void depart_begin(struct session *session, uint32_t to, depart_done_fn *done, void *context)
{
	const char *text;
	struct departure *departure = begin(session, to, &text);

	if (!departure) {
		done(context, CUDA_ERROR_NOT_SUPPORTED, text);
		return;
	}
	departure->done = done;
	departure->context = context;
	enter(departure, DEPART_GREETS, ANSWER_US);
	if (!connect_to(departure) || say(departure, HANDOVER_HELLO, 0, NULL))
		fail(departure, SILENT);
}

/* Return: NULL, or why there is no departure */
static const char *begin_saving(struct daemon *daemon, struct connection *connection, uint64_t number)
{
	struct session *session = daemon_find_session(daemon, number);
	struct departure *departure;
	const char *text;

	if (!session || is_over(session))
		return "there is no such session";
	departure = begin(session, HANDOVER_NO_DEVICE, &text);
	if (!departure)
		return text;
	departure->connection = connection;
	connection_trust(connection);
	connection_set_owner(connection, on_message, on_closed, departure);
	begin_stash(departure);
	return NULL;
}

void depart_save(struct daemon *daemon, struct connection *connection, uint64_t number)
{
	const char *text = begin_saving(daemon, connection, number);

	if (!text)
		return;
	answer_tool(connection, 0, CUDA_ERROR_NOT_SUPPORTED, text);
	connection_shutdown(connection);
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
