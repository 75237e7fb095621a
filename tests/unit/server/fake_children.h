// A daemon without processes: the real daemon over a loop of the test's own, with a spawner whose
// children are the test itself. The test plays keeper, executors and clients over the socket pairs
// that they would have; nothing sleeps: fake_turn() runs the loop until nothing moves.

#ifndef FRMPS_TESTS_UNIT_SERVER_FAKE_CHILDREN_H
#define FRMPS_TESTS_UNIT_SERVER_FAKE_CHILDREN_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/config/config.h"
#include "server/holder/holder.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/worker/compiler.h"
#include "server/worker/vitals.h"
#include "server/worker/worker.h"
#include "shm/region.h"

#define FAKE_CHILDREN_MAX  64
#define FAKE_COMPILERS_MAX 64
/* Longer than any limit that a test waits for; what comes later than that came by another one. */
#define FAKE_SKIP_MAX_MS 30000u

/* A child as the daemon started it. */
struct fake_child {
	struct worker *worker; /* NULL once reaped */
	enum role role;
	int socket;
	struct last_words *words; /* executors; writable */
	bool killed;
	bool seen; /* it can be looked at */
	struct vitals vitals;
};

/* A compiler as the daemon started it. Its process is an eventfd. */
struct fake_compiler {
	const struct compiler *compiler; /* NULL once it is reaped */
	int socket, end;
};

struct fake {
	/* The holder's end, and what a next life would find; kept only after fake_with_records. */
	int holder;
	struct legacy legacy;
	uint32_t synced; /* of the board's syncs */
	uv_loop_t loop;
	struct config config;
	struct heritage heritage;
	struct daemon daemon;
	struct fake_child children[FAKE_CHILDREN_MAX]; /* in the order of their start */
	unsigned child_count;
	struct fake_compiler compilers[FAKE_COMPILERS_MAX]; /* in no order */
	bool refuse_start;				    /* the next starts fail */
	uint64_t handles;				    /* given out by fake_play_answer() */
	uint64_t skipped_ms;				    /* by fake_skip() */
	/* What came last, valid until the next receive. */
	struct packet packet;
	struct wire_message message;
};

/* A program. */
struct fake_client {
	int socket;
	uint64_t next_id;
	struct shm_view view; /* after fake_welcome() */
	uint64_t window_base;
};

/* Set before fake_new(): there are records, and fake_come_back(). */
extern bool fake_with_records;
/* Called whenever somebody reads the clock, if set. */
extern void (*fake_reads_clock)(void);
/* The SM partition that programs name in their Hello. */
extern const char *fake_partition;
/* Hello.describe of programs that greet. */
extern unsigned fake_describe;

/** First line of main(): opens what libuv keeps open for the process, so that leak checks do not
 * see it come.
 */
void fake_prepare(void);

/** A daemon with a keeper and 1 + standbys executors that have said nothing yet: children[0] is the
 * keeper.
 */
struct fake *fake_new(unsigned standbys);
/**
 * The daemon dies and the next one adopts everything, the same children among it. Those that were
 * killed may be killed again.
 * Return: what adopt() said
 */
int fake_come_back(struct fake *fake);
/** Ends everything; the test fails if the daemon still holds something. */
void fake_free(struct fake *fake);

void fake_turn(struct fake *fake);

/** The one that has a session's texts; 0: one that has nobody's yet. NULL if there is none. */
struct fake_compiler *fake_compiler_of(struct fake *fake, uint64_t session);
/** How many there are. */
unsigned fake_count_compilers(const struct fake *fake);
/** It crashes. */
void fake_crash(struct fake *fake, struct fake_compiler *compiler);

/** The first domain that there is. */
struct domain *fake_domain(const struct fake *fake);
/** The session of that domain that came as number `index`, from 0. */
struct session *fake_session(const struct fake *fake, unsigned index);

/**
 * Runs the loop while the condition holds: for what timers do. It is never left to wait by itself:
 * a loop whose timers have just made the condition false would wait on for an event that nobody
 * sends.
 */
#define FAKE_RUN_WHILE(fake, condition)                                                                      \
	do                                                                                                   \
		fake_turn(fake);                                                                             \
	while ((condition) && !sched_yield())

/** The time until the loop's next timer passes at once, for the daemon's clock as well. The test
 * fails when that is more than FAKE_SKIP_MAX_MS in all. Return: true */
bool fake_skip(struct fake *fake);

/** The same as FAKE_RUN_WHILE where only time is waited for: no thread and no process has anything
 * to do. */
#define FAKE_SKIP_WHILE(fake, condition)                                                                     \
	do                                                                                                   \
		fake_turn(fake);                                                                             \
	while ((condition) && fake_skip(fake))

