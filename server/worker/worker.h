// The daemon's view of one child: a keeper or an executor, from spawn to reaping. Daemon, loop
// thread only.
//
//             worker_start          Ready           Ping answered        Activate answered
//   (nothing) ───────────► STARTING ──────► WARMING ───────────────► WARM ─────────────────► ACTIVE
//                             │  executors:    │                       │ keepers stay here      │
//                             │  all that      │                       │                        │
//                             │  sessions hold │                       │                        │
//                             │  is sent       │                       │                        │
//                             └────────────────┴───────────┬───────────┴────────────────────────┘
//                                                          │ worker_condemn: Lost, hang-up, broken
//                                                          ▼ protocol, or superfluous
//                                            CONDEMNED (SIGKILL sent) ── worker_reaped ──► freed
//
// STARTING  nothing may be sent but Shutdown.
// WARMING   knows every opened session; messages are executed in the order of sending.
// ACTIVE    serves rings. Exactly the worker that domain->active names, from the sending of
//           Activate on.
// CONDEMNED its GPU work may still run; replies are still taken. Only worker_reaped() proves the
//           end of that work.

#ifndef FRMPS_SERVER_WORKER_WORKER_H
#define FRMPS_SERVER_WORKER_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/backend/backend.h"
#include "server/role.h"

struct compiler;
struct connection;
struct crew;
struct daemon;
struct domain;
struct identity;
struct kept_worker;
struct output;
struct record;
struct shared_fd;
struct vitals;
struct worker;
struct worker_evidence;

enum worker_state { WORKER_STARTING, WORKER_WARMING, WORKER_WARM, WORKER_ACTIVE, WORKER_CONDEMNED };

/* Making, observing and ending children: supervise.c, or a test. kill() is called at most once
 * (except for a worker of an earlier life of the daemon, to be sure) and leads to one
 * worker_reaped(), never from within kill(). start() takes over the descriptors, on failure
 * too. */
struct spawner {
	/* Sets worker->process and worker->pid, and worker->process_key if there is a store. */
	int (*start)(struct worker *worker, const struct heritage_fds *fds);
	void (*kill)(struct worker *worker);
	/* Starts a compiler; the descriptor is taken over. Return: the pid, for which the caller
	 * waits, or -errno */
	int (*start_compiler)(const struct compiler *compiler, int control_fd, int *ret_pidfd);
	/* Return: false if nothing is known of the worker. */
	bool (*look)(const struct worker *worker, struct vitals *ret_vitals);
};

/* A worker's messages and states: events for the rooms above, and questions of worker/ to them.
 * Registered when the daemon starts. */
struct worker_events {
	/* Ready has arrived, in STARTING. */
	void (*ready)(struct worker *worker, const struct wire_ready *ready);
	/* The worker has lost its context (worker_take_lost). Called once. */
	void (*lost)(struct worker *worker, const char *text);
	/* An executor sees a sign of a fault, and examines it. */
	void (*suspect)(struct worker *worker, const char *text);
	/* An executor has contained a fault of a session. */
	void (*fault)(struct worker *worker, uint64_t session, const struct wire_trouble *fault);
	/* A guard was hit. @owner: session that owns the guard */
	void (*stray)(struct worker *worker, uint64_t owner, const struct wire_stray *stray);
	/* A session has broken the rules. */
	void (*offence)(struct worker *worker, uint64_t session, const char *reason);
	/* A session whose memory was moved to the host has work. */
	void (*wanted)(struct worker *worker, uint64_t session);
	/* Answers a request of an earlier life of the daemon. */
	void (*unclaimed)(struct worker *worker, const struct wire_reply *reply);
	/* After each of lost, suspect and fault: their changes are to be recorded. */
	void (*troubled)(struct worker *worker);
	/* The worker has closed its connection, or reading has failed. */
	void (*hung_up)(struct worker *worker, const char *reason);
	/* The worker becomes CONDEMNED. @text: its former state, and the reason */
	void (*given_up)(struct worker *worker, const char *text);
	/* The worker is CONDEMNED from now on. */
	void (*condemned)(struct worker *worker);
	/* The worker was killed and does not end; repeated until its end. */
	void (*stays)(struct worker *worker);
	/* The worker was reaped, and all its requests have their answer; freed after this. */
	void (*gone)(struct worker *worker);
	/* A number was given out (daemon->next_worker). */
	void (*numbered)(struct daemon *daemon);
	/* True if Activate is unanswered. */
	bool (*is_activating)(const struct worker *worker);
	/* True if nobody serves the domain's sessions, and no executor that has served them, and
	 * whose kernels could be the obstacle, is left. */
	bool (*is_awaited)(const struct worker *worker);
	/* Something that ends will give memory back; so many of these have. */
	void (*gives_back)(struct daemon *daemon);
	void (*gave_back)(struct daemon *daemon, unsigned count);
};

/**
 * Receives the Reply to a request; reply is NULL if the worker died without an answer. Called
 * exactly once per request. packet holds descriptors that came with the reply.
 */
typedef void worker_reply_fn(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet);

struct worker_pending;

