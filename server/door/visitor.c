// Visitors. See visitor.h. The connection goes on to the session or operator that the first message
// makes.

#include "server/door/visitor.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/life.h"
#include "server/identity.h"
#include "server/loop/connection.h"
#include "server/loop/discard.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/control/caller.h"
#include "server/session/domain.h"
#include "server/door/guests.h"
#include "server/daemon/depart.h"
#include "server/daemon/device_drain.h"
#include "server/daemon/handover.h"
#include "server/daemon/handshake.h"
#include "server/daemon/lending.h"
#include "server/session/events.h"
#include "server/session/message.h"
#include "server/role.h"
#include "server/session/owner.h"
#include "server/daemon/quota.h"
#include "server/session/subject.h"
#include "server/session/userlog.h"
#include "server/worker/vitals.h"

#define VISITOR_PATIENCE_MS 10000u
#define VISITORS_PER_USER   64u
/* Not in the same round. */
#define NEXT_TURN_MS 1u

static const char stops[] = "the service stops, and waits only for the programs that it has";

struct visitor *visitor_free(struct visitor *visitor)
{
	if (!visitor)
		return NULL;
	connection_shutdown(visitor->connection);
	timer_free(visitor->timer);
	free(visitor->hello);
	TAILQ_REMOVE(&visitor->daemon->visitors, visitor, link);
	free(visitor);
	return NULL;
}

static void refuse(struct visitor *visitor, int32_t code, const char *text)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.code = code, .text = text}};
	const struct event_about about = {.uid = visitor->peer.uid, .pid = visitor->peer.pid};

	events_note(visitor->daemon, EVENT_refused, LOG_LEVEL_WARNING, &about,
		"process %d of uid %lld is refused: %s", (int)visitor->peer.pid, (long long)visitor->peer.uid,
		text);
	visitor->daemon->counters.sessions_refused++;
	connection_send(visitor->connection, &message, NULL, 0);
	visitor_free(visitor);
}

/* Return: no text: its program may have a session */
static struct domain_refusal look_for_refusal(struct visitor *visitor)
{
	struct daemon *daemon = visitor->daemon;
	int32_t code = CUDA_ERROR_MPS_SERVER_NOT_READY;
	struct terms terms;
	const char *text;

	if (daemon_has_failed(daemon))
		return (struct domain_refusal){daemon->health.code, daemon->health.reason};
	if (!daemon_offers_device(daemon))
		return (struct domain_refusal){code, DEVICE_DRAIN_REFUSAL};
	if (visitor->identity.group_count > IDENTITY_GROUPS_MAX)
		return (struct domain_refusal){CUDA_ERROR_NOT_PERMITTED,
			"it is in more groups than an executor of the host backend can take on (64)"};
	text = daemon->phase >= DAEMON_STOPS ? stops
					     : quota_refuses_session(daemon, &visitor->peer, 0, &code);
	if (text)
		return (struct domain_refusal){code, text};
	/* Memory that any program of a user keeps open counts for the user, whichever program comes
	 * now. */
	terms_of_user(&daemon->rules, visitor->peer.uid, &terms);
	if (!quota_allows_user(daemon, visitor->peer.owner, terms.pinned_limit))
		return (struct domain_refusal){CUDA_ERROR_OUT_OF_MEMORY,
			"its user's programs keep open too much memory of the service that was freed "
			"(pinned_limit)"};
	return (struct domain_refusal){0};
}

/* Finds the domain, and checks its room. Return: NULL if the visitor was refused. */
static struct domain *find_room(struct visitor *visitor, const struct wire_hello *hello)
{
	struct domain_refusal refusal = look_for_refusal(visitor);
	char identity[SESSION_IDENTITY_MAX];
	struct domain *domain = NULL;

	handshake_identity(identity, hello);
	if (!refusal.text)
		domain = domain_for(visitor->daemon, &visitor->identity, &visitor->peer.subject, identity,
			NULL, &refusal);
	if (domain && (domain->active || domain->start_failures < DOMAIN_START_FAILURES))
		return domain;
	if (domain)
		refusal = (struct domain_refusal){CUDA_ERROR_MPS_SERVER_NOT_READY, domain->start_error};
	refuse(visitor, refusal.code, refusal.text);
	return NULL;
}

