// See events.h.

#include "server/session/events.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/holder/store.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/records.h"
#include "server/session/session.h"
#include "server/session/userlog.h"

/* The bound of a kind that needs none. */
#define USERLOG_always USERLOG_REASONS

/* The events of a kind and user. */
struct event_heap {
	TAILQ_ENTRY(event_heap) link;
	uid_t uid;
	enum event_kind kind;
	unsigned count;
	struct event_list events;
};

static const struct {
	const char *name;
	enum userlog_reason bound;
} rows[] = {
#define EVENT(kind, bound, help) {#kind, USERLOG_##bound},
#include "server/session/events.def"
#undef EVENT
};

const char *events_kind_name(enum event_kind kind)
{
	return rows[kind].name;
}

struct event_about events_about(const struct session *session)
{
	return (struct event_about){session->uid, session->number, session->pid, session->program};
}

struct event_about events_about_user(const struct domain *domain)
{
	return (struct event_about){
		.uid = domain && domain->use != DOMAIN_NOBODYS ? domain->identity.uid : (uid_t)-1};
}

void events_init(struct daemon *daemon)
{
	TAILQ_INIT(&daemon->events.all);
	TAILQ_INIT(&daemon->events.heaps);
}

/*
 * The list
 */

static struct event_heap *find_heap(const struct events *events, uid_t uid, enum event_kind kind)
{
	struct event_heap *heap;

	TAILQ_FOREACH (heap, &events->heaps, link)
		if (heap->uid == uid && heap->kind == kind)
			return heap;
	return NULL;
}

static struct event_heap *make_heap(struct events *events, uid_t uid, enum event_kind kind)
{
	struct event_heap *heap = calloc(1, sizeof(*heap));

	log_bug_on(!heap);
	heap->uid = uid;
	heap->kind = kind;
	TAILQ_INIT(&heap->events);
	TAILQ_INSERT_TAIL(&events->heaps, heap, link);
	return heap;
}

static void let_go(struct events *events, struct event_entry *event)
{
	struct event_heap *heap = event->heap;

	TAILQ_REMOVE(&events->all, event, link);
	TAILQ_REMOVE(&heap->events, event, heap_link);
	events->count--;
	if (!--heap->count) {
		TAILQ_REMOVE(&events->heaps, heap, link);
		free(heap);
	}
	free((char *)event->about.program);
	free(event->text);
	free(event);
}

void events_deinit(struct daemon *daemon)
{
	while (!TAILQ_EMPTY(&daemon->events.all))
		let_go(&daemon->events, TAILQ_FIRST(&daemon->events.all));
}

static void make_room(struct daemon *daemon)
{
	struct event_heap *heap, *most = TAILQ_FIRST(&daemon->events.heaps);
	struct event_entry *oldest;

	if (daemon->events.count < EVENTS_MAX)
		return;
	TAILQ_FOREACH (heap, &daemon->events.heaps, link)
		if (heap->count > most->count)
			most = heap;
	oldest = TAILQ_FIRST(&most->events);
	store_drop(daemon->store, oldest->record);
	let_go(&daemon->events, oldest);
}

static char *copy_clean(const char *text)
{
	char *copy = strdup(text);

	log_bug_on(!copy);
	/* Names of kernels and programs are theirs. */
	log_clean(copy);
	return copy;
}

/* Appends a copy of `from`, with copies of the texts. */
static struct event_entry *append(struct events *events, const struct event_entry *from)
{
	struct event_heap *heap = find_heap(events, from->about.uid, from->kind);
	struct event_entry *event = malloc(sizeof(*event));

	log_bug_on(!event);
	*event = *from;
	event->text = copy_clean(from->text);
	event->about.program = from->about.program ? copy_clean(from->about.program) : NULL;
	event->heap = heap ? heap : make_heap(events, from->about.uid, from->kind);
	TAILQ_INSERT_TAIL(&events->all, event, link);
	TAILQ_INSERT_TAIL(&event->heap->events, event, heap_link);
	event->heap->count++;
	events->count++;
	events->latest = event->number;
	return event;
}

