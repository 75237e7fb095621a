// See arrive.h. An arrival waits for events with many sources, so a timer checks every LOOK_MS.

#include "server/adopt/arrive.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "protocol/socket.h"
#include "server/adopt/adoption.h"
#include "server/bytes.h"
#include "server/config/config.h"
#include "server/daemon/compiling.h"
#include "server/daemon/depart.h"
#include "server/daemon/handover.h"
#include "server/daemon/life.h"
#include "server/daemon/quota.h"
#include "server/daemon/sink_make.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/session/fault_history.h"
#include "server/session/guarantee.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"
#include "server/session/owner.h"
#include "server/session/session.h"
#include "server/session/unpinning.h"
#include "server/session/window.h"
#include "server/standby/swap.h"
#include "server/standby/warm.h"
#include "server/transfer.h"
#include "server/worker/worker.h"

#define LOOK_MS UINT64_C(5)
/* Time limits: of the end of an earlier stay, and of executors, which may have to start. */
#define STAY_US	  UINT64_C(5000000)
#define MAKING_US UINT64_C(60000000)
/* Replies that wait. */
#define QUEUE_MAX  8u
#define TEXT_BYTES 400u

enum arrive_step { ARRIVE_LISTENS, ARRIVE_LOOKS, ARRIVE_GATHERS, ARRIVE_MAKES, ARRIVE_READY };

struct arrival {
	struct daemon *daemon;
	struct connection *connection;
	uint32_t from;
	enum arrive_step step;
	struct transfer transfer;
	struct handover handover; /* the latest bundle */
	uint32_t *keys;		  /* of descriptors, from 1 on; [0] is 0 */
	uint32_t key_count;
	struct domain *domain;	 /* for the session; valid only within a check */
	uint32_t domain_number;	 /* of that; 0: none yet */
	struct session *session; /* MAKES, READY: a reference */
	struct worker *executor; /* makes the session; NULL: none yet */
	bool is_asked;		 /* the executor, for the free memory */
	unsigned refs;		 /* of the daemon, and of an answer under way */
	struct timer *look;
	uint64_t until_us, begun_us;
};

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