/** From now on time passes only where a test skips it; or as ever. */
void fake_stop_clock(bool stops);
/** Lets the time pass in which standbys are told of what they are told later. */
void fake_tell(struct fake *fake);

/** Receives a message of that type on a socket; the test fails when there is none or another. Into
 * fake->message. What comes by a timer is waited for: an operator's answer, what standbys are told
 * later. */
const struct wire_message *fake_expect(struct fake *fake, int socket, enum wire_type type);
/** The test fails if something is there. */
void fake_expect_nothing(struct fake *fake, int socket);
/** The test fails unless the other end hung up. */
void fake_expect_hangup(struct fake *fake, int socket);

void fake_send(
	struct fake *fake, int socket, const struct wire_message *message, const int *fds, unsigned fd_count);
/** Sends a Reply with that many values. */
void fake_reply(
	struct fake *fake, int socket, uint64_t id, int32_t code, const uint64_t *values, uint32_t count);
/** Expects a request of that type and answers it with success and no values. */
void fake_serve(struct fake *fake, struct fake_child *child, enum wire_type type);

/** The child says Ready. */
void fake_ready(struct fake *fake, struct fake_child *child);
/** Ready, and the Ping behind warming answered. */
void fake_warm(struct fake *fake, struct fake_child *child);
/** The same of one that opens that many sessions first. */
void fake_warm_with(struct fake *fake, struct fake_child *child, unsigned sessions);
/** Keeper ready, executors warm, the first one active. Children 1 and 2 are then active and
 * standby. */
void fake_boot(struct fake *fake);
/** Children that do by themselves what is asked of them. All zero but the functions: none has
 * started. */
struct fake_play {
	unsigned *mapped; /* by child: what it has mapped; a child that is gone has nothing */
	void (*start)(struct fake_child *child);
	void (*answer)(unsigned index); /* to fake->message */
	bool started[FAKE_CHILDREN_MAX];
	uint64_t latest[FAKE_CHILDREN_MAX]; /* by child: the latest request */
};
/** A turn of the daemon, and then the next thing that a child has to do: to be reaped, to start, to
 * answer a message; a request that came before a message is not answered again. Return: whether
 * there was any. */
bool fake_play_one(struct fake *fake, struct fake_play *play);
/** Until there is nothing to do. */
void fake_play_all(struct fake *fake, struct fake_play *play);
/** Answers fake->message as a child does that has no trouble: an executor serves the sessions that
 * it takes over and lets go of each, a keeper has plenty of memory. */
void fake_play_answer(struct fake *fake, struct fake_child *child);
/** Return: the child that the daemon has as this worker; NULL: none, also for NULL */
struct fake_child *fake_child_of(struct fake *fake, const struct worker *worker);
/** Return: the first executor that is active in its domain, or that is not; NULL: none */
struct fake_child *fake_find_executor(struct fake *fake, bool active);
/** The keeper answers a request for a chunk with a descriptor. The daemon has not read it when this
 * returns. */
void fake_give_chunk(struct fake_child *keeper, uint64_t id, uint64_t handle);
/** Expects such a request, too. */
void fake_make_chunk(struct fake *fake, struct fake_child *keeper, uint64_t handle);
/** What an executor writes when it takes a session over: what is in doubt is to be issued again. */
void fake_take_over(struct session *session, uint32_t generation);
/** Activate of a promotion: the executor serves all sessions of it. */
void fake_take_all_over(struct fake *fake, struct fake_child *executor);
/** The process is gone. */
void fake_reap(struct fake *fake, struct fake_child *child, int signal);

/** Connects and says Hello. */
void fake_hello(struct fake *fake, struct fake_client *client);
/** The same as a program of another user. */
void fake_hello_as(struct fake *fake, struct fake_client *client, uid_t uid);
/** The active executor opens a session and serves it. */
void fake_open(struct fake *fake, struct fake_child *active);
/** fake_hello(), OpenSession answered by `active`, Welcome taken, every standby in `standby` (may
 * be NULL) told. */
void fake_join(
	struct fake *fake, struct fake_client *client, struct fake_child *active, struct fake_child *standby);
/** Takes the Welcome. */
void fake_welcome(struct fake *fake, struct fake_client *client);
/** Hangs up and forgets the memory. */
void fake_leave(struct fake *fake, struct fake_client *client);

/** Sends a request. Return: its id. */
uint64_t fake_request(struct fake *fake, struct fake_client *client, struct wire_message *message, int fd);

/** What an executor notes: commands of stream 3 are issued, with a mark behind the last. */
void fake_issue(struct shm_view *view, uint64_t issued);

/** A new memfd with `bytes` bytes and these seals. */
int fake_memfd(uint64_t bytes, int seals);

#endif