static uint64_t next_of_user(const struct events *events, uid_t uid)
{
	const struct event_entry *event;

	TAILQ_FOREACH_REVERSE (event, &events->all, event_list, link)
		if (event->about.uid == uid)
			return event->of_user + 1;
	return 1;
}

/*
 * Records: struct kept_event, the program, the text; each text ends with a NUL
 */

static void keep(struct daemon *daemon, struct event_entry *event)
{
	const struct event_about *about = &event->about;
	const char *program = about->program ? about->program : "";
	const size_t program_bytes = strlen(program) + 1, text_bytes = strlen(event->text) + 1;
	const struct kept_event kept = {.of_user = event->of_user,
		.session = about->session,
		.time_ms = event->time_ms,
		.uid = (int64_t)about->uid,
		.kind = event->kind,
		.pid = about->pid,
		.has_program = about->program != NULL};
	size_t bytes = sizeof(kept) + program_bytes + text_bytes;
	char *payload = malloc(bytes);

	log_bug_on(!payload);
	memcpy(payload, &kept, sizeof(kept));
	memcpy(payload + sizeof(kept), program, program_bytes);
	memcpy(payload + sizeof(kept) + program_bytes, event->text, text_bytes);
	event->record = store_put(daemon->store, NULL, RECORD_EVENT, event->number, payload, bytes);
	free(payload);
}

void events_adopt(struct daemon *daemon, const struct record *record)
{
	struct kept_event kept;
	size_t bytes;
	const char *payload = record_payload(record, &bytes), *program = payload + sizeof(kept);
	struct event_entry event;

	log_bug_on(!record_read(record, &kept, sizeof(kept)) || payload[bytes - 1]);
	event = (struct event_entry){.number = record_key(record),
		.of_user = kept.of_user,
		.time_ms = kept.time_ms,
		.kind = kept.kind,
		.about = {(uid_t)kept.uid, kept.session, kept.pid, kept.has_program ? program : NULL},
		.text = (char *)program + strlen(program) + 1,
		.record = record};
	append(&daemon->events, &event);
}

/*
 * Events
 */

/* A number as text; NULL for 0. */
static const char *number_text(uint64_t number, char text[24])
{
	snprintf(text, 24, "%llu", (unsigned long long)number);
	return number ? text : NULL;
}

/* The journal has FRMPS_EVENT, FRMPS_USER, FRMPS_SESSION, FRMPS_PID and FRMPS_PROGRAM of the
 * event. */
static void log_it(const struct event_entry *event, enum log_level level)
{
	const struct event_about *about = &event->about;
	char uid[24], session[24], pid[24];
	const struct log_field fields[] = {{"EVENT", rows[event->kind].name},
		{"USER", about->uid == (uid_t)-1 ? NULL : uid},
		{"SESSION", number_text(about->session, session)},
		{"PID", number_text((uint64_t)about->pid, pid)}, {"PROGRAM", about->program}};

	snprintf(uid, sizeof(uid), "%lld", (long long)about->uid);
	log_event_fields(level, fields, sizeof(fields) / sizeof(*fields), "%s%s",
		event->kind == EVENT_verdict ? "verdict: " : "", event->text);
}

int64_t events_note(struct daemon *daemon, enum event_kind kind, enum log_level level,
	const struct event_about *about, const char *format, ...)
{
	struct events *events = &daemon->events;
	char text[EVENTS_TEXT_MAX];
	struct event_entry event = {
		.number = events->latest + 1, .kind = kind, .about = *about, .text = text};
	struct timespec now;
	va_list arguments;

	clock_gettime(CLOCK_REALTIME, &now);
	event.time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
	daemon->counters.events[kind]++;
	if (rows[kind].bound != USERLOG_always && !userlog_allows(daemon, about->uid, rows[kind].bound))
		return event.time_ms;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log_it(&event, level);
	event.of_user = next_of_user(events, about->uid);
	make_room(daemon);
	keep(daemon, append(events, &event));
	if (events->noted)
		events->noted(daemon);
	return event.time_ms;
}