/* The program asks what there is: it gets no session, and no executor starts for it. */
static void describe(struct visitor *visitor, const struct wire_hello *hello)
{
	if (visitor->daemon->phase >= DAEMON_STOPS || !visitor->daemon->device_known) {
		refuse(visitor, CUDA_ERROR_MPS_SERVER_NOT_READY,
			visitor->daemon->phase >= DAEMON_STOPS ? stops : "the device is not known yet");
		return;
	}
	handshake_describe(visitor->daemon, visitor->connection, &visitor->peer.subject, hello);
	visitor_free(visitor);
}

static void greet_now(struct visitor *visitor, const struct wire_hello *hello)
{
	struct domain *domain;
	const char *text;
	int32_t code;

	if (handshake_check(hello, &code, &text)) {
		refuse(visitor, code, text);
		return;
	}
	subject_read(visitor->peer.uid, visitor->peer.pid, &visitor->peer.subject);
	/* Otherwise the service would serve the socket's present owner on the terms of nobody, or
	 * on the terms of the process that has the number now. */
	if (visitor->started != vitals_start(visitor->peer.pid) ||
		(visitor->peer.pid > 0 && kill(visitor->peer.pid, 0) < 0 && errno == ESRCH)) {
		refuse(visitor, CUDA_ERROR_NOT_PERMITTED, "the process that connected has ended");
		return;
	}
	text = terms_miss(&visitor->daemon->rules, &visitor->peer.subject);
	if (text) {
		refuse(visitor, CUDA_ERROR_NOT_PERMITTED, text);
		return;
	}
	if (handshake_wants_description(visitor->daemon, hello)) {
		describe(visitor, hello);
		return;
	}
	domain = find_room(visitor, hello);
	if (!domain)
		return;
	if (session_new(domain, visitor->connection, &visitor->peer, hello, &code, &text)) {
		refuse(visitor, code, text);
		return;
	}
	visitor->connection = NULL;
	visitor_free(visitor);
}

/*
 * Turns: a session costs the loop more than most requests, and many programs may connect at once. A
 * visitor that has sent Hello waits; each round of the loop greets one visitor, owners in turn.
 */

static void greet(struct visitor *visitor)
{
	struct wire_message message;
	uint8_t *hello = visitor->hello;

	/* The same bytes were decoded a moment ago. */
	log_bug_on(wire_decode(hello, visitor->hello_bytes, &message));
	visitor->hello = NULL;
	connection_resume(visitor->connection);
	greet_now(visitor, &message.hello);
	free(hello);
}

static bool is_before(const struct daemon *daemon, uid_t owner, uid_t other)
{
	bool behind = owner > daemon->greeted, other_behind = other > daemon->greeted;

	return behind == other_behind ? owner < other : behind;
}

/* The oldest visitor of an owner. */
static struct visitor *find_next(const struct daemon *daemon)
{
	struct visitor *visitor, *next = NULL;

	TAILQ_FOREACH (visitor, &daemon->visitors, link)
		if (visitor->hello && (!visitor->asks || daemon->device_known) &&
			(!next || is_before(daemon, visitor->peer.owner, next->peer.owner)))
			next = visitor;
	return next;
}

void visitor_take_turn(void *context)
{
	struct daemon *daemon = context;
	struct visitor *next = find_next(daemon);

	if (!next)
		return;
	daemon->greeted = next->peer.owner;
	greet(next);
	if (find_next(daemon))
		timer_start(daemon->greeting, NEXT_TURN_MS);
}

static void await_turn(struct visitor *visitor, const struct wire_hello *hello, const struct packet *packet)
{
	visitor->asks = handshake_wants_description(visitor->daemon, hello);
	visitor->hello = malloc(packet->length);
	if (!visitor->hello) {
		visitor_free(visitor);
		return;
	}
	memcpy(visitor->hello, packet->bytes, packet->length);
	visitor->hello_bytes = packet->length;
	timer_stop(visitor->timer);
	connection_pause(visitor->connection);
	if (!timer_running(visitor->daemon->greeting))
		timer_start(visitor->daemon->greeting, 0);
}

