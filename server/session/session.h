// A program's session, from its Hello until the last executor has closed it. Daemon, loop thread
// only.
//
//   session_new            OpenSession answered
//   ──────────► OPENING ───────────────────────► SERVED ──┐
//                  │ (refused: Refuse is sent)            │ session_end: program ended or disconnected, service stops
//                  └──────────────────┬───────────────────┘
//                                     ▼
//                                  CLOSING ── every executor that knew it answered CloseSession, or died
//                                             ──► freed
//
// A session that comes from another device of the service (daemon/handover.h) begins as ELSEWHERE,
// and goes on as SERVED, or is dropped by way of CLOSING.
//
// OPENING  (daemon/session_make.c, session_open.c) waits for an active executor; nothing but the
//          socket, regions and a window exist. `opened` is false.
// SERVED   executors and standbys know the session; they get its holdings. At most one request is
//          under way; the connection is paused meanwhile, so a program cannot make the daemon queue
//          requests.
// CLOSING  (daemon/session_close.c) the connection is closed; memory and window stay taken until no
//          executor can touch them any more.
//
// ELSEWHERE (adopt/arrive.c) executors know the session, which is served on another device: nothing
//          here writes to its regions or reads its connection.
//
// The program sees a state word in its server region. Executors write this word; the daemon writes
// it only while no executor serves the session: at the begin of a promotion (HELD), and at the end.

#ifndef FRMPS_SERVER_SESSION_SESSION_H
#define FRMPS_SERVER_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "protocol/wire.h"
#include "server/config/terms.h"
#include "server/incident/session_evidence.h"
#include "server/session/records.h"
#include "server/session/holdings.h"
#include "server/session/upload.h"
#include "server/transfer.h"
#include "shm/region.h"

struct chunk;
struct connection;
struct departure;
struct daemon;
struct domain;
struct holding;
struct move;
struct order;
struct request;
struct shared_fd;
struct swap;
struct timer;
struct watch;
struct worker;

#define SESSION_PROGRAM_MAX  256
#define SESSION_IDENTITY_MAX 512
/* Packets that wait for a program that does not read. */
#define SESSION_QUEUE_MAX 16u
/* Time beyond the patience that an executor has to close a session. */
#define SESSION_CLOSE_GRACE_MS 10000u

enum session_state { SESSION_OPENING, SESSION_SERVED, SESSION_CLOSING, SESSION_ELSEWHERE };

/* State of the session's mirrors in standbys (standby/leave_out.c). */
enum session_mirroring { SESSION_MIRRORED, SESSION_SUSPECTED, SESSION_LEFT_OUT };

/* Place of the session's device memory (standby/swap.c). Sessions that share some have theirs in
 * the same place. */
enum session_memory {
	SESSION_MEMORY_HERE, /* on the device */
	SESSION_MEMORY_LEAVES,
	SESSION_MEMORY_AWAY, /* in host memory */
	SESSION_MEMORY_RETURNS,
};

/* All bytes of the files are there. */
#define SESSION_FILLED UINT64_MAX

/* The message that the program gets at the end of the turn; its consequences follow once it is sent
 * (due.h). */
enum session_answer {
	SESSION_ANSWER_NONE,
	SESSION_ANSWER_WELCOME,
	SESSION_ANSWER_REPLY, /* to session->request */
};

/* The request that was under way when the daemon died, until it is read again. */
struct session_again {
	uint64_t asked; /* the program's number of the request; 0: no worker had a request */
	struct shared_fd *fd;
	uint64_t code_bytes; /* records.h */
	struct chunk *chunk;
	uint64_t window; /* taken by the request; WINDOW_NONE: none */
};

/* A text of a program, by its name in requests. */
struct session_compilation {
	enum wire_type type; /* WIRE_NONE: none */
	uint32_t number, position;
};

