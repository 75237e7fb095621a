// Operators. See caller.h. A document that does not fit a packet travels in a memfd beside an empty
// document.

#include "server/control/caller.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/control/checkpoint.h"
#include "protocol/uuid.h"
#include "server/control/document.h"
#include "server/control/devices.h"
#include "server/control/events.h"
#include "server/control/mps.h"
#include "server/control/quarantine.h"
#include "server/control/reload.h"
#include "server/control/seen.h"
#include "server/control/status.h"
#include "server/control/turn.h"
#include "server/daemon/depart.h"
#include "server/daemon/device_drain.h"
#include "server/daemon/life.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/message.h"
#include "server/session/fault_history.h"
#include "server/daemon/quota.h"
#include "server/session/session.h"
#include "server/session/userlog.h"
#include "server/standby/move.h"
#include "server/version.h"

/* Longest document that is sent within the packet. */
#define JSON_MAX (WIRE_PACKET_MAX - 1024)
/* Longest reason of a refusal, bytes with the NUL: it may name several sessions. */
#define REASON_MAX 1200u
/* Time limit for an executor that is started for a single session. */
#define ISOLATE_MS 30000u

/* The last step for an operator: an operator without an answer is disconnected. */
static void send_answer(
	struct caller *caller, uint64_t id, int32_t code, const char *json, struct shared_fd *fd)
{
	struct wire_message message = {
		.type = WIRE_ADMIN_REPLY, .id = id, .admin_reply = {.code = code, .json = json}};
	int r = connection_send(caller->connection, &message, &fd, fd ? 1 : 0);

	if (!r || r == CONNECTION_E_CLOSED)
		return;
	userlog_event(caller->daemon, caller->guest.uid, USERLOG_operator, LOG_LEVEL_WARNING,
		"an operator of uid %lld is sent away: his answer cannot be sent: %s",
		(long long)caller->guest.uid, r < 0 ? strerror(-r) : "too much of it");
	caller_free(caller);
}

/* @json: taken. @code: of an answer for which there is memory */
static void say(struct caller *caller, uint64_t id, CUresult code, json_t *json)
{
	char *text = document_text(json);

	send_answer(caller, id, (int32_t)(text ? code : CUDA_ERROR_OUT_OF_MEMORY), text ? text : "", NULL);
	free(text);
}

