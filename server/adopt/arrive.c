// See arrive.h. An arrival waits for events with many sources, so a timer checks every LOOK_MS.

#include "server/adopt/arrive.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "protocol/socket.h"
#include "server/adopt/admit.h"
#include "server/adopt/adoption.h"
#include "server/config/config.h"
#include "server/daemon/compiling.h"
#include "server/daemon/depart.h"
#include "server/daemon/handover.h"
#include "server/daemon/life.h"
#include "server/daemon/sink_make.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/session/guarantee.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/session/unpinning.h"
#include "server/standby/swap.h"
#include "server/standby/warm.h"
#include "server/transfer.h"
#include "server/worker/worker.h"

#define LOOK_MS UINT64_C(5)
/* Time limits: of the end of an earlier stay, and of executors, which may have to start. */
#define STAY_US	  UINT64_C(5000000)
#define MAKING_US UINT64_C(60000000)

enum arrive_step {
	ARRIVE_LISTENS,
	ARRIVE_LOOKS,
	ARRIVE_GATHERS,
	ARRIVE_MAKES,
	ARRIVE_READY,
	ARRIVE_FILLS /* from files: the members are served, and stand still */
};

struct arrival {
	struct daemon *daemon;
	struct connection *connection;
	uint32_t from; /* a device, or HANDOVER_NO_DEVICE */
	enum arrive_step step;
	struct transfer transfer;
	struct handover handover; /* the latest bundle */
	uint32_t *keys;		  /* of descriptors, from 1 on; [0] is 0 */
	uint32_t key_count;
	struct arriving *members; /* as in all bundles; NULL: no question yet */
	uint32_t member_count;
	bool is_asked; /* the first one's executor, for the free memory */
	unsigned refs; /* of the daemon, and of an answer under way */
	struct timer *look;
	uint64_t until_us, begun_us;
};

static bool is_from_files(const struct arrival *arrival)
{
	return arrival->from == HANDOVER_NO_DEVICE;
}

static void enter(struct arrival *arrival, enum arrive_step step, uint64_t limit_us)
{
	arrival->step = step;
	arrival->until_us = timer_now_us() + limit_us;
	timer_start(arrival->look, LOOK_MS);
}

static void reply(struct arrival *arrival, int32_t code, const char *text)
{
	const struct wire_handover what = {.step = HANDOVER_REPLY, .code = code, .text = text};

	handover_say(arrival->connection, &what, NULL);
}

static void unref(struct arrival *arrival)
{
	if (!--arrival->refs)
		free(arrival);
}

/* A domain for a session alone. */
static void leave_domain(const struct arrival *arrival, const struct arriving *member)
{
	struct domain *domain = daemon_find_domain(arrival->daemon, member->domain_number);

	if (domain && domain_is_alone(domain) && domain->life != DOMAIN_RETIRES &&
		!domain_has_programs(domain))
		domain_retire(domain);
}

/* Descriptors that no session has. */
static void return_files(struct arrival *arrival)
{
	for (uint32_t i = 1; i <= arrival->key_count; i++)
		store_return(arrival->daemon->store, arrival->keys[i]);
	free(arrival->keys);
	arrival->keys = NULL;
	arrival->key_count = 0;
}

/* Records first: no record names a descriptor after the release. */
static void leave_sessions(struct arrival *arrival)
{
	for (uint32_t i = 0; i < arrival->member_count; i++)
		if (arrival->members[i].session && arrival->members[i].session->state == SESSION_ELSEWHERE)
			session_leave(arrival->members[i].session);
}

static void drop_members(struct arrival *arrival)
{
	for (uint32_t i = 0; i < arrival->member_count; i++) {
		leave_domain(arrival, &arrival->members[i]);
		session_unref(arrival->members[i].session);
	}
	free(arrival->members);
	arrival->members = NULL;
	arrival->member_count = 0;
}

static void end(struct arrival *arrival)
{
	arrival->daemon->arrival = NULL;
	arrival->connection = connection_shutdown(arrival->connection);
	arrival->look = timer_free(arrival->look);
	handover_free(&arrival->handover);
	leave_sessions(arrival);
	return_files(arrival);
	drop_members(arrival);
	unref(arrival);
}

/* Without the rest of their memory the members cannot go on. */
static void end_unfilled(const struct arrival *arrival)
{
	for (uint32_t i = 0; arrival->step == ARRIVE_FILLS && i < arrival->member_count; i++)
		if (arrival->members[i].session->state == SESSION_SERVED)
			session_terminate(arrival->members[i].session, "it was not restored wholly");
}

