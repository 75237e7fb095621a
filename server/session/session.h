// A program's session, from its Hello until the last executor has let go of it. Daemon, loop thread
// only.
//
//   session_new            OpenSession answered
//   ──────────► OPENING ───────────────────────► SERVED ──┐
//                  │ (refused: Refuse is sent)            │ session_end: program gone, cut off, service stops
//                  └──────────────────┬───────────────────┘
//                                     ▼
//                                  CLOSING ── every executor that knew it answered CloseSession, or died
//                                             ──► freed
//
// OPENING  (session_make.c, session_open.c) waits for an active executor; nothing but the socket,
//          regions and a window exist. `opened` is false.
// SERVED   executors and standbys know it; its holdings are what they are told. At most one request
//          is under way; the connection is paused meanwhile, so a program cannot make the daemon
//          queue for it.
// CLOSING  (session_close.c) the connection is closed; memory and window stay taken until no
//          executor can touch them any more.
//
// What the program sees is a word in its server region. Executors write it; the daemon writes it
// only while no executor serves the session: when it holds sessions for a promotion, and at the
// end.

#ifndef FRMPS_SERVER_SESSION_SESSION_H
#define FRMPS_SERVER_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "protocol/wire.h"
#include "server/session/records.h"
#include "server/config/terms.h"
#include "server/session/holdings.h"
#include "server/session/upload.h"
#include "shm/region.h"

struct chunk;
struct connection;
struct daemon;
struct domain;
struct move;
struct request;
struct session_evidence;
struct shared_fd;
struct swap;
struct timer;
struct watch;
struct worker;

#define SESSION_PROGRAM_MAX  256
#define SESSION_IDENTITY_MAX 512
/* How much longer than the patience it was given an executor may take to close a session. */
#define SESSION_CLOSE_GRACE_MS 10000u

enum session_state { SESSION_OPENING, SESSION_SERVED, SESSION_CLOSING };

/* Whether standbys mirror it (standby/leave_out.c). */
enum session_mirroring { SESSION_MIRRORED, SESSION_SUSPECTED, SESSION_LEFT_OUT };

/* Where its device memory is (standby/swap.c). */
enum session_memory {
	SESSION_MEMORY_HERE, /* on the device */
	SESSION_MEMORY_LEAVES,
	SESSION_MEMORY_AWAY, /* in host memory */
	SESSION_MEMORY_RETURNS,
};

/* Codes of Activate.recover. */
enum session_recover {
	SESSION_RECOVER_NOTHING,
	SESSION_RECOVER_BY_POLICY,
	SESSION_RECOVER_CULPRIT,
	SESSION_RECOVER_UNSURE, /* what it finished last cannot be believed */
	/* In Activate in place of BY_POLICY: the policy is not that of OpenSession. */
	SESSION_RECOVER_BY_REPLAY,
	SESSION_RECOVER_BY_FAIL,
};

/* The request that was under way when the daemon died, until it is read again. */
struct session_again {
	uint64_t asked; /* the program's number of it; 0: none was with a worker */
	struct shared_fd *fd;
	uint64_t code_bytes; /* records.h */
	struct chunk *chunk;
	uint64_t window; /* WINDOW_NONE: it had taken none */
};

/* A text of a program, by what it is called in its requests. */
struct session_compilation {
	enum wire_type type; /* WIRE_NONE: none */
	uint32_t number, position;
};

