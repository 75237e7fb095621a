// The daemon role: one libuv loop that owns the socket, the sessions, the domains, the keeper and
// every executor's control connection. It makes no CUDA call. Loop thread only.
//
//   daemon_main ──► RUNNING ── SIGTERM ──► DRAINING
//                      │                      │ last session gone, or stop_seconds over, or second SIGTERM
//                      │ daemon_fail          ▼
//                      └──────────────────► LEAVING (children get Shutdown) ── all reaped ──► exit
//
// RUNNING   programs are accepted. `ready` once keeper and a first executor were up: before that, a
//           child that cannot start is the end (exit code 1); afterwards it is started again.
// DRAINING  no listener; sessions go on, promotions included.
// LEAVING   sessions are closed; the end of a child is expected.
//
// server/daemon_main.c is the process around the daemon, server/service.c its start, its turns and
// its end, adopt/adopt.c its second life.

#ifndef FRMPS_SERVER_SESSION_DAEMON_H
#define FRMPS_SERVER_SESSION_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "protocol/wire.h"
#include "server/backend/backend.h"
#include "server/config/terms.h"
#include "server/session/counters.h"
#include "server/session/events.h"
#include "server/session/export.h"
#include "server/session/handout.h"
#include "server/session/health.h"
#include "server/session/partition.h"
#include "server/session/reclaim.h"
#include "server/session/userlog.h"
#include "server/worker/crew.h"

struct arrival;
struct config;
struct connection;
struct departure;
struct domain;
struct device_drain;
struct heritage;
struct listener;
struct session;
struct stash;
struct timer;
struct turn_end;
struct uv_loop_s;
struct record;
struct reload;
struct store;
struct turns;
struct watch;
struct witnesses;
struct worker;

/* Keys of deposited descriptors (holder/store.h). */
struct listener_keys {
	uint32_t socket, lock;
};

/* The fields of an operator that the daemon knows; control/ has the others (control/caller.h). */
struct guest {
	TAILQ_ENTRY(guest) link; /* daemon->operators */
	uid_t uid;
	pid_t pid; /* that connected; 0: in a namespace that the service does not see */
};

/* Requests for compilers (daemon/compiling.h). */
struct compiling {
	TAILQ_HEAD(, request) waiting;
	unsigned at_a_time; /* requests of one user that are with compilers */
	struct timer *idle; /* runs while a compiler may have nothing to do */
};

/* In this order, and LEAVES may follow any of them. */
enum daemon_phase {
	DAEMON_STARTS, /* waits for the first executor and the keeper */
	DAEMON_SERVES,
	DAEMON_STOPS,  /* refuses new programs, and waits for those that it has */
	DAEMON_LEAVES, /* ends all sessions and workers */
};