/* The giver keeps the set. */
static void fail(struct arrival *arrival, int32_t code, const char *text)
{
	log_debug("the sessions from %s do not come: %s", is_from_files(arrival) ? "files" : "another device",
		text);
	if (arrival->transfer.number)
		transfer_close(arrival->daemon->heritage->transfers, &arrival->transfer);
	reply(arrival, code, text);
	end_unfilled(arrival);
	end(arrival);
}

/*
 * May they come?
 */

/* Return: true if a session of that number is here, or remains of one */
static bool is_here(const struct arrival *arrival)
{
	for (uint32_t i = 0; i < arrival->member_count; i++)
		if (daemon_find_session(arrival->daemon, arrival->members[i].number) ||
			unpinning_is_of(arrival->daemon, arrival->members[i].number))
			return true;
	return false;
}

/* Return: as admit_refuses(). A program from files is nowhere else */
static const char *refuses(struct arrival *arrival, int32_t *ret_code, char *text)
{
	return admit_refuses(arrival->daemon, &arrival->handover, arrival->members, is_from_files(arrival),
		ret_code, text);
}

/* A tool hears which files it may fill later. */
static void invite(const struct arrival *arrival)
{
	const struct kept_session *first = &arrival->handover.members[0].session.kept;
	const struct wire_handover what = {
		.step = HANDOVER_REPLY, .files = is_from_files(arrival) ? first->swap_fds[0] : 0};

	handover_say(arrival->connection, &what, NULL);
}

static void look_for_room(struct arrival *arrival)
{
	char text[ADMIT_TEXT];
	const char *why;
	int32_t code;

	if (is_here(arrival)) {
		if (timer_now_us() < arrival->until_us)
			timer_start(arrival->look, LOOK_MS);
		else
			fail(arrival, CUDA_ERROR_NOT_READY,
				"the other device has a session of this number, or has not closed it yet");
		return;
	}
	why = refuses(arrival, &code, text);
	if (why) {
		fail(arrival, code, why);
		return;
	}
	arrival->step = ARRIVE_LISTENS;
	invite(arrival);
}

/*
 * They come
 */

/* The session's record as one of this daemon. */
static void take_record(struct arrival *arrival, uint32_t at)
{
	struct handover_member *member = &arrival->handover.members[at];
	const struct partition *partition =
		*member->partition ? partition_find(arrival->daemon, member->partition) : NULL;
	struct kept_session *kept = &member->session.kept;
	const struct kept_session given = *kept;
	static struct session head; /* the head alone, of one session at a time */

	admit_read_head(member, &head);
	head.partition = partition ? partition->number : 0;
	head.state = SESSION_ELSEWHERE;
	head.is_detached = true;
	head.requests = 0;
	head.filled = is_from_files(arrival) ? 0 : SESSION_FILLED;
	/* Requests of the giver are none here. */
	head.open = head.attach = head.let_go = (struct kept_call){0};
	memset(head.closes, 0, sizeof(head.closes));
	memcpy(member->session.head, &head, sizeof(member->session.head));
	*kept = (struct kept_session){.domain = arrival->members[at].domain->number,
		.client_fd = given.client_fd,
		.server_fd = given.server_fd,
		.doorbell = given.doorbell};
	memcpy(kept->swap_fds, given.swap_fds, sizeof(kept->swap_fds));
}

static uint32_t greatest_key(const struct arrival *arrival)
{
	uint32_t most = 0;

	for (uint32_t i = 1; i <= arrival->key_count; i++)
		most = arrival->keys[i] > most ? arrival->keys[i] : most;
	return most;
}

/* As from the records of an earlier life. */
static void adopt_all(struct arrival *arrival)
{
	struct handover *handover = &arrival->handover;
	struct adoption adoption = {.daemon = arrival->daemon};
	struct store *store = arrival->daemon->store;

	inventory_init(&adoption.inventory, arrival->daemon, greatest_key(arrival) + 1);
	for (uint32_t i = 0; i < arrival->member_count; i++)
		adoption_read_session(&adoption,
			store_put(store, NULL, RECORD_SESSION, handover->members[i].number,
				&handover->members[i].session, sizeof(handover->members[i].session)));
	for (uint64_t i = 0; i < handover->head.record_count; i++)
		adoption_read_holding(
			&adoption, store_put(store, NULL, RECORD_HOLDING, store_serial(store),
					   handover->records[i].kept, handover->records[i].bytes));
	inventory_deinit(&adoption.inventory);
}