struct session {
	/* This part outlives the daemon: the record has it in this layout. */
	enum session_state state;
	uid_t uid;
	pid_t pid;
	uint64_t window;      /* the session's own window */
	uint32_t recovery;    /* 0 fail, 1 replay */
	bool opened;	      /* an active executor knows the session, so standbys do, too */
	uint64_t memory_wish; /* most device memory, by the program or an operator; 0: no wish */
	uint64_t sm_wish;     /* most multiprocessors, percent; the same */
	uint64_t class_wish;  /* the class (config.h); online: no wish */
	/* number of the SM partition that the program named; 0: none. May be removed since */
	uint32_t partition;
	struct subject subject;		      /* selects the terms; as of the connection */
	char program[SESSION_PROGRAM_MAX];    /* the program's name, for people */
	char identity[SESSION_IDENTITY_MAX];  /* identity (session/fault_history.h) */
	uint32_t connection_key, process_key; /* of the descriptors */
	struct kept_call open, attach;	      /* not answered */
	/* the same, DetachSession: the session moves to domain let_go_to */
	struct kept_call let_go;
	uint32_t let_go_to;
	struct kept_call closes[KEPT_CLOSES];
	uint32_t patience_ms; /* of CloseSession */
	uint64_t answered;    /* the program's number of its latest finished request */
	uint64_t requests;    /* to this device; counters.requests has those of former sessions */
	/* paused by an operator of the service: the session's own user may not resume */
	bool pause_is_ours;
	/* paused, and its memory is off the device until somebody asks for that */
	bool checkpointed;
	/* the memory leaves, or has left, for a drain of the device or for another device, and
	 * comes back with the end of that */
	bool drained;
	/* no executor here serves the session, so that another device can. True in ELSEWHERE */
	bool is_detached;
	/* to or from another device (transfer.h), while that is under way; the same of all
	 * sessions of a set */
	struct transfer transfer;
	uint32_t crashes; /* of daemons while a request of the session was under way */
	uint32_t deaths;  /* of executors that crashed while they had the session's request */
	enum session_mirroring mirroring;
	enum session_memory memory;
	/* SESSION_FILLED, or, while a tool restores the session, bytes from the start of the
	 * memory's files that are there (adopt/arrive.h) */
	uint64_t filled;
	/* Owners and lists of the session. */
	TAILQ_ENTRY(session) link;	  /* daemon->sessions */
	TAILQ_ENTRY(session) domain_link; /* domain->sessions */
	TAILQ_ENTRY(session) swap_link;	  /* swap->members */
	struct daemon *daemon;
	struct domain *domain;
	uint64_t number;
	const struct record *record;
	/* Of this life of the daemon alone. */
	unsigned refs;
	uid_t owner;	    /* the user whose share of the service counts (owner.h) */
	struct terms terms; /* in force for the session */
	struct connection *connection;
	struct watch *process; /* pidfd; NULL where the process cannot be seen */
	bool recovery_set;     /* by an operator: executors may have an earlier value */
	struct shm_view view;
	struct shared_fd *client_fd, *server_fd, *doorbell_fd;
	struct holdings holdings;
	struct uploads uploads;
	struct chunk *sink; /* of its guard (session/sink.c); NULL: none */
	bool sink_asked;    /* a keeper's answer is to come */
	bool sink_short;    /* others make room for it */
	struct request *request;
	struct move *move; /* on the way to a domain of its own (standby/move.h); else NULL */
	/* of a move: the new executor, which knows the session; NULL: none yet */
	struct worker *destination;
	/* to another device (daemon/depart.h): requests wait; else NULL */
	struct departure *departure;
	/* its own work did not end in time for a move (standby/move.h) */
	bool is_stuck;
	/* limit of the latest refusal, without success since; NULL: none */
	const char *refused_limit;
	struct order *order; /* under way (control/checkpoint.h); else NULL */
	struct swap *swap;   /* while the memory is not HERE (standby/swap.h); else NULL */
	/* files for the memory, of all sessions of that swap; NULL: there are none */
	struct shared_fd *swap_files[KEPT_SWAP_FILES];
	struct worker *opening;	    /* OpenSession is with this executor, not answered */
	unsigned closings;	    /* CloseSession answers to come */
	unsigned due;		    /* of enum session_due */
	enum session_answer answer; /* on its way to the program */
	bool is_changed;	    /* since its record */
	struct timer *close_timer;
	uint64_t freed_us; /* time of the latest free; 0: never */
	/* pieces of device memory that the program freed, and that are still in use */
	unsigned freeing;
	uint64_t asked_us; /* begin or end of the latest request */
	/* standby/swap_choose.c */
	uint64_t stays_until_us; /* no other session displaces it before */
	uint64_t left_us;	 /* how long its memory took to leave */
	uint64_t passed_over;	 /* the latest choice in which it could not be suspended */
	bool given_up;		 /* could not be adopted, and ends after the adoption of the others */
	bool adopted;		 /* no message read in this life: the first may be finished already */
	struct session_again again;
	bool was_leaving; /* the memory was LEAVES when the daemon died, and stays */
	/* the text that crashed a compiler; cleared by a later answer (compiling.h) */
	struct session_compilation crashed;
	struct session_evidence evidence; /* of fault/ */
};

