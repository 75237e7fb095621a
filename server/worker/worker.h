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
//                                                          │ worker_condemn: it said Lost, hung up, broke
//                                                          ▼ the protocol, or is not wanted
//                                            CONDEMNED (SIGKILL sent) ── worker_reaped ──► freed
//
// STARTING  nothing may be sent but Shutdown.
// WARMING   knows every opened session; messages are executed in the order they are sent.
// ACTIVE    serves rings. Exactly the worker that domain->active names, from the moment Activate is
//           sent to it.
// CONDEMNED its GPU work may still run; replies are still taken. Only worker_reaped() proves that
// it is over.

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
struct record;
struct shared_fd;
struct vitals;
struct worker;
struct worker_evidence;

enum worker_state { WORKER_STARTING, WORKER_WARMING, WORKER_WARM, WORKER_ACTIVE, WORKER_CONDEMNED };

/* How children are made, looked at and ended: supervise.c, or a test. kill() is called at most once
 * (one of an earlier life of the daemon may be killed again, to be sure) and leads to one
 * worker_reaped(), never from within kill(). start() takes both descriptors over, on failure
 * too. */
struct spawner {
	/* Sets worker->process and worker->pid, and worker->process_key if there is a store. */
	int (*start)(struct worker *worker, int control_fd, int words_fd);
	void (*kill)(struct worker *worker);
	/* Starts a compiler; the descriptor is taken over. Return: its pid, which the caller waits
	 * for, or -errno */
	int (*start_compiler)(const struct compiler *compiler, int control_fd, int *ret_pidfd);
	/* Return: whether anything is known of it. */
	bool (*look)(const struct worker *worker, struct vitals *ret_vitals);
};

/* What a worker says, and what becomes of it: events for the rooms above, and what worker/ asks
 * them. Registered when the daemon starts. */
struct worker_events {
	/* It says Ready, in STARTING. */
	void (*ready)(struct worker *worker, const struct wire_ready *ready);
	/* It has lost its context (worker_take_lost). Called once. */
	void (*lost)(struct worker *worker, const char *text);
	/* An executor sees a sign of a fault, and looks into it. */
	void (*suspect)(struct worker *worker, const char *text);
	/* An executor has contained a fault of a session. */
	void (*fault)(struct worker *worker, uint64_t session, const struct wire_trouble *fault);
	/* A guard was hit. @owner: session whose guard it is */
	void (*stray)(struct worker *worker, uint64_t owner, const struct wire_stray *stray);
	/* A session has broken the rules. */
	void (*offence)(struct worker *worker, uint64_t session, const char *reason);
	/* A session whose memory is away has work. */
	void (*wanted)(struct worker *worker, uint64_t session);
	/* Answers a request of an earlier life of the daemon. */
	void (*unclaimed)(struct worker *worker, const struct wire_reply *reply);
	/* Behind each of lost, suspect and fault: what they have changed is to be recorded. */
	void (*troubled)(struct worker *worker);
	/* It has closed its connection, or cannot be read. */
	void (*hung_up)(struct worker *worker, const char *reason);
	/* It becomes CONDEMNED. @text: what it was, and why */
	void (*given_up)(struct worker *worker, const char *text);
	/* It is CONDEMNED from now on. */
	void (*condemned)(struct worker *worker);
	/* It was killed and does not end; again and again until it does. */
	void (*stays)(struct worker *worker);
	/* It was reaped, and all its requests have their answer; freed behind this. */
	void (*gone)(struct worker *worker);
	/* A number was given out (daemon->next_worker). */
	void (*numbered)(struct daemon *daemon);
	/* Whether it has Activate to answer. */
	bool (*is_activating)(const struct worker *worker);
	/* Whether nobody serves its domain's sessions, and no executor that has served them is
	 * left, whose kernels it could wait for. */
	bool (*is_awaited)(const struct worker *worker);
	/* Something that ends will give memory back; so many of these have. */
	void (*gives_back)(struct daemon *daemon);
	void (*gave_back)(struct daemon *daemon, unsigned count);
};

/**
 * Receives the Reply to a request; reply is NULL when the worker died without one. Called exactly
 * once per request. packet holds descriptors that came with the reply.
 */
typedef void worker_reply_fn(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet);

struct worker_pending;