/* Return: false if a session cannot be read */
static bool find_sessions(struct arrival *arrival)
{
	bool are_whole = true;

	for (uint32_t i = 0; i < arrival->member_count; i++) {
		struct session *session = daemon_find_session(arrival->daemon, arrival->members[i].number);

		log_bug_on(!session);
		arrival->members[i].session = session_ref(session);
		if (session->given_up) {
			session->given_up = false;
			session->state = SESSION_ELSEWHERE;
			are_whole = false;
		}
		/* The memory of all that come is away. */
		are_whole &= session->memory == SESSION_MEMORY_AWAY;
		session->transfer = arrival->transfer;
		session_changed(session);
	}
	return are_whole;
}

/* warm_start() tells executors without a list of sessions yet. */
static void tell(struct session *session)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &session->domain->workers, link)
		if (worker->told && worker->state != WORKER_TERMINATING)
			warm_tell(worker, session);
}

static void make(struct arrival *arrival)
{
	char text[ADMIT_TEXT];
	const char *why;
	int32_t code;

	/* Once more: some time has passed. */
	why = is_here(arrival) ? "the other device has a session of this number"
			       : refuses(arrival, &code, text);
	if (why) {
		fail(arrival, CUDA_ERROR_NOT_READY, why);
		return;
	}
	handover_translate(&arrival->handover, arrival->keys);
	for (uint32_t i = 0; i < arrival->member_count; i++)
		take_record(arrival, i);
	adopt_all(arrival);
	if (!find_sessions(arrival)) {
		fail(arrival, CUDA_ERROR_UNKNOWN, "its records cannot be read there (the log says why)");
		return;
	}
	handover_free(&arrival->handover);
	for (uint32_t i = 0; i < arrival->member_count; i++)
		tell(arrival->members[i].session);
	enter(arrival, ARRIVE_MAKES, MAKING_US);
}

/* Device memory of the set; on the way, all of it counts as away. */
static uint64_t bytes_of(const struct arrival *arrival)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < arrival->member_count; i++)
		bytes += arrival->members[i].session->holdings.owned_bytes +
			 arrival->members[i].session->holdings.away_bytes;
	return bytes;
}

/* True if the memory, once back, leaves others their reserved memory. */
static bool is_allowed(const struct arrival *arrival)
{
	bool fits = true;

	for (uint32_t i = 0; i < arrival->member_count; i++)
		holdings_set_away(&arrival->members[i].session->holdings, false);
	for (uint32_t i = 0; i < arrival->member_count; i++)
		fits &= guarantee_fits(arrival->members[i].session);
	for (uint32_t i = 0; i < arrival->member_count; i++)
		holdings_set_away(&arrival->members[i].session->holdings, true);
	return fits;
}

/* Suspended programs wait for room, and others make room under memory_policy = swap. */
static bool has_room(const struct arrival *arrival, uint64_t free_bytes)
{
	const struct session *first = arrival->members[0].session;

	return !first->drained || first->terms.memory_policy == CONFIG_MEMORY_POLICY_SWAP ||
	       (bytes_of(arrival) <= free_bytes && is_allowed(arrival));
}

static void on_free_memory(
	void *context, struct worker *worker, const struct wire_reply *answer, struct packet *packet)
{
	struct arrival *arrival = context;
	/* Else the arrival has ended. */
	const bool awaited = arrival->members;

	(void)packet;
	if (awaited && (worker != arrival->members[0].executor || !answer || answer->code ||
			       !answer->values.count)) {
		fail(arrival, CUDA_ERROR_NOT_READY,
			"the other device's executor cannot tell its free memory");
	} else if (awaited && !has_room(arrival, answer->values.at[0])) {
		fail(arrival, CUDA_ERROR_OUT_OF_MEMORY,
			"its device memory does not fit there beside what others have at this moment");
	} else if (awaited) {
		enter(arrival, ARRIVE_READY, MAKING_US);
		reply(arrival, CUDA_SUCCESS, "");
	}
	unref(arrival);
}

static void ask_for_memory(struct arrival *arrival)
{
	const struct arriving *first = &arrival->members[0];
	struct wire_message message = {.type = WIRE_QUERY_MEMORY, .session = first->session->number};

	arrival->is_asked = true;
	arrival->refs++;
	worker_request(first->executor, &message, NULL, 0, on_free_memory, arrival);
}