/* A domain for the session alone. */
static void leave_domain(const struct arrival *arrival)
{
	struct domain *domain = daemon_find_domain(arrival->daemon, arrival->domain_number);

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

static void end(struct arrival *arrival)
{
	struct session *session = arrival->session;

	arrival->daemon->arrival = NULL;
	arrival->session = NULL;
	arrival->connection = connection_shutdown(arrival->connection);
	arrival->look = timer_free(arrival->look);
	handover_free(&arrival->handover);
	/* Records first: no record names a descriptor after the release. */
	if (session && session->state == SESSION_ELSEWHERE)
		session_leave(session);
	return_files(arrival);
	leave_domain(arrival);
	session_unref(session);
	unref(arrival);
}

/* The giver keeps the session. */
static void fail(struct arrival *arrival, int32_t code, const char *text)
{
	log_debug("the session from device %u does not come: %s", arrival->from, text);
	if (arrival->transfer.number)
		transfer_close(arrival->daemon->heritage->transfers, &arrival->transfer);
	reply(arrival, code, text);
	end(arrival);
}

/*
 * May it come?
 */

/* The session's head in the bundle. */
static void copy_head(const struct handover *handover, struct session *ret_session)
{
	memset(ret_session, 0, sizeof(*ret_session));
	memcpy(ret_session, handover->head.session.head, sizeof(handover->head.session.head));
	ret_session->subject.executable[SUBJECT_PATH_MAX - 1] = '\0';
	ret_session->subject.cgroup[SUBJECT_PATH_MAX - 1] = '\0';
	ret_session->identity[SESSION_IDENTITY_MAX - 1] = '\0';
}

static bool is_window_free(const struct window_set *set, uint64_t address, uint64_t bytes)
{
	return address == WINDOW_NONE ||
	       (!window_users(set, address) && window_is_possible(set, address, bytes));
}

static bool are_windows_free(
	const struct handover *handover, const struct session *head, const struct window_set *set)
{
	bool are_free = is_window_free(set, head->window, WINDOW_BYTES);

	for (uint64_t i = 0; i < handover->head.record_count; i++) {
		const struct kept_holding *kept = handover->records[i].kept;

		if (kept->type == WIRE_RESERVE_WINDOW)
			are_free &= is_window_free(set, kept->address, kept->bytes);
	}
	return are_free;
}

/* Device memory of all programs here. */
static uint64_t bytes_in_use(const struct daemon *daemon)
{
	const struct session *session;
	uint64_t bytes = 0;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		bytes += session->holdings.owned_bytes;
	return bytes;
}

/* Limits of this device. @text: TEXT_BYTES. Return: NULL, or the limit that forbids the session */
static const char *limit(const struct arrival *arrival, const struct session *head, char *text)
{
	const struct daemon *daemon = arrival->daemon;
	const uint64_t bytes = arrival->handover.head.device_bytes;
	const uint64_t all = guarantee_device_bytes(daemon);
	struct terms terms;
	uint64_t used;

	terms_find(&daemon->rules, &head->subject, &terms);
	terms_tighten(&terms, head->memory_wish, head->sm_wish, head->class_wish);
	/* Others make room for such a program. */
	used = terms.memory_policy == CONFIG_MEMORY_POLICY_SWAP ? 0 : bytes_in_use(daemon);
	if (terms.memory_limit && bytes > terms.memory_limit)
		snprintf(text, TEXT_BYTES,
			"it has more device memory, %s, than it may have there (memory_limit)",
			BYTES_OF(bytes));
	else if (bytes > all || used > all - bytes)
		snprintf(text, TEXT_BYTES, "its device memory, %s, does not fit there beside that of others",
			BYTES_OF(bytes));
	else if (bytes > swap_room(daemon))
		snprintf(text, TEXT_BYTES,
			"there, swap_host_bytes has no room for its device memory on the way");
	else
		return terms_miss(&daemon->rules, &head->subject);
	return text;
}

/* Finds arrival->domain. Return: NULL, or why the program can have no session here */
static const char *find_domain(struct arrival *arrival, const struct session *head, int32_t *ret_code)
{
	struct daemon *daemon = arrival->daemon;
	const struct session_peer peer = {
		.uid = head->uid, .owner = owner_of(head->uid), .pid = head->pid, .subject = head->subject};
	const char *text = quota_refuses_session(daemon, &peer, ret_code), *alone = NULL;
	struct domain_refusal refusal;
	struct terms terms;

	if (text)
		return text;
	arrival->domain = daemon_find_domain(daemon, arrival->domain_number);
	if (arrival->domain && arrival->domain->life == DOMAIN_OPEN)
		return NULL;
	terms_find(&daemon->rules, &head->subject, &terms);
	if (terms.isolation == CONFIG_ISOLATION_CLIENT)
		alone = "isolation = client";
	else if (fault_history_is_quarantined(daemon, head->uid, head->identity))
		alone = "it has had as many faults as quarantine_faults allows (frmpsctl quarantine)";
	arrival->domain = domain_of(daemon, &arrival->handover.head.identity, alone,
		terms.isolation == CONFIG_ISOLATION_CLIENT, &refusal);
	arrival->domain_number = arrival->domain ? arrival->domain->number : 0;
	if (arrival->domain)
		return NULL;
	*ret_code = refusal.code;
	return refusal.text;
}

/* @text: TEXT_BYTES. Return: NULL, or why the session cannot come */
static const char *refuses(struct arrival *arrival, int32_t *ret_code, char *text)
{
	const struct handover_head *head = &arrival->handover.head;
	struct daemon *daemon = arrival->daemon;
	static struct session session; /* the head alone, of one arrival at a time */
	const char *why;

	*ret_code = CUDA_ERROR_NOT_SUPPORTED;
	if (!daemon->device_known || daemon->phase >= DAEMON_STOPS || daemon_has_failed(daemon) ||
		!daemon_offers_device(daemon))
		return "the other device is not served now: it starts, is drained, or has failed";
	if (head->capability != daemon_capability(daemon))
		return "the other device has another compute capability: the program's code may not run "
		       "there";
	if (*head->partition && !partition_find(daemon, head->partition))
		return "the other device has no SM partition of the name that the program's has";
	copy_head(&arrival->handover, &session);
	why = limit(arrival, &session, text);
	why = why ? why : find_domain(arrival, &session, ret_code);
	if (!why && !are_windows_free(&arrival->handover, &session, &arrival->domain->windows))
		why = "its addresses are another program's on the other device, or taken there for its own "
		      "pinned memory";
	return why;
}

static bool is_here(const struct arrival *arrival)
{
	return daemon_find_session(arrival->daemon, arrival->handover.head.number) ||
	       unpinning_is_of(arrival->daemon, arrival->handover.head.number);
}

static void look_for_room(struct arrival *arrival)
{
	char text[TEXT_BYTES];
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
	reply(arrival, CUDA_SUCCESS, "");
}

/*
 * It comes
 */

/* The session's record as one of this daemon. */
static void take_record(struct arrival *arrival, const struct domain *domain)
{
	struct handover_head *head = &arrival->handover.head;
	const struct partition *partition =
		*head->partition ? partition_find(arrival->daemon, head->partition) : NULL;
	static struct session session; /* the head alone, of one arrival at a time */

	copy_head(&arrival->handover, &session);
	session.partition = partition ? partition->number : 0;
	session.state = SESSION_ELSEWHERE;
	session.is_detached = true;
	memcpy(head->session.head, &session, sizeof(head->session.head));
	head->session.kept.domain = domain->number;
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
	adoption_read_session(&adoption, store_put(store, NULL, RECORD_SESSION, handover->head.number,
						 &handover->head.session, sizeof(handover->head.session)));
	for (uint64_t i = 0; i < handover->head.record_count; i++)
		adoption_read_holding(
			&adoption, store_put(store, NULL, RECORD_HOLDING, store_serial(store),
					   handover->records[i].kept, handover->records[i].bytes));
	inventory_deinit(&adoption.inventory);
}

/* Tokens name the device that has the memory: its own, or another one that has lent it. */
static void rename_chunks(struct session *session)
{
	const unsigned device = session->daemon->heritage->number;
	struct holding *entry;

	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		if (entry->chunk && !entry->chunk->lease && WIRE_TOKEN_DEVICE(entry->chunk->token) != device)
			chunk_rename(entry->chunk);
	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		if (entry->chunk)
			holdings_save(&session->holdings, entry);
}

static void make(struct arrival *arrival)
{
	struct daemon *daemon = arrival->daemon;
	struct session *session;
	char text[TEXT_BYTES];
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
	take_record(arrival, arrival->domain);
	adopt_all(arrival);
	session = daemon_find_session(daemon, arrival->handover.head.number);
	log_bug_on(!session);
	arrival->session = session_ref(session);
	if (session->given_up) {
		session->given_up = false;
		session->state = SESSION_ELSEWHERE;
		fail(arrival, CUDA_ERROR_UNKNOWN, "its records cannot be read there (the log says why)");
		return;
	}
	rename_chunks(session);
	session->transfer = arrival->transfer;
	session_changed(session);
	handover_free(&arrival->handover);
	enter(arrival, ARRIVE_MAKES, MAKING_US);
}

/* warm_start() tells executors that start from now on. */
static void tell(struct arrival *arrival, struct worker *executor)
{
	struct session *session = arrival->session;
	struct worker *worker;

	arrival->executor = executor;
	TAILQ_FOREACH (worker, &session->domain->workers, link)
		if (worker == executor || worker->state == WORKER_WARMING || worker->state == WORKER_WARM)
			warm_tell(worker, session);
}

static void on_free_memory(
	void *context, struct worker *worker, const struct wire_reply *answer, struct packet *packet)
{
	struct arrival *arrival = context;
	const struct session *session = arrival->session;
	uint64_t room = session ? guarantee_room(session) : 0;

	(void)packet;
	if (session && worker == arrival->executor && answer && !answer->code && answer->values.count) {
		room = answer->values.at[0] < room ? answer->values.at[0] : room;
		if (!session->drained || session->terms.memory_policy == CONFIG_MEMORY_POLICY_SWAP ||
			session->holdings.memory_bytes <= room) {
			enter(arrival, ARRIVE_READY, MAKING_US);
			reply(arrival, CUDA_SUCCESS, "");
		} else {
			fail(arrival, CUDA_ERROR_OUT_OF_MEMORY,
				"its device memory does not fit there beside what others have at this "
				"moment");
		}
	} else if (session) {
		fail(arrival, CUDA_ERROR_NOT_READY,
			"the other device's executor cannot tell its free memory");
	}
	unref(arrival);
}

static void ask_for_memory(struct arrival *arrival)
{
	struct wire_message message = {.type = WIRE_QUERY_MEMORY, .session = arrival->session->number};

	arrival->is_asked = true;
	arrival->refs++;
	worker_request(arrival->executor, &message, NULL, 0, on_free_memory, arrival);
}

/* @text: TEXT_BYTES. Return: NULL, or why the session cannot be made here */
static const char *trouble(const struct arrival *arrival, char *text)
{
	const struct session *session = arrival->session;
	const struct domain *domain = session->domain;

	if (session->state != SESSION_ELSEWHERE || domain->life == DOMAIN_RETIRES)
		return "the other device is not served any more";
	if (arrival->executor && arrival->executor != domain_serving(domain))
		return "the other device's executor is being replaced";
	if (arrival->executor && worker_is_immovable(arrival->executor, session->number))
		return "something of it comes out differently on the other device (the log says what)";
	if (!arrival->executor && domain->start_failures >= DOMAIN_START_FAILURES)
		return domain->start_error;
	return guarantee_refuses(session, text, TEXT_BYTES) ? text : NULL;
}

static void look_at_making(struct arrival *arrival)
{
	struct worker *serving = domain_serving(arrival->session->domain);
	char text[TEXT_BYTES];
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
	if (!arrival->executor && serving)
		tell(arrival, serving);
	else if (arrival->executor && !arrival->executor->mirrors && !arrival->is_asked)
		ask_for_memory(arrival);
}

/* From transfer_take() on this device has the session, whatever happens. */
static void take(struct arrival *arrival)
{
	struct session *session = arrival->session;
	struct domain *domain = session->domain;
	const struct event_about about = events_about(session);
	char text[TEXT_BYTES];
	const char *why = trouble(arrival, text);

	if (why) {
		fail(arrival, CUDA_ERROR_NOT_READY, why);
		return;
	}
	if (!transfer_take(arrival->daemon->heritage->transfers, &arrival->transfer)) {
		fail(arrival, CUDA_ERROR_TIMEOUT, "it came too late");
		return;
	}
	if (!session_take_over(session)) {
		session_end_given_up(session);
	} else {
		depart_look_into(domain);
		session_set_terms(session);
		session_read_next(session);
		sink_request(session);
		compiling_await(session);
		swap_adopt(session);
		events_note(arrival->daemon, EVENT_move, LOG_LEVEL_INFO, &about,
			"session %llu (process %d, %s) has come from device %u, %.0f ms after its question",
			(unsigned long long)session->number, (int)session->pid, session->program,
			arrival->from, (double)(timer_now_us() - arrival->begun_us) / 1000.0);
	}
	reply(arrival, CUDA_SUCCESS, "");
	end(arrival);
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
		fail(arrival, CUDA_ERROR_INVALID_VALUE, "its records cannot be read there");
	return !r;
}

static void begin_gathering(struct arrival *arrival, const struct wire_handover *what)
{
	arrival->transfer = (struct transfer){
		.from = arrival->from, .to = arrival->daemon->heritage->number, .number = what->transfer};
	arrival->keys = calloc((size_t)arrival->handover.head.files + 1, sizeof(*arrival->keys));
	arrival->step = ARRIVE_GATHERS;
	if (!arrival->keys || what->files != arrival->handover.head.files || !what->transfer)
		fail(arrival, CUDA_ERROR_INVALID_VALUE, "its descriptors cannot be taken there");
}

static void gather(struct arrival *arrival, struct packet *packet)
{
	const uint32_t files = arrival->handover.head.files;

	for (unsigned i = 0; i < packet->fd_count; i++) {
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
	log_bug_on(!arrival->look);
	return arrival;
}

void arrive_begin(struct daemon *daemon, struct connection *connection, const struct wire_message *message)
{
	const struct wire_handover *what = &message->handover;
	const struct wire_handover later = {.step = HANDOVER_REPLY,
		.code = CUDA_ERROR_NOT_READY,
		.text = "another program is just coming to the other device; try again"};

	if (!is_ours(daemon, what)) {
		connection_shutdown(connection);
		return;
	}
	/* The same giver begins anew. */
	if (daemon->arrival && daemon->arrival->from == what->device)
		fail(daemon->arrival, CUDA_ERROR_NOT_READY, "its giver has begun anew");
	if (daemon->arrival) {
		handover_say(connection, &later, NULL);
		connection_shutdown(connection);
		return;
	}
	connection_trust(connection);
	daemon->arrival = arrival_new(daemon, connection, what->device);
	connection_set_owner(connection, on_message, on_closed, daemon->arrival);
	reply(daemon->arrival, CUDA_SUCCESS, "");
}

void arrive_deinit(struct daemon *daemon)
{
	if (daemon->arrival)
		fail(daemon->arrival, CUDA_ERROR_NOT_READY, "the other device is not served any more");
}