struct worker {
	/* This part outlives the daemon: the record contains it as it is (record.h). */
	enum worker_state state;
	pid_t pid;
	uint32_t generation; /* since Activate was sent; 0 before */
	uint32_t settled;    /* words.h: faults up to this number have been dealt with */
	int32_t lost_code;
	bool lost;	/* Lost has arrived */
	bool was_ready; /* Ready has arrived */
	bool was_warm;	/* executors: was once complete, and lived */
	bool contains;	/* executors: handles exceptions of kernels, and reports each itself */
	bool told;	/* has learnt its domain's sessions, also if that was before its termination */
	uint32_t control_key, process_key, words_key, output_key; /* of the descriptors */
	uint64_t started_us;
	char lost_text[256];
	/* The worker's place. */
	TAILQ_ENTRY(worker) link;      /* domain->workers */
	TAILQ_ENTRY(worker) crew_link; /* crew->workers */
	struct crew *crew;
	struct daemon *daemon;		 /* the crew's */
	struct domain *domain;		 /* NULL: the keeper */
	uint32_t place;			 /* number of the domain; of a keeper: its own */
	const struct identity *identity; /* the domain's; NULL: the keeper, which runs as the service */
	enum role role;
	uint32_t number; /* unique in the life of the service */
	const struct record *record;
	/* Of this life of the daemon alone. */
	struct connection *connection;
	void *process;			  /* the spawner's */
	struct timer *reap_timer;	  /* looks for the end (reap.h); NULL: not killed */
	struct worker_evidence *evidence; /* evidence of fault/ (fault/evidence.h) */
	struct last_words *words;	  /* executors: shared page */
	struct output *output;		  /* executors (output.h); NULL: nobody listens */
	bool gives_back; /* terminated, and until its end maps memory that its sessions free */
	bool asked;	 /* ended during a session's request */
	/* The oldest request of a session that was in flight when the worker was reaped. */
	uint64_t died_at;	      /* the session; 0: none */
	enum wire_type died_of;	      /* the request */
	int exit_status, exit_signal; /* once reaped */
	uint64_t next_request;
	uint64_t first_request; /* numbers below are of an earlier life of the daemon */
	TAILQ_HEAD(, worker_pending) pending;
	/* overdue.c; from SIGKILL on reap.c */
	unsigned looks;	       /* since the latest message, or since a new request */
	unsigned still;	       /* of these, in a row, that found the worker idle while everybody waits */
	bool pinged;	       /* by overdue.c, without an answer yet */
	unsigned excuses;      /* how often another executor that came up was the reason */
	uint64_t processor_ms; /* used until the latest of these */
	unsigned mirrors;      /* missing answers to warm.c, plus 1 if something is yet to be sent */
	bool is_owed;	       /* something is to be sent later (warm.c) */
	/* Sessions that this standby cannot take over: something of theirs failed or came out
	 * differently, or the standby does not mirror them (standby/leave_out.c). */
	uint64_t *immovable;
	uint32_t immovable_count, immovable_room;
};

const char *worker_state_name(enum worker_state state);

/* Where a worker belongs. */
struct worker_place {
	struct domain *domain;		 /* NULL: a keeper */
	uint32_t number;		 /* of the domain; of a keeper: its own, 1, 2, 3, … */
	const struct identity *identity; /* of the domain's user; NULL: the keeper */
};

/** Spawns a child, an executor if there is a domain. Return: 0 or -errno. */
int worker_start(struct crew *crew, const struct worker_place *place, struct worker **ret_worker);

/**
 * Sends a request. Sending never fails for the caller: a worker that cannot be written to is
 * terminated, and the reply comes as NULL when the worker is reaped. message->id is filled in with
 * worker->next_request; the descriptors stay the caller's.
 */
void worker_request(struct worker *worker, struct wire_message *message, struct shared_fd *const *fds,
	unsigned fd_count, worker_reply_fn *reply, void *context);

/** Kills a worker that was terminated. Twice is fine. */
void worker_kill(struct worker *worker);

/** Records the worker. */
void worker_keep(struct worker *worker);

/** For answers that nobody needs. */
worker_reply_fn worker_ignore_reply;

/**
 * Makes the worker of an earlier life of the daemon again. A worker without a connection is about
 * to be terminated.
 * @bytes: of the record, followed by the list of immovable sessions
 * Return: never NULL
 */
struct worker *worker_adopt(struct crew *crew, const struct worker_place *place, uint32_t number,
	const struct kept_worker *kept, size_t bytes);

/** Sends a message that has no answer. */
void worker_post(struct worker *worker, const struct wire_message *message);

/** Terminates the worker: kills the process, at once and once. */
void worker_condemn(struct worker *worker, const char *reason);

/** The worker has reported the loss itself, in whatever way. */
void worker_take_lost(struct worker *worker, int32_t code, const char *text);

/** True if a request with this context is unanswered. */
bool worker_owes(const struct worker *worker, const void *context);

/** A terminated worker gives back memory at its end (session/reclaim.h). Once is enough. */
void worker_await_memory(struct worker *worker);

/** True if the worker has learnt its domain's sessions. */
bool worker_knows_sessions(const struct worker *worker);

/** @reason: for the log; NULL: already logged */
void worker_set_immovable(struct worker *worker, uint64_t session, const char *reason);
bool worker_is_immovable(const struct worker *worker, uint64_t session);
/** A session is closed there. */
void worker_forget_session(struct worker *worker, uint64_t session);

/** The worker was reaped with a request of a session in flight. The oldest comes first. */
void worker_note_unanswered(struct worker *worker, uint64_t session, enum wire_type type);

/** The end of a reaped worker, as text. */
void worker_describe_end(const struct worker *worker, char *ret_text, size_t size);

/** The kernel has reaped the process: reads its last messages, notifies the owner, frees the
 * memory. */
void worker_reaped(struct worker *worker, int exit_status, int exit_signal);

#endif