/* @text: ADMIT_TEXT. Return: NULL, or why the session cannot be made here */
static const char *trouble_of(const struct arriving *member, char *text)
{
	const struct session *session = member->session;
	const struct domain *domain = session->domain;

	if (session->state != SESSION_ELSEWHERE || domain->life == DOMAIN_RETIRES)
		return "the other device is not served any more";
	if (member->executor && member->executor != domain_serving(domain))
		return "the other device's executor is being replaced";
	if (member->executor && worker_is_immovable(member->executor, session->number))
		return "something of it comes out differently on the other device (the log says what)";
	if (!member->executor && domain->start_failures >= DOMAIN_START_FAILURES)
		return domain->start_error;
	return guarantee_refuses(session, text, ADMIT_TEXT) ? text : NULL;
}

/* @text: ADMIT_TEXT. Return: NULL, or why the set cannot be made here */
static const char *trouble(const struct arrival *arrival, char *text)
{
	for (uint32_t i = 0; i < arrival->member_count; i++) {
		const struct session *session = arrival->members[i].session;
		const char *why = trouble_of(&arrival->members[i], text);

		if (why)
			return i ? swap_name_obstacle(session->number, session->pid, why) : why;
	}
	return NULL;
}

/* Return: true once all are made by executors that serve */
static bool are_made(struct arrival *arrival)
{
	bool are = true;

	for (uint32_t i = 0; i < arrival->member_count; i++) {
		struct arriving *member = &arrival->members[i];

		if (!member->executor)
			member->executor = domain_serving(member->session->domain);
		are &= member->executor && !member->executor->mirrors;
	}
	return are;
}

static void look_at_making(struct arrival *arrival)
{
	char text[ADMIT_TEXT];
	const char *why = trouble(arrival, text);

	if (why) {
		fail(arrival, CUDA_ERROR_NOT_READY, why);
		return;
	}
	if (timer_now_us() >= arrival->until_us) {
		fail(arrival, CUDA_ERROR_TIMEOUT, "the other device, or its own, did not get ready in time");
		return;
	}
	timer_start(arrival->look, LOOK_MS);
	if (are_made(arrival) && !arrival->is_asked)
		ask_for_memory(arrival);
}

/* The session is served here, but for its memory. */
static void serve(struct session *session)
{
	depart_look_into(session->domain);
	session_set_terms(session);
	session_read_next(session);
	sink_request(session);
	compiling_await(session);
}

static void note(const struct arrival *arrival, uint32_t at)
{
	const struct session *session = arrival->members[at].session;
	const struct event_about about = events_about(session);
	char whence[32] = "files", with[64] = "";

	if (!is_from_files(arrival))
		snprintf(whence, sizeof(whence), "device %u", arrival->from);

	if (at)
		snprintf(with, sizeof(with), ", with session %llu",
			(unsigned long long)arrival->members[0].session->number);
	events_note(arrival->daemon, EVENT_move, LOG_LEVEL_INFO, &about,
		"session %llu (process %d, %s) has come from %s%s: %.0f ms after its question",
		(unsigned long long)session->number, (int)session->pid, session->program, whence, with,
		(double)(timer_now_us() - arrival->begun_us) / 1000.0);
}

/* All members are served before the memory of the set comes back, which is one swap. */
static void serve_all(struct arrival *arrival)
{
	for (uint32_t i = 0; i < arrival->member_count; i++)
		session_take_over(arrival->members[i].session);
	for (uint32_t i = 0; i < arrival->member_count; i++) {
		struct session *session = arrival->members[i].session;

		if (session->given_up)
			session_end_given_up(session);
		else
			serve(session);
	}
	for (uint32_t i = 0; i < arrival->member_count; i++) {
		if (arrival->members[i].session->state != SESSION_SERVED)
			continue;
		swap_adopt(arrival->members[i].session);
	}
}

static void come(struct arrival *arrival)
{
	for (uint32_t i = 0; i < arrival->member_count; i++)
		if (arrival->members[i].session->state == SESSION_SERVED)
			note(arrival, i);
	reply(arrival, CUDA_SUCCESS, "");
	end(arrival);
}

static bool are_served(const struct arrival *arrival)
{
	bool are = true;

	for (uint32_t i = 0; i < arrival->member_count; i++)
		are &= arrival->members[i].session->state == SESSION_SERVED;
	return are;
}

