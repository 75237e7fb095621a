// What has happened, for operators: the latest events, each with its time, whose program it was and
// a sentence. An event outlives its program and its executor, and another life of the daemon goes
// on with all of them.
//
// There are EVENTS_MAX at most. When one more comes, the oldest of the kind and user that have most
// events makes room: a user does not drive out the events of others, nor one kind those of another.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_EVENTS_H
#define FRMPS_SERVER_SESSION_EVENTS_H

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "server/log.h"

struct daemon;
struct domain;
struct record;
struct session;

#define EVENTS_MAX 1000u
/* Longest sentence, bytes. */
#define EVENTS_TEXT_MAX 2048u

enum event_kind {
#define EVENT(kind, bound, help) EVENT_##kind,
#include "server/session/events.def"
#undef EVENT
	EVENT_KINDS,
};

/* Whom an event is about. */
struct event_about {
	uid_t uid;	     /* -1: no user's programs were concerned */
	uint64_t session;    /* 0: none */
	pid_t pid;	     /* 0: none, or not known */
	const char *program; /* NULL: none, or not known */
};

struct event_entry {
	TAILQ_ENTRY(event_entry) link;	    /* events->all */
	TAILQ_ENTRY(event_entry) heap_link; /* heap->events */
	struct event_heap *heap;
	uint64_t number;  /* 1, 2, 3, … over all lives of the daemon */
	uint64_t of_user; /* the same among those of its user */
	int64_t time_ms;  /* since the epoch */
	enum event_kind kind;
	struct event_about about; /* the program is without control characters */
	char *text;		  /* the same */
	const struct record *record;
};

TAILQ_HEAD(event_list, event_entry); /* the oldest first */

struct events {
	struct event_list all;
	TAILQ_HEAD(, event_heap) heaps; /* one for each kind and user that have events */
	unsigned count;
	uint64_t latest; /* number */
	/* Somebody waits for events (control/). NULL: nobody. */
	void (*noted)(struct daemon *daemon);
};

void events_init(struct daemon *daemon);
/** Lets go of all; their records stay. */
void events_deinit(struct daemon *daemon);
/** Makes one of a record of an earlier life again; the latest comes last. */
void events_adopt(struct daemon *daemon, const struct record *record);

/** An event about a session. Valid as long as the session. */
struct event_about events_about(const struct session *session);
/** One about the programs of the domain's user; NULL, or nobody's yet: of no user. */
struct event_about events_about_user(const struct domain *domain);
/** The name of a kind, as in events.def. */
const char *events_kind_name(enum event_kind kind);

/**
 * Logs and keeps an event. What is beyond the bound of its kind is only counted (userlog.h).
 * @about: copied
 * Return: its time, milliseconds since the epoch
 */
int64_t events_note(struct daemon *daemon, enum event_kind kind, enum log_level level,
	const struct event_about *about, const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