struct daemon {
	/* This part outlives the daemon: the record has it in this layout. */
	uint64_t next_session; /* the latest number given out; 0: none was */
	uint64_t started_us;
	/* by an operator: most device memory of sessions that begin now (control/mps.h); 0: none */
	uint64_t memory_default;
	uint64_t sm_default;	/* the same for multiprocessors, percent */
	uint64_t class_default; /* the class of such sessions, at best (config.h) */
	uint64_t stop_seconds;	/* time for programs to finish when the service ends */
	struct counters counters;
	struct partitions partitions;
	struct device_health health;
	struct listener_keys listener_keys; /* of its descriptors */
	uint32_t keeper_number;		    /* 1, 2, 3, … */
	uint32_t next_domain;		    /* the latest number given out */
	uint32_t stash_worker;		    /* number of the executor that may have a stash mapped; 0: none */
	/* Of this life of the daemon alone. */
	struct uv_loop_s *loop;
	struct crew crew; /* keeper and executors */
	const struct config *config;
	/* rules for the terms of sessions: may be read again (control/reload.h) */
	struct rules rules;
	const struct heritage *heritage;
	/* gets each connection; takes the socket over */
	void (*accept)(struct daemon *daemon, int socket);
	/* gets a connection whose first message is a daemon's, or RESTORE of an operator
	 * (adopt/arrive.c); takes over the connection */
	void (*arrive)(
		struct daemon *daemon, struct connection *connection, const struct wire_message *message);
	struct departure *departure; /* daemon/depart.h; NULL: no session leaves, or is saved */
	struct arrival *arrival;     /* adopt/arrive.h; NULL: no session comes */
	struct listener *listener;
	struct witnesses *witnesses; /* of faults (daemon/witnesses.h) */
	/* keeping.h */
	struct worker *keeper; /* NULL between the death of a keeper and the start of the next */
	unsigned keeper_failures;
	struct timer *keeper_timer;
	TAILQ_HEAD(, domain) domains;
	/* from Hello until the last executor has closed the session */
	TAILQ_HEAD(, session) sessions;
	TAILQ_HEAD(visitor_list, visitor) visitors;
	struct timer *greeting; /* runs while a visitor waits for a turn (visitor.c) */
	uid_t greeted;		/* whose turn it was */
	TAILQ_HEAD(, guest) operators;
	struct reload *reload; /* control/reload.h; NULL: none is under way */
	struct turns *turns;   /* of operators (control/turn.h) */
	TAILQ_HEAD(fault_history_list, fault_history) fault_histories;
	uint64_t latest_fault_history; /* latest number of a history */
	struct events events;
	struct reclaim reclaim;
	/* standby/swap_choose.c */
	unsigned displacing;   /* sessions on their way out for others */
	uint64_t displaced_us; /* when the latest of them had left */
	uint64_t choices;      /* number of such choices so far */
	/* standby/stash.h */
	struct stash *stash; /* NULL: none */
	uint64_t stashed_us; /* when its memory last began to go back */
	struct userlog userlog;
	struct handouts handouts;
	struct compiling compiling;
	struct exports exports;
	unsigned session_count;
	uint64_t fds_max;     /* open files that this process may have */
	uint64_t records_max; /* most bytes of records */
	/* The device, as executors reported it; valid when device_known. */
	struct backend_device device;
	bool device_known;
	uint64_t stop_until_us; /* end of that time; from DAEMON_STOPS on */
	enum daemon_phase phase;
	unsigned due;	  /* of enum daemon_due */
	bool has_answers; /* a session's program gets an answer (due_answer()) */
	bool has_changes; /* a session or a domain differs from its record (changes.h) */
	int exit_code;
	struct timer *stop_timer;
	struct device_drain *drain; /* daemon/device_drain.h */
	struct turn_end *turn_end;
	struct store *store; /* what outlives the daemon (server/adopt/); NULL: nothing does */
	const struct record *record;
	struct watch *holder;
	bool adopting; /* things are being rebuilt: nothing is sent yet */
};

/* RECORD_SERVICE: fields with another form there, then the head of the daemon unchanged. */
struct service_record {
	uint32_t next_worker, epoch;
	bool ready;
	_Alignas(8) char head[offsetof(struct daemon, loop)];
};

/** Records the daemon's own numbers, if they differ from the record. */
void daemon_save(struct daemon *daemon);

/** An operator ends the service, as SIGTERM does. @seconds: time for programs to finish */
void daemon_quit(struct daemon *daemon, uint64_t seconds);
/** Ends a service that cannot do its work: logs the reason; the service leaves at the end of the
 * turn, with exit code 1. */
void daemon_fail(struct daemon *daemon, const char *reason);
/** True once the service leaves, or will leave at the end of this turn. */
bool daemon_ends(const struct daemon *daemon);

/** The session with this number, NULL if there is none. */
struct session *daemon_find_session(const struct daemon *daemon, uint64_t number);
/** The domain with this number, NULL if there is none. */
struct domain *daemon_find_domain(const struct daemon *daemon, uint32_t number);

/** How many devices the service has. */
unsigned daemon_devices(const struct daemon *daemon);
/** The path of this device's socket. @path: PLACE_BYTES */
void daemon_socket(const struct daemon *daemon, char *path);
/** The UUID by which programs and operators know the device, as text. @text: UUID_TEXT */
void daemon_uuid(const struct daemon *daemon, char *text);

/** True if a word of an operator names the device: its number, or the beginning of its UUID. */
bool daemon_is_named(const struct daemon *daemon, const char *word);

/** True if the device has failed (daemon/device.h). */
bool daemon_has_failed(const struct daemon *daemon);
/** True if no process of the service may have the device open (daemon/device_drain.h). */
bool daemon_is_drained(const struct daemon *daemon);
/** True if requests and new work of sessions may use the device: it is neither drained nor about to
 * be. */
bool daemon_offers_device(const struct daemon *daemon);

/** The compute capability of the device: 10 * major + minor. */
uint32_t daemon_capability(const struct daemon *daemon);

#endif