bool visitor_hurry(struct daemon *daemon, uid_t owner)
{
	struct visitor *visitor;

	TAILQ_FOREACH (visitor, &daemon->visitors, link)
		if (visitor->hello && visitor->peer.owner == owner) {
			greet(visitor);
			return true;
		}
	return false;
}

static void hand_over(struct visitor *visitor, const struct wire_message *message)
{
	static const struct wire_handover refusal = {.step = HANDOVER_REPLY,
		.code = CUDA_ERROR_NOT_PERMITTED,
		.text = "only root and the service's own user may do that"};
	const uint32_t step = message->handover.step;
	struct connection *connection = visitor->connection;

	if ((step == HANDOVER_SAVE || step == HANDOVER_RESTORE) && !quota_is_operator(visitor->peer.uid)) {
		handover_say(connection, &refusal, NULL);
		connection_shutdown(connection);
	} else if (step == HANDOVER_SAVE) {
		depart_save(visitor->daemon, connection, message->session);
	} else {
		visitor->daemon->arrive(visitor->daemon, connection, message);
	}
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct visitor *visitor = context;

	if (message->type == WIRE_HELLO) {
		await_turn(visitor, &message->hello, packet);
		return;
	}
	if (!message_allowed(message->type, FROM_STRANGER)) {
		userlog_event(visitor->daemon, visitor->peer.uid, USERLOG_stranger, LOG_LEVEL_WARNING,
			"process %d of uid %lld is sent away: its first message was %s",
			(int)visitor->peer.pid, (long long)visitor->peer.uid, wire_type_name(message->type));
	} else if (message->type == WIRE_LEND_MEMORY) {
		lending_lend(visitor->daemon, visitor->connection, visitor->peer.uid, message);
	} else {
		if (message->type == WIRE_HANDOVER)
			hand_over(visitor, message);
		else
			caller_new(visitor->daemon, visitor->connection, visitor->peer.uid, visitor->peer.pid,
				message);
		visitor->connection = NULL;
	}
	visitor_free(visitor);
}

static void on_closed(void *context, const char *reason)
{
	(void)reason;
	visitor_free(context);
}

static void on_timer(void *context)
{
	visitor_free(context);
}

unsigned visitor_count(const struct daemon *daemon, uid_t owner)
{
	const struct visitor *visitor;
	unsigned count = 0;

	TAILQ_FOREACH (visitor, &daemon->visitors, link)
		count += visitor->peer.owner == owner;
	return count;
}

void visitor_new(struct daemon *daemon, int socket)
{
	struct ucred credentials;
	socklen_t length = sizeof(credentials);
	struct visitor *visitor;

	owner_refresh();
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0 ||
		(visitor_count(daemon, owner_of(credentials.uid)) >= VISITORS_PER_USER &&
			!visitor_hurry(daemon, owner_of(credentials.uid))) ||
		!(visitor = calloc(1, sizeof(*visitor)))) {
		discard_socket(socket);
		return;
	}
	guests_make_room(daemon);
	visitor->daemon = daemon;
	visitor->peer = (struct session_peer){
		.uid = credentials.uid, .owner = owner_of(credentials.uid), .pid = credentials.pid};
	visitor->started = vitals_start(credentials.pid);
	visitor->identity = (struct identity){.uid = credentials.uid};
	if (daemon->heritage->run_as == RUN_AS_PROGRAM)
		identity_of_peer(&credentials, socket, &visitor->identity);
	TAILQ_INSERT_TAIL(&daemon->visitors, visitor, link);
	visitor->connection = connection_new(
		daemon->loop, CONNECTION_OUTSIDE, socket, SESSION_QUEUE_MAX, on_message, on_closed, visitor);
	visitor->timer = timer_new(daemon->loop, on_timer, visitor);
	if (!visitor->connection)
		visitor_free(visitor);
	else
		timer_start(visitor->timer, VISITOR_PATIENCE_MS);
}