static void look_at_filling(struct arrival *arrival)
{
	if (are_served(arrival))
		timer_start(arrival->look, LOOK_MS);
	else
		fail(arrival, CUDA_ERROR_NOT_READY, "it has ended before it was whole");
}

/* The files have all bytes before that place. */
static void fill(struct arrival *arrival, uint64_t place)
{
	for (uint32_t i = 0; i < arrival->member_count; i++)
		swap_fill(arrival->members[i].session, place);
	if (place != SESSION_FILLED || !are_served(arrival))
		return;
	arrival->daemon->counters.sessions_restored += arrival->member_count;
	come(arrival);
}

/* From transfer_take() on this device has the set, whatever happens. */
static void take(struct arrival *arrival)
{
	char text[ADMIT_TEXT];
	const char *why = trouble(arrival, text);

	if (why) {
		fail(arrival, CUDA_ERROR_NOT_READY, why);
		return;
	}
	if (!is_from_files(arrival) &&
		!transfer_take(arrival->daemon->heritage->transfers, &arrival->transfer)) {
		fail(arrival, CUDA_ERROR_TIMEOUT, "it came too late");
		return;
	}
	serve_all(arrival);
	if (!is_from_files(arrival)) {
		come(arrival);
		return;
	}
	enter(arrival, ARRIVE_FILLS, 0);
	reply(arrival, CUDA_SUCCESS, "");
}

/*
 * Messages
 */

static void on_look(void *context)
{
	struct arrival *arrival = context;

	if (arrival->step == ARRIVE_LOOKS)
		look_for_room(arrival);
	else if (arrival->step == ARRIVE_MAKES || arrival->step == ARRIVE_READY)
		look_at_making(arrival);
	else if (arrival->step == ARRIVE_FILLS)
		look_at_filling(arrival);
}

/* The first question says who comes. */
static void note_members(struct arrival *arrival)
{
	const struct handover *handover = &arrival->handover;

	drop_members(arrival);
	arrival->members = calloc(handover->head.member_count, sizeof(*arrival->members));
	log_bug_on(!arrival->members);
	arrival->member_count = handover->head.member_count;
	for (uint32_t i = 0; i < arrival->member_count; i++) {
		struct arriving *member = &arrival->members[i];

		member->given = handover->members[i].number;
		member->number =
			is_from_files(arrival) ? session_take_number(arrival->daemon) : member->given;
	}
}

static void renumber(struct arrival *arrival)
{
	uint64_t *numbers = calloc(arrival->member_count, sizeof(*numbers));

	log_bug_on(!numbers);
	for (uint32_t i = 0; i < arrival->member_count; i++)
		numbers[i] = arrival->members[i].number;
	handover_renumber(&arrival->handover, numbers);
	free(numbers);
}

/* Return: true if those come who were asked about, of the same user */
static bool are_members_same(const struct arrival *arrival)
{
	const struct handover *handover = &arrival->handover;
	bool are = arrival->member_count == handover->head.member_count;

	for (uint32_t i = 0; are && i < arrival->member_count; i++)
		are = arrival->members[i].given == handover->members[i].number;
	return are;
}

/* Return: false after a failure */
static bool read_bundle(struct arrival *arrival, struct packet *packet)
{
	struct shared_fd *file = shared_fd_new(packet_take_fd(packet, 0));
	int r;

	handover_free(&arrival->handover);
	r = file ? handover_read(file->fd, &arrival->handover) : -1;
	shared_fd_unref(file);
	if (r)
		fail(arrival, CUDA_ERROR_INVALID_VALUE,
			r == -ESTALE ? "another build of the service has written its records"
				     : "its records cannot be read there");
	return !r;
}

static void begin_gathering(struct arrival *arrival, const struct wire_handover *what)
{
	/* A set from files is in no table, whatever the tool says. */
	if (!is_from_files(arrival))
		arrival->transfer = (struct transfer){.from = arrival->from,
			.to = arrival->daemon->heritage->number,
			.number = what->transfer};
	arrival->keys = calloc((size_t)arrival->handover.head.files + 1, sizeof(*arrival->keys));
	arrival->step = ARRIVE_GATHERS;
	if (!arrival->keys || what->files != arrival->handover.head.files ||
		!what->transfer != is_from_files(arrival) || !are_members_same(arrival))
		fail(arrival, CUDA_ERROR_INVALID_VALUE, "its descriptors cannot be taken there");
	else
		renumber(arrival);
}