/* The session's record: fields with another form there, then the head of the session unchanged. */
struct session_record {
	struct kept_session kept;
	char head[offsetof(struct session, link)];
};

/** The session whose list this is. */
static inline struct session *session_of(struct holdings *holdings)
{
	return (void *)((char *)holdings - offsetof(struct session, holdings));
}

/** The process that connects; a private copy. */
struct session_peer {
	uid_t uid;
	uid_t owner; /* owner.h */
	pid_t pid;
	struct subject subject;
};

/** True if none before it in the daemon's list has the same owner. */
bool session_is_first_of_owner(const struct session *session);

/** Applies the rules in force, tightened by the session's own wishes. */
void session_set_terms(struct session *session);

/** Multiprocessors that kernels of the session may use for certain: as the terms say, as far as the
 * device and partitions allow. */
uint32_t session_sms(const struct session *session);
/** Publishes the session's weight, class and multiprocessors to executors, once it has its regions.
 * Twice is fine. */
void session_tell_share(struct session *session);
/** Makes executors that sleep read the daemon's words for sessions now, and not at the next
 * command. */
void session_wake_all(struct daemon *daemon);

/** The end of the turn records the session (changes.h). */
void session_changed(struct session *session);
/** Records the session as it is. */
void session_save(struct session *session);

/** The file of an entry that the program can have open; NULL: there is none. */
struct shared_fd *session_file_of(const struct holding *entry);
/** Counts such a file as open in the program (handout.h), unless another device has the session.
 * NULL is fine. Return: false without memory */
bool session_hand_out(struct session *session, struct shared_fd *file);
/** Another device has the session's files and exports from now on: it counts them. */
void session_forget_files(struct session *session);

/** Makes the active executor of the session's domain, which knows the session, serve it. */
void session_attach(struct session *session, struct worker *worker);

struct session *session_ref(struct session *session);
struct session *session_unref(struct session *session);

/** Writes a final state (SHM_SESSION_FAULTED, SHM_SESSION_CLOSED) and wakes the program; an earlier
 * final state stays. */
void session_finish(struct session *session, uint32_t state, int32_t code, const char *reason);

/** The code in Activate for a session that is treated by its policy. */
uint32_t session_policy(const struct session *session);

/** Sets the treatment of its commands in flight from now on. */
void session_set_recovery(struct session *session, bool replay);

/** Most pinned memory that the session may have, bytes: what the configuration says, else as much
 * as its window has room for, because memory with a handle needs no mapping. */
uint64_t session_pinned_limit(const struct session *session);

/** True if an operator has paused the session, which has its regions. */
bool session_is_paused(const struct session *session);
/**
 * Makes the executor that serves the session, and each later one, issue nothing more of the session
 * until it is resumed; work on the device ends. The program's requests wait, except for one that is
 * under way. Twice is fine. The session is not CLOSING.
 * @ours: an operator of the service pauses, not the session's user
 */
void session_pause(struct session *session, bool pause, bool ours);

/** Records whether a paused session is checkpointed. */
void session_set_checkpointed(struct session *session, bool checkpointed);

/** Reads the program's next request from now on, unless one is under way, the session is paused or
 * not served yet. The session is not CLOSING. */
void session_read_next(struct session *session);

/** Notes and records the place of the session's memory. Executors issue nothing of the session
 * while that is not HERE. */
void session_set_memory(struct session *session, enum session_memory memory);

/** Shows the program that a promotion is under way. */
void session_hold(struct session *session);

/** True if this executor does not mirror the session. A standby that did before it was left out
 * goes on. */
bool session_is_left_out(const struct session *session, const struct worker *worker);

/** True if another device has the session, and executors here have a part still, or already. */
static inline bool session_is_elsewhere(const struct session *session)
{
	return session->is_detached && session->state != SESSION_SERVED;
}

/** True if the next executor is to serve the session. */
bool session_is_live(const struct session *session);

/** The message that makes executors know the session. */
void session_open_message(const struct session *session, struct wire_message *ret_message);
/** The session's three descriptors, in the message's order. */
void session_open_fds(const struct session *session, struct shared_fd *ret_fds[3]);

#endif