static void refuse(struct caller *caller, CUresult code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The reason may repeat the operator's text. */
static void refuse(struct caller *caller, CUresult code, const char *format, ...)
{
	char reason[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	caller_refuse(caller, caller->request.id, code, reason);
}

void caller_say(struct caller *caller, uint64_t id, const char *key, int64_t value)
{
	say(caller, id, CUDA_SUCCESS, key ? json_pack("{sI}", key, (json_int_t)value) : json_object());
}

void caller_refuse(struct caller *caller, uint64_t id, int32_t code, const char *reason)
{
	char copy[REASON_MAX];

	snprintf(copy, sizeof(copy), "%s", reason);
	log_clean(copy);
	say(caller, id, (CUresult)code, json_pack("{ss}", "reason", copy));
}

/* Until the operator reads a document, its file is memory of the service. */
static bool may_have_file(struct caller *caller)
{
	if (connection_is_read(caller->connection))
		caller->files = 0;
	if (caller->files == OPERATOR_FILES_MAX)
		return false;
	caller->files++;
	return true;
}

static struct shared_fd *make_document(const char *json, size_t length)
{
	int fd = memfd_create("frmps-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t written = 0;

	while (fd >= 0 && written < length) {
		ssize_t n = write(fd, json + written, length - written);

		if (n < 0 && errno != EINTR) {
			close(fd);
			return NULL;
		}
		written += n > 0 ? (size_t)n : 0;
	}
	if (fd >= 0)
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	return shared_fd_new(fd);
}

/* Tells tools how many devices the service has, and the place of this device among the devices. */
static void answer_ping(struct caller *caller)
{
	const struct daemon *daemon = caller->daemon;
	char uuid[UUID_TEXT];

	daemon_uuid(daemon, uuid);
	say(caller, caller->request.id, CUDA_SUCCESS,
		json_pack("{si si ss}", "number", (int)daemon->heritage->number, "devices",
			(int)daemon_devices(daemon), "uuid", uuid));
}

/* A document for several operators; the file is made for the first that needs a file. */
struct document {
	char *json; /* NULL: no memory */
	size_t length;
	struct shared_fd *fd;
};

static void send_document(struct caller *caller, struct document *document)
{
	uint64_t id = caller->request.id;
	bool is_long = document->length > JSON_MAX, has_file = is_long && may_have_file(caller);

	if (has_file && !document->fd)
		document->fd = make_document(document->json, document->length);
	if (!document->json || (is_long && (!has_file || !document->fd)))
		send_answer(caller, id, CUDA_ERROR_OUT_OF_MEMORY, "", NULL);
	else
		send_answer(caller, id, CUDA_SUCCESS, is_long ? "" : document->json, document->fd);
}

static void answer_document(struct caller *caller, char *json)
{
	struct document document = {.json = json, .length = json ? strlen(json) : 0};

	send_document(caller, &document);
	shared_fd_unref(document.fd);
	free(json);
}

/* All operators of a user that wait for this answer get the same. */
static void answer_status(struct caller *caller)
{
	struct daemon *daemon = caller->daemon;
	const uid_t uid = caller->guest.uid;
	struct document document = {.json = status_json(daemon, uid)};

	document.length = document.json ? strlen(document.json) : 0;
	for (; caller; caller = turn_take(daemon, uid, "status"))
		send_document(caller, &document);
	shared_fd_unref(document.fd);
	free(document.json);
}

static void answer_seen(struct caller *caller)
{
	char *json = caller->daemon->device_known
			     ? seen_json(caller->daemon, caller->guest.uid, caller->guest.pid)
			     : NULL;

	if (caller->daemon->device_known)
		answer_document(caller, json);
	else
		refuse(caller, CUDA_ERROR_MPS_SERVER_NOT_READY, "the device is not known yet");
}

static struct session *find_session(const struct daemon *daemon, const char *number)
{
	struct session *session;
	char text[24];

	TAILQ_FOREACH (session, &daemon->sessions, link) {
		if (session_is_elsewhere(session))
			continue;
		snprintf(text, sizeof(text), "%llu", (unsigned long long)session->number);
		if (!strcmp(text, number))
			return session;
	}
	return NULL;
}

bool caller_may_command(const struct caller *caller, const struct session *session)
{
	return quota_is_operator(caller->guest.uid) || caller->guest.uid == session->uid;
}

void caller_settle(void *context, int32_t code, const char *text)
{
	struct caller *caller = context;
	uint64_t id = caller->awaited_id;

	caller->awaited_id = 0;
	if (code)
		caller_refuse(caller, id, code, text);
	else
		caller_say(caller, id, NULL, 0);
}

static void on_moved(void *context, int32_t code, const char *text)
{
	struct caller *caller = context;
	uint64_t id = caller->awaited_id;

	caller->awaited_id = 0;
	say(caller, id, CUDA_SUCCESS, json_pack("{sb ss}", "moved", !code, "reason", text));
}

/* Finds the session that the first argument names, if the operator may command that session.
 * Return: NULL after an answer with the reason */
static struct session *find_commanded(struct caller *caller)
{
	const char *number = caller->request.arguments[0];
	struct session *session = find_session(caller->daemon, number);

	if (session && caller_may_command(caller, session))
		return session;
	if (session)
		refuse(caller, CUDA_ERROR_NOT_PERMITTED, "session %s is another user's", number);
	else
		refuse(caller, CUDA_ERROR_NOT_FOUND, "there is no session %s (frmpsctl status lists them)",
			number);
	return NULL;
}

static void answer_isolate(struct caller *caller)
{
	const struct caller_request *request = &caller->request;
	struct session *session;
	const char *obstacle;

	if (request->argument_count != 1 || caller->awaited_id || !request->id) {
		refuse(caller, CUDA_ERROR_INVALID_VALUE, "isolate takes one session at a time");
		return;
	}
	session = find_commanded(caller);
	if (!session)
		return;
	caller->awaited_id = request->id;
	obstacle = move_begin(
		session, MOVE_ORDER, "an operator has asked for this", ISOLATE_MS, on_moved, caller);
	if (obstacle)
		on_moved(caller, CUDA_ERROR_NOT_SUPPORTED, obstacle);
}

struct session *caller_find_living(struct caller *caller, bool has_word)
{
	const struct caller_request *request = &caller->request;
	struct session *session;

	if (request->argument_count != (has_word ? 2 : 1)) {
		refuse(caller, CUDA_ERROR_INVALID_VALUE, "%s takes one session", request->command);
		return NULL;
	}
	session = find_commanded(caller);
	if (session && session->state == SESSION_CLOSING) {
		refuse(caller, CUDA_ERROR_NOT_PERMITTED,
			"session %s ends already: its work has orphan_seconds at most",
			request->arguments[0]);
		return NULL;
	}
	return session;
}

static void answer_terminate(struct caller *caller)
{
	struct session *session = caller_find_living(caller, false);

	if (!session)
		return;
	session_terminate(session, "an operator has terminated it");
	send_answer(caller, caller->request.id, CUDA_SUCCESS, "{}", NULL);
}

static void say_reloaded(struct caller *caller, uint64_t id, bool reloaded, const char *text)
{
	say(caller, id, reloaded ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
		json_pack("{ss}", reloaded ? "restart" : "reason", text));
}

static void answer_reload(struct caller *caller)
{
	const struct caller_request *request = &caller->request;
	const char *obstacle;

	if (request->argument_count) {
		refuse(caller, CUDA_ERROR_INVALID_VALUE, "reload takes no arguments");
	} else if (!quota_is_operator(caller->guest.uid)) {
		refuse(caller, CUDA_ERROR_NOT_PERMITTED, "only root and the service's own user may reload");
	} else {
		obstacle = reload_begin(caller, request->id, say_reloaded);
		if (obstacle)
			say_reloaded(caller, request->id, false, obstacle);
	}
}

static void answer_recovery(struct caller *caller)
{
	const struct caller_request *request = &caller->request;
	bool replay = request->argument_count == 2 && !strcmp(request->arguments[1], "replay");
	struct session *session;

	if (request->argument_count != 2 || (!replay && strcmp(request->arguments[1], "fail"))) {
		refuse(caller, CUDA_ERROR_INVALID_VALUE, "recovery takes a session, and fail or replay");
		return;
	}
	session = find_commanded(caller);
	if (!session)
		return;
	session_set_recovery(session, replay);
	send_answer(caller, request->id, CUDA_SUCCESS, "{}", NULL);
}

static void lift(struct caller *caller)
{
	const struct caller_request *request = &caller->request;
	struct fault_history *history;
	char *end;

	if (request->argument_count != 2 || strcmp(request->arguments[0], "lift")) {
		refuse(caller, CUDA_ERROR_INVALID_VALUE, "quarantine takes nothing, or lift and a number");
		return;
	}
	history = fault_history_find(caller->daemon, strtoull(request->arguments[1], &end, 10));
	if (!history || *end) {
		refuse(caller, CUDA_ERROR_NOT_FOUND,
			"there is no program number %s (frmpsctl quarantine lists them)",
			request->arguments[1]);
	} else if (!quota_is_operator(caller->guest.uid) && caller->guest.uid != history->uid) {
		refuse(caller, CUDA_ERROR_NOT_PERMITTED, "program number %s is another user's",
			request->arguments[1]);
	} else {
		fault_history_lift(caller->daemon, history);
		send_answer(caller, request->id, CUDA_SUCCESS, "{}", NULL);
	}
}

static void answer_quarantine(struct caller *caller)
{
	if (!caller->request.argument_count)
		answer_document(caller, quarantine_json(caller->daemon, caller->guest.uid));
	else
		lift(caller);
}

static void answer_faults(struct caller *caller)
{
	answer_document(caller, faults_json(caller->daemon, caller->guest.uid));
}

static json_t *verb_json(const struct mps_answer *answer)
{
	json_t *json = json_pack("{ss}", "text", answer->text);

	if (json && answer->is_number)
		json_object_set_new(json, "value", json_integer((json_int_t)answer->number));
	return json;
}

/* With the end of the service the operator is gone. */
static void answer_verb(struct caller *caller)
{
	struct daemon *daemon = caller->daemon;
	struct mps_answer answer;

	mps_do(daemon, caller->guest.uid, &caller->request, &answer);
	if (answer.code)
		refuse(caller, (CUresult)answer.code, "%s", answer.text);
	else
		say(caller, caller->request.id, CUDA_SUCCESS, verb_json(&answer));
	if (answer.stops)
		daemon_quit(daemon, answer.stop_seconds);
}

/* A request for events after a number is answered when there are some: until then the daemon reads
 * nothing from the operator, and stores nothing. A number that no event has yet comes from an
 * earlier service: all events are new. */
static void answer_events(struct caller *caller)
{
	const struct caller_request *request = &caller->request;
	const char *number = request->argument_count ? request->arguments[0] : "0";
	char *end;
	uint64_t after = strtoull(number, &end, 10);

	if (request->argument_count > 1 || !*number || *end) {
		refuse(caller, CUDA_ERROR_INVALID_VALUE, "events takes nothing, or the number of an event");
		return;
	}
	if (after > caller->daemon->events.latest)
		after = 0;
	if (request->argument_count && !events_has_later(caller->daemon, caller->guest.uid, after)) {
		caller->awaits_events = true;
		connection_pause(caller->connection);
	} else {
		answer_document(caller, events_json(caller->daemon, caller->guest.uid, after));
	}
}

static void on_event(struct daemon *daemon)
{
	struct caller *caller;
	struct guest *guest;

	TAILQ_FOREACH (guest, &daemon->operators, link) {
		caller = caller_of(guest);
		if (caller->awaits_events)
			turn_await(caller);
		caller->awaits_events = false;
	}
}

static const struct {
	const char *name;
	void (*answer)(struct caller *caller);
} commands[] = {
#define COMMAND(name, function, help)		{#name, function},
#define VERB(name, function, least, most, help) {#name, answer_verb},
#include "server/control/commands.def"
#undef COMMAND
#undef VERB
};

void caller_answer(struct caller *caller)
{
	if (caller->request.is_cut) {
		refuse(caller, CUDA_ERROR_INVALID_VALUE, "%s: a word has more than %u bytes",
			caller->request.command, OPERATOR_WORD_MAX - 1);
		return;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, caller->request.command) == 0) {
			commands[i].answer(caller);
			return;
		}
	}
	refuse(caller, CUDA_ERROR_NOT_FOUND, "version %s of the service does not know the command %s",
		SERVER_VERSION, caller->request.command);
}

/* The operator's request waits for its turn. */
static void await_answer(struct caller *caller, const struct wire_message *message)
{
	const struct wire_names *arguments = &message->admin.arguments;
	struct caller_request *request = &caller->request;

	*request = (struct caller_request){.id = message->id, .argument_count = arguments->count};
	snprintf(request->command, sizeof(request->command), "%s", message->admin.command);
	for (unsigned i = 0; i < arguments->count && i < OPERATOR_ARGUMENTS_MAX; i++)
		request->is_cut |= snprintf(request->arguments[i], OPERATOR_WORD_MAX, "%s",
					   arguments->at[i]) >= (int)OPERATOR_WORD_MAX;
	turn_await(caller);
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct caller *caller = context;
	bool reads = !connection_behind(caller->connection);

	(void)packet;
	if (!reads)
		userlog_event(caller->daemon, caller->guest.uid, USERLOG_operator, LOG_LEVEL_WARNING,
			"an operator of uid %lld is sent away: he does not read his answers",
			(long long)caller->guest.uid);
	if (reads && message_allowed(message->type, FROM_OPERATOR))
		await_answer(caller, message);
	else
		caller_free(caller);
}

static void on_closed(void *context, const char *reason)
{
	(void)reason;
	caller_free(context);
}

static unsigned count_operators(const struct daemon *daemon, uid_t uid)
{
	const struct guest *caller;
	unsigned count = 0;

	TAILQ_FOREACH (caller, &daemon->operators, link)
		count += caller->uid == uid;
	return count;
}

void caller_new(struct daemon *daemon, struct connection *connection, uid_t uid, pid_t pid,
	const struct wire_message *message)
{
	const struct wire_message full = {.type = WIRE_ADMIN_REPLY,
		.id = message->id,
		.admin_reply = {.code = CUDA_ERROR_NOT_PERMITTED,
			.json = "{\"reason\":\"its user has as many connections of frmpsctl as there may "
				"be\"}"}};
	bool room = count_operators(daemon, uid) < OPERATORS_PER_USER;
	struct caller *caller = room ? calloc(1, sizeof(*caller)) : NULL;

	if (!room)
		userlog_event(daemon, uid, USERLOG_operator, LOG_LEVEL_WARNING,
			"an operator of uid %lld is sent away: he has %u connections", (long long)uid,
			OPERATORS_PER_USER);
	if (!caller) {
		if (!room)
			connection_send(connection, &full, NULL, 0);
		connection_shutdown(connection);
		return;
	}
	*caller = (struct caller){
		.daemon = daemon, .connection = connection, .guest = {.uid = uid, .pid = pid}};
	TAILQ_INSERT_TAIL(&daemon->operators, &caller->guest, link);
	connection_set_owner(connection, on_message, on_closed, caller);
	await_answer(caller, message);
}

struct caller *caller_free(struct caller *caller)
{
	struct session *session;

	TAILQ_FOREACH (session, &caller->daemon->sessions, link) {
		move_forget(session, caller);
		checkpoint_forget(session, caller);
	}
	reload_forget(caller->daemon, caller);
	device_drain_forget(caller->daemon, caller);
	depart_forget(caller->daemon, caller);
	connection_shutdown(caller->connection);
	TAILQ_REMOVE(&caller->daemon->operators, &caller->guest, link);
	free(caller);
	return NULL;
}

struct caller *caller_of(struct guest *guest)
{
	return (struct caller *)((char *)guest - offsetof(struct caller, guest));
}

void caller_dismiss(struct guest *guest)
{
	caller_free(caller_of(guest));
}

void callers_init(struct daemon *daemon)
{
	turn_init(daemon);
	daemon->events.noted = on_event;
}

void callers_deinit(struct daemon *daemon)
{
	turn_deinit(daemon);
}
