// Events, for operators: the latest events, each with its time, the user of the program, and a
// sentence. An event outlives its program and its executor, and another life of the daemon restores
// all events.
//
// There are EVENTS_MAX at most. When another event comes, the oldest of the kind and user that have
// most events makes room: a user does not drive out the events of others, nor does one kind drive
// out another. Daemon, loop thread only.

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

/* The subject of an event. */
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
	uint64_t of_user; /* 1, 2, 3, … among the events of the user */
	int64_t time_ms;  /* since the epoch */
	enum event_kind kind;
	struct event_about about; /* the program's name is without control characters */
	char *text;		  /* also without control characters */
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
/** Frees all events; their records stay. */
void events_deinit(struct daemon *daemon);
/** Makes an event of a record of an earlier life again; the latest comes last. */
void events_adopt(struct daemon *daemon, const struct record *record);

/** An event about a session. Valid as long as the session. */
struct event_about events_about(const struct session *session);
/** An event about the programs of the domain's user; NULL, or a domain without a user: of no
 * user. */
struct event_about events_about_user(const struct domain *domain);
/** The name of a kind, as in events.def. */
const char *events_kind_name(enum event_kind kind);

/**
 * Logs and stores an event. Events beyond the bound of their kind are only counted (userlog.h).
 * @about: copied
 * Return: time of the event, milliseconds since the epoch
 */
int64_t events_note(struct daemon *daemon, enum event_kind kind, enum log_level level,
	const struct event_about *about, const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
