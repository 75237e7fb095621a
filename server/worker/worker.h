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
//                                                          │ worker_terminate: Lost, hang-up, broken
//                                                          ▼ protocol, or superfluous
//                                            TERMINATING (SIGKILL sent) ── worker_end ──► freed
//
// STARTING  nothing may be sent but Shutdown.
// WARMING   knows every opened session; messages are executed in the order of sending.
// ACTIVE    serves rings. Exactly the worker that domain->active names, from the sending of
//           Activate on.
// TERMINATING its GPU work may still run; replies are still taken. Only worker_end() proves the
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

/* A worker's news for the rooms above, at the end of the loop's turn (session/due.h). */
enum worker_due {
	WORKER_DUE_LOST = 1 << 0,	/* it has lost its context (worker_take_lost) */
	WORKER_DUE_TERMINATED = 1 << 1, /* the daemon ends it */
	WORKER_DUE_STAYS = 1 << 2,	/* it was killed and does not end; again until its end */
};

enum worker_state { WORKER_STARTING, WORKER_WARMING, WORKER_WARM, WORKER_ACTIVE, WORKER_TERMINATING };

/* Making, observing and ending children: supervise.c, or a test. kill() is called at most once
 * (except for a worker of an earlier life of the daemon, to be sure) and leads to one
 * children_ended(), never from within kill(). start() takes over the descriptors, on failure
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

/**
 * Receives the Reply to a request; reply is NULL if the worker died without an answer. Called
 * exactly once per request. packet holds descriptors that came with the reply.
 */
typedef void worker_reply_fn(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet);

/* The daemon looks so often at workers that owe an answer (fault/overdue.h). */
#define WORKER_LOOK_MS 10000u

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
	bool is_changed; /* since the record */
	/* Of this life of the daemon alone. */
	bool is_to_die; /* at the end of the turn */
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
	/* fault/overdue.c; from SIGKILL on reap.c */
	unsigned due;	       /* of enum worker_due */
	char end_text[500];    /* why the daemon ends the worker; empty: it does not */
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

/** Spawns a child, an executor if there is a domain, with the crew's latest number. Return: 0 or
 * -errno. */
int worker_start(struct crew *crew, const struct worker_place *place, struct worker **ret_worker);

/**
 * Sends a request. Sending never fails for the caller: a worker that cannot be written to is
 * terminated, and the reply comes as NULL when the worker is reaped. message->id is filled in with
 * worker->next_request; the descriptors stay the caller's.
 */
void worker_request(struct worker *worker, struct wire_message *message, struct shared_fd *const *fds,
	unsigned fd_count, worker_reply_fn *reply, void *context);

/** Has the end of the turn kill a worker that was terminated. Twice is fine. */
void worker_kill(struct worker *worker);
/** The end of the turn: kills them. */
void workers_kill(struct crew *crew);

/** The end of the turn records the worker. */
void worker_changed(struct worker *worker);
/** The end of the turn: records the workers that have changed. */
void workers_save(struct crew *crew);

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

/** Terminates the worker: the end of the turn kills the process. Twice is fine. */
void worker_terminate(struct worker *worker, const char *reason);

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

/** The fate of an answer. */
enum worker_reply {
	WORKER_REPLY_TAKEN,	/* the request has its answer, or the worker broke the protocol */
	WORKER_REPLY_UNCLAIMED, /* it answers a request of an earlier life of the daemon, which has acted on
				 * the answer or did not need to */
};
enum worker_reply worker_take_reply(
	struct worker *worker, const struct wire_message *message, struct packet *packet);

/** The kernel has reaped the process, whose last messages are read: its requests get the answer
 * NULL. */
void worker_end(struct worker *worker, int exit_status, int exit_signal);
/** Frees a worker that has ended. NULL is fine. Return: NULL. */
struct worker *worker_free(struct worker *worker);

#endif
