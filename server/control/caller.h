// An operator's connection: Admin in, AdminReply out, as often as he likes and reads. Any local
// user may ask; what he is shown depends on who he is. A user has a bounded number of them, and
// they are answered in turn (turn.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_CALLER_H
#define FRMPS_SERVER_CONTROL_CALLER_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/wire.h"
#include "server/session/guests.h"

struct connection;
struct daemon;
struct desk;

#define OPERATORS_PER_USER 32u
/* Documents in files that one is sent ahead of those that it has read. */
#define OPERATOR_FILES_MAX 4u

/* Of what is asked no more is kept: no command has as many arguments, or as long ones. The longest
 * is "GPU-cb1213a3-d6a4-be7f-0102-030405060708/p4294967295". */
#define OPERATOR_ARGUMENTS_MAX 4u
#define OPERATOR_WORD_MAX      64u

/* A private copy of what an operator asks. */
struct caller_request {
	uint64_t id;
	char command[OPERATOR_WORD_MAX];
	unsigned argument_count; /* that there were */
	bool is_cut;		 /* not all of an argument was kept */
	char arguments[OPERATOR_ARGUMENTS_MAX][OPERATOR_WORD_MAX];
};

struct caller {
	struct guest guest;
	struct daemon *daemon;
	struct connection *connection;
	bool waits; /* for its turn, with `request` */
	struct caller_request request;
	uint64_t awaited_id; /* of the message that a move or a swap answers; 0: none */
	bool awaits_events;  /* with `request`: it is answered when there is one */
	unsigned files;	     /* documents that it may not have read */
};

/** The operator of one of daemon->operators. */
struct caller *caller_of(struct guest *guest);

/** What the daemon knows of this room: an operator whose user has too many connections is sent
 * away. */
extern const struct desk control_desk;
/** Answers the request that waited; may free the operator. */
void caller_answer(struct caller *caller);
struct caller *caller_free(struct caller *caller);

#endif