static void gather(struct arrival *arrival, struct packet *packet)
{
	const uint32_t files = arrival->handover.head.files;

	for (unsigned i = 0; i < packet->fd_count; i++) {
		if (arrival->key_count < files &&
			!handover_fits(&arrival->handover, arrival->key_count + 1, packet->fds[i])) {
			fail(arrival, CUDA_ERROR_INVALID_VALUE,
				"its descriptors are not what its records say");
			return;
		}
		if (arrival->key_count == files ||
			store_receive(arrival->daemon->store, packet_take_fd(packet, i),
				&arrival->keys[arrival->key_count + 1])) {
			fail(arrival, CUDA_ERROR_OUT_OF_MEMORY,
				"there are too few file descriptors for it there");
			return;
		}
		arrival->key_count++;
	}
	if (arrival->key_count == files)
		make(arrival);
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct arrival *arrival = context;
	const struct wire_handover *what = &message->handover;
	const uint32_t step = message->type == WIRE_HANDOVER ? what->step : HANDOVER_NOTHING;

	if (step == HANDOVER_ASK && arrival->step == ARRIVE_LISTENS) {
		if (read_bundle(arrival, packet)) {
			note_members(arrival);
			renumber(arrival);
			enter(arrival, ARRIVE_LOOKS, STAY_US);
			look_for_room(arrival);
		}
	} else if (step == HANDOVER_GIVE && arrival->step == ARRIVE_LISTENS) {
		if (read_bundle(arrival, packet))
			begin_gathering(arrival, what);
	} else if (step == HANDOVER_FILES && arrival->step == ARRIVE_GATHERS) {
		gather(arrival, packet);
	} else if (step == HANDOVER_TAKE && arrival->step == ARRIVE_READY) {
		take(arrival);
	} else if (step == HANDOVER_FILLED && arrival->step == ARRIVE_FILLS) {
		fill(arrival, what->place);
	} else {
		fail(arrival, CUDA_ERROR_INVALID_VALUE, "that was not awaited");
	}
}

static void on_closed(void *context, const char *reason)
{
	fail(context, CUDA_ERROR_NOT_READY, reason);
}

static bool is_ours(const struct daemon *daemon, const struct wire_handover *what)
{
	const struct transfers *transfers = daemon->heritage->transfers;

	return transfers && what->step == HANDOVER_HELLO && what->key[0] == transfers->key[0] &&
	       what->key[1] == transfers->key[1] && what->device < daemon_devices(daemon) &&
	       what->device != daemon->heritage->number;
}

static struct arrival *arrival_new(struct daemon *daemon, struct connection *connection, uint32_t from)
{
	struct arrival *arrival = calloc(1, sizeof(*arrival));

	log_bug_on(!arrival);
	arrival->daemon = daemon;
	arrival->connection = connection;
	arrival->from = from;
	arrival->refs = 1;
	arrival->begun_us = timer_now_us();
	arrival->look = timer_new(daemon->loop, on_look, arrival);
	return arrival;
}

void arrive_begin(struct daemon *daemon, struct connection *connection, const struct wire_message *message)
{
	const struct wire_handover *what = &message->handover;
	const uint32_t from = what->step == HANDOVER_RESTORE ? HANDOVER_NO_DEVICE : what->device;
	const struct wire_handover later = {.step = HANDOVER_REPLY,
		.code = CUDA_ERROR_NOT_READY,
		.text = "another program is just coming to the other device; try again"};

	if (from != HANDOVER_NO_DEVICE && !is_ours(daemon, what)) {
		connection_shutdown(connection);
		return;
	}
	/* The same giver begins anew. */
	if (daemon->arrival && daemon->arrival->from == from && from != HANDOVER_NO_DEVICE)
		fail(daemon->arrival, CUDA_ERROR_NOT_READY, "its giver has begun anew");
	if (daemon->arrival) {
		handover_say(connection, &later, NULL);
		connection_shutdown(connection);
		return;
	}
	connection_trust(connection);
	daemon->arrival = arrival_new(daemon, connection, from);
	connection_set_owner(connection, on_message, on_closed, daemon->arrival);
	reply(daemon->arrival, CUDA_SUCCESS, "");
}

void arrive_deinit(struct daemon *daemon)
{
	if (daemon->arrival)
		fail(daemon->arrival, CUDA_ERROR_NOT_READY, "the other device is not served any more");
}