struct session {
	/* What outlives the daemon: the record has this part as it is. */
	enum session_state state;
	uid_t uid;
	pid_t pid;
	uint64_t window;   /* its own one */
	uint32_t recovery; /* 0 fail, 1 replay */
	bool opened;	   /* an active executor knows it, so standbys do too */
	uint64_t features;
	uint64_t memory_wish;	/* most device memory, as it or an operator wants; 0: nobody says */
	uint64_t sm_wish;	/* most multiprocessors, percent; the same */
	uint64_t class_wish;	/* the class (config.h); online: nobody says */
	uint32_t partition;	/* number of the SM partition that it has named; 0: none. It may be gone */
	struct subject subject; /* whom its terms are for, as it was when it connected */
	char program[SESSION_PROGRAM_MAX];    /* its name, for people */
	char identity[SESSION_IDENTITY_MAX];  /* what it is (session/offender.h) */
	uint32_t connection_key, process_key; /* of the descriptors */
	struct kept_call open, attach;	      /* not answered */
	struct kept_call let_go;	      /* the same, DetachSession: it moves to domain let_go_to */
	uint32_t let_go_to;
	struct kept_call closes[KEPT_CLOSES];
	uint32_t patience_ms; /* of CloseSession */
	uint64_t answered;    /* the program's number of its latest request that is over */
	bool pause_is_ours;   /* an operator of the service has paused it: its own user does not resume it */
	uint32_t crashes;     /* of daemons while its request was under way */
	uint32_t deaths;      /* of executors that crashed while they had its request */
	enum session_mirroring mirroring;
	enum session_memory memory;
	/* Where it belongs. */
	TAILQ_ENTRY(session) link;	  /* daemon->sessions */
	TAILQ_ENTRY(session) domain_link; /* domain->sessions */
	struct daemon *daemon;
	struct domain *domain;
	uint64_t number;
	const struct record *record;
	/* Of this life of the daemon alone. */
	unsigned refs;
	uid_t owner;	    /* whose share of the service it uses (owner.h) */
	struct terms terms; /* on which it is served */
	struct connection *connection;
	struct watch *process; /* pidfd; NULL where the process cannot be seen */
	bool recovery_set;     /* by an operator: executors may have been told another one */
	struct shm_view view;
	struct shared_fd *client_fd, *server_fd, *doorbell_fd;
	struct holdings holdings;
	struct uploads uploads;
	struct chunk *sinks[2];	 /* near, far (session/sink.c); NULL: none */
	unsigned sinks_asked;	 /* answers of keepers to come */
	bool sinks_short;	 /* others make room for them */
	uint64_t sinks_short_us; /* since when; 0: never */
	struct request *request;
	struct move *move; /* on its way into a domain of its own (standby/move.h); NULL: it is not */
	struct worker *destination; /* while it moves: the executor there, which knows it; NULL: none yet */
	bool is_stuck;		    /* its own work did not end when it was to move (standby/move.h) */
	const char *refused_limit;  /* that it was told of, and nothing was granted since; NULL: none */
	struct swap *swap;	    /* while its memory is not HERE (standby/swap.h); else NULL */
	struct shared_fd *swap_files[KEPT_SWAP_FILES]; /* that it goes to; NULL: there are none */
	struct worker *opening;			       /* OpenSession is with this executor, not answered */
	unsigned closings;			       /* CloseSession answers to come */
	struct timer *close_timer;
	uint64_t freed_us; /* when it last freed something; 0: never */
	unsigned freeing;  /* pieces of device memory that it has freed, and that are not free yet */
	uint64_t asked_us; /* when its latest request began or ended */
	/* standby/swap_choose.c */
	uint64_t stays_until_us; /* nobody displaces it before */
	uint64_t left_us;	 /* how long its memory was on its way out */
	uint64_t passed_over;	 /* the latest choice in which it could not be suspended */
	uint64_t apart_us;	 /* when it last began to move because of its guard; 0: never */
	bool given_up;		 /* it could not be adopted, and is ended when everything else is */
	bool adopted;		 /* nothing was read from it in this life: it may be what is over */
	struct session_again again;
	struct session_compilation crashed; /* at which a compiler was lost, and none since (compiling.h) */
	struct session_evidence *evidence;  /* what fault/ knows of it (fault/evidence.h) */
};

/* Its record: what has another form there, and the head of the session as it is. */
struct session_record {
	struct kept_session kept;
	char head[offsetof(struct session, link)];
};

/** Who connects; a private copy. */
struct session_peer {
	uid_t uid;
	uid_t owner; /* owner.h */
	pid_t pid;
	struct subject subject;
};

/* Outcome of session_new(): the program was refused; the connection is still the caller's. */
#define SESSION_E_REFUSED 1