struct worker {
	/* What outlives the daemon: the record has this part as it is (record.h). */
	enum worker_state state;
	pid_t pid;
	uint32_t generation; /* since Activate was sent; 0 before */
	uint32_t settled;    /* words.h: faults that have been dealt with, by their numbers: up to this one */
	int32_t lost_code;
	bool lost;	/* it said Lost */
	bool was_ready; /* it said Ready */
	bool was_warm;	/* executors: it was once told everything, and lived */
	bool contains;	/* executors: handles exceptions of kernels, and tells of each one itself */
	bool told;	/* it knows, or knew before it was condemned, the sessions of its domain */
	uint32_t control_key, process_key, words_key; /* of the descriptors */
	uint64_t started_us;
	char lost_text[256];
	/* Where it belongs. */
	TAILQ_ENTRY(worker) link;      /* domain->workers */
	TAILQ_ENTRY(worker) crew_link; /* crew->workers */
	struct crew *crew;
	struct daemon *daemon;		 /* the crew's */
	struct domain *domain;		 /* NULL: the keeper */
	uint32_t place;			 /* number of the domain; of a keeper: which one it is */
	const struct identity *identity; /* the domain's; NULL: the keeper, which runs as the service */
	enum role role;
	uint32_t number; /* unique in the life of the service */
	const struct record *record;
	/* Of this life of the daemon alone. */
	struct connection *connection;
	void *process;			  /* the spawner's */
	struct timer *reap_timer;	  /* looks whether it ends (reap.h); NULL: it was not killed */
	struct worker_evidence *evidence; /* what fault/ knows of it (fault/evidence.h) */
	struct last_words *words;	  /* executors: shared page */
	bool gives_back; /* it is condemned, and has mapped until it ends what its sessions free meanwhile */
	bool asked;	 /* it ended while a session's request was with it */
	/* The oldest request of a session that was in flight when it was reaped. */
	uint64_t died_at;	      /* its session; 0: there was none */
	enum wire_type died_of;	      /* what it was */
	int exit_status, exit_signal; /* once reaped */
	uint64_t next_request;
	uint64_t first_request; /* numbers below are of an earlier life of the daemon */
	TAILQ_HEAD(, worker_pending) pending;
	/* overdue.c; from SIGKILL on reap.c */
	unsigned looks;	       /* since it last said something, or since something is expected of it again */
	unsigned still;	       /* of these, one after the other, that found it idle while everybody waits */
	bool pinged;	       /* for overdue.c, and not answered */
	unsigned excuses;      /* how often another executor that came up was the reason */
	uint64_t processor_ms; /* that it had had at the latest of these */
	unsigned mirrors;      /* answers to warm.c that are not in, and 1 if it is owed something */
	bool is_owed;	       /* it is to be told of something later (warm.c) */
	/* Sessions that this standby cannot take over: something of theirs failed or came out
	 * differently, or it does not mirror them (standby/leave_out.c). */
	uint64_t *immovable;
	uint32_t immovable_count, immovable_room;
};

const char *worker_state_name(enum worker_state state);

/* Where a worker belongs. */
struct worker_place {
	struct domain *domain;		 /* NULL: it is the keeper */
	uint32_t number;		 /* of the domain; of a keeper: which one it is, 1, 2, 3, … */
	const struct identity *identity; /* of the domain's user; NULL: the keeper */
};

/** Spawns a child, an executor if there is a domain. Return: 0 or -errno. */
int worker_start(struct crew *crew, const struct worker_place *place, struct worker **ret_worker);

/**
 * Sends a request. Sending never fails for the caller: a worker that cannot be written to is
 * condemned, and the reply comes as NULL when it is reaped. message->id is filled in with
 * worker->next_request; the descriptors stay the caller's.
 */
void worker_request(struct worker *worker, struct wire_message *message, struct shared_fd *const *fds,
	unsigned fd_count, worker_reply_fn *reply, void *context);

/** Kills a condemned worker. Twice is fine. */
void worker_kill(struct worker *worker);

/** Records the worker as it is. */
void worker_keep(struct worker *worker);

/** For answers that nobody needs. */
worker_reply_fn worker_ignore_reply;

/**
 * Makes the worker of an earlier life of the daemon again. One whose connection is not there is
 * about to be given up.
 * @bytes: of the record, with the list of immovable sessions behind it
 * Return: never NULL
 */
struct worker *worker_adopt(struct crew *crew, const struct worker_place *place, uint32_t number,
	const struct kept_worker *kept, size_t bytes);

/** Sends a message that has no answer. */
void worker_post(struct worker *worker, const struct wire_message *message);

/** Gives the worker up: kills it, at once and once. */
void worker_condemn(struct worker *worker, const char *reason);

/** It said so itself, in whatever way. */
void worker_take_lost(struct worker *worker, int32_t code, const char *text);

/** Whether a request made with this context has not been answered. */
bool worker_owes(const struct worker *worker, const void *context);

/** One that is condemned gives back memory when it ends (session/reclaim.h). Once is enough. */
void worker_await_memory(struct worker *worker);

/** Whether it was told of the sessions of its domain. */
bool worker_knows_sessions(const struct worker *worker);

/** @reason: for the log; NULL: the log has it */
void worker_set_immovable(struct worker *worker, uint64_t session, const char *reason);
bool worker_is_immovable(const struct worker *worker, uint64_t session);
/** A session is closed there. */
void worker_forget_session(struct worker *worker, uint64_t session);

/** It was reaped with a request of a session in flight. The oldest comes first. */
void worker_note_unanswered(struct worker *worker, uint64_t session, enum wire_type type);

/** How a reaped one has ended, in words. */
void worker_describe_end(const struct worker *worker, char *ret_text, size_t size);

/** The process is gone, reaped by the kernel's word: what it still said is read, the owner is told,
 * the memory freed. */
void worker_reaped(struct worker *worker, int exit_status, int exit_signal);

#endif
