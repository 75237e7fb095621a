// A service with two programs that share device memory: a set that leaves, comes, or is saved. Its
// children do by themselves what the daemon asks.

#ifndef FRMPS_TESTS_UNIT_SERVER_DAEMON_PAIR_H
#define FRMPS_TESTS_UNIT_SERVER_DAEMON_PAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/server/fake_children.h"
#include "tests/unit/server/session/fixture.h"

#define PAIR	    2
#define PAIR_BYTES  (2 * MIB)
#define PAIR_HANDLE 9

/* What dies behind a message, when a tool saves or restores the programs. */
enum pair_death {
	PAIR_DEATH_NONE,
	PAIR_DEATH_DAEMON,
	PAIR_DEATH_EXECUTOR,
	PAIR_DEATH_KEEPER,
	PAIR_DEATH_FIRST,
	PAIR_DEATH_SECOND,
	PAIR_DEATH_TOOL,
	PAIR_DEATHS
};

extern struct fake_client pair[PAIR];
extern uint64_t pair_numbers[PAIR]; /* of their sessions */
extern bool pair_is_gone[PAIR];

/** A daemon with records, and children that have said nothing yet: `fake`. */
void pair_new(void);
/** Both programs join, and share. */
void pair_join(void);
/** Ends all of it. */
void pair_free(void);

/* How the children answer. */
extern struct pair_manner {
	enum wire_type held; /* not before pair_answer_held(); NONE: all at once */
	/* requests so far that copied memory into a stash, and to a file */
	unsigned stashed, filed;
} pair_manner;

/** The next thing that a child has to do, or whoever is behind a message. @beside: does one thing
 * of the latter; NULL: there is nobody. Return: whether there was any */
bool pair_play_one(bool (*beside)(void));
void pair_play_all(bool (*beside)(void));
/** Return: whether there is a message on a socket, which may be -1: fake->message */
bool pair_hear(int socket);
/** Answers a request that was held back. Return: whether there was any */
bool pair_answer_held(void);
/** Bytes of stashes that executors have mapped, and those of their reservations. */
uint64_t pair_stashed_bytes(void);

/** Return: NULL: there is no such session any more */
struct session *pair_session(int i);
/** The program hangs up. */
void pair_leave(int i);
/** A program asks, and gets its answer, which is success. */
void pair_ask(int i, struct wire_message *message);
/** The executors' child of that worker dies. NULL is fine. */
void pair_kill(const struct worker *worker);
/** @hang_up: closes the tool's socket */
void pair_die(enum pair_death death, void (*hang_up)(void));
/** True if the session is served, its memory is here, and nothing is under way. */
bool pair_is_at_rest(int i);

#endif