/**
 * Makes a session for a checked Hello and asks for it to be opened.
 * @connection: taken over on success
 * @ret_code, @ret_text: for SESSION_E_REFUSED, what to tell the program (static text or the
 * domain's)
 * Return: 0 or SESSION_E_REFUSED
 */
int session_new(struct domain *domain, struct connection *connection, const struct session_peer *peer,
	const struct wire_hello *hello, int32_t *ret_code, const char **ret_text);

/** It is served on the terms that are in force, but for what it wants less of itself. */
void session_set_terms(struct session *session);

/** How many multiprocessors its kernels may run on for certain: what its terms ask for, as far as
 * the device and partitions can give it. */
uint32_t session_sms(const struct session *session);

/** Tells executors its weight, class and multiprocessors, if it has its regions. Twice is fine. */
void session_tell_share(struct session *session);
/** Lets executors that sleep read now what the daemon has written for sessions, and not at the next
 * command. */
void session_wake_all(struct daemon *daemon);

/** Records the session as it is. */
void session_keep(struct session *session);

/**
 * Makes a session of an earlier life of the daemon again, without its holdings and without what is
 * under way.
 * @domain: the one that the record names
 * Return: never NULL; one whose descriptors are not all there is given_up, and not open any more
 */
struct session *session_adopt(struct domain *domain, uint64_t number, const struct session_record *record);
/* What an earlier life had asked of a worker, once more, as worker->next_request. */
void session_open_again(struct session *session, struct worker *worker);
void session_close_again(struct session *session, struct worker *worker);
/** It cannot be taken over: it is to end when everything else is. Twice is fine. */
void session_give_up(struct session *session, const char *why);
/** Ends one that is given up. */
void session_end_given_up(struct session *session);
/** A closing session after session_close_again(): is over if no worker has it. */
void session_closing_again(struct session *session);

/** Has the active executor of its domain, which knows it, serve it. */
void session_attach(struct session *session, struct worker *worker);

struct session *session_ref(struct session *session);
struct session *session_unref(struct session *session);

/** Sends OpenSession if the session still waits for it and an executor serves. */
void session_open(struct session *session);

/** The only way out for a bad program: one log line, one counter, one disconnect. */
void session_reject(struct session *session, const char *reason);

/** Closes a session. @patience_ms: how long its work may go on. Twice is fine. */
void session_end(struct session *session, uint32_t patience_ms);

/** Ends a session that is not CLOSING: its program gets CUDA_ERROR_MPS_CLIENT_TERMINATED and a
 * reason, its work no time. */
void session_terminate(struct session *session, const char *reason);

/** Refuses a session that is still OPENING. */
void session_refuse(struct session *session, int32_t code, const char *text);

/** Tells the program a final state (SHM_SESSION_FAULTED, SHM_SESSION_CLOSED) and wakes it; a state
 * before stays. */
void session_finish(struct session *session, uint32_t state, int32_t code, const char *reason);

/** What Activate says of one that is to be treated by its policy. */
uint32_t session_policy(const struct session *session);

/** What becomes of its commands in doubt from now on. */
void session_set_recovery(struct session *session, bool replay);

/** Whether an operator has paused it. The session has its regions. */
bool session_is_paused(const struct session *session);
/**
 * The executor that serves the session, and each later one, gives nothing more of it to the device
 * until it is resumed; what is on the device ends. Twice is fine. The session is not CLOSING.
 * @ours: an operator of the service wants it so, and not its user
 */
void session_pause(struct session *session, bool pause, bool ours);

/** Notes and records where its memory is. Executors issue nothing of it while that is not HERE. */
void session_set_memory(struct session *session, enum session_memory memory);

/** Lets the program know that a promotion is under way. */
void session_hold(struct session *session);

/** Whether this executor does not mirror it. One that did before it was left out goes on. */
bool session_is_left_out(const struct session *session, const struct worker *worker);

/** Whether an executor that takes over is to serve it. */
bool session_is_live(const struct session *session);

/** The message that makes executors know the session. */
void session_open_message(const struct session *session, struct wire_message *ret_message);
/** Its three descriptors, in the message's order. */
void session_open_fds(const struct session *session, struct shared_fd *ret_fds[3]);

#endif
