// An operator's connection: Admin in, AdminReply out, any number of times. Any local user may ask;
// the answer depends on the user. Each user has a bounded number of connections, which are answered
// in turn (turn.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_CALLER_H
#define FRMPS_SERVER_CONTROL_CALLER_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/wire.h"
#include "server/session/daemon.h"

struct connection;
struct session;
struct wire_message;

#define OPERATORS_PER_USER 32u
/* Documents in files that an operator is sent without having read them. */
#define OPERATOR_FILES_MAX 4u

/* A longer request is cut: no command has as many arguments, or as long ones. The longest is
 * "GPU-cb1213a3-d6a4-be7f-0102-030405060708/p4294967295". */
#define OPERATOR_ARGUMENTS_MAX 4u
#define OPERATOR_WORD_MAX      64u

/* A private copy of an operator's request. */
struct caller_request {
	uint64_t id;
	char command[OPERATOR_WORD_MAX];
	unsigned argument_count; /* that there were */
	bool is_cut;		 /* an argument was cut */
	char arguments[OPERATOR_ARGUMENTS_MAX][OPERATOR_WORD_MAX];
};

struct caller {
	struct guest guest;
	struct daemon *daemon;
	struct connection *connection;
	bool waits; /* for a turn, with `request` */
	struct caller_request request;
	uint64_t awaited_id; /* of the message that a move or a swap answers; 0: none */
	bool awaits_events;  /* with `request`: answered at the next event */
	unsigned files;	     /* documents that may be unread */
};

/** Sends an answer: a document with one number, or an empty one. An operator that cannot get an
 * answer is freed. @key: NULL: empty */
void caller_say(struct caller *caller, uint64_t id, const char *key, int64_t value);
/** Sends a refusal. @reason: may repeat the operator's text */
void caller_refuse(struct caller *caller, uint64_t id, int32_t code, const char *reason);

/** The end of what the operator waits for (awaited_id): an empty answer, or a refusal.
 * @context: the operator; may be freed */
void caller_settle(void *context, int32_t code, const char *text);

/** True for operators that may end the session. */
bool caller_may_command(const struct caller *caller, const struct session *session);
/**
 * Finds the session that the first argument names, if the operator may command that session, and
 * the session does not end already. @has_word: the command takes a second argument
 * Return: NULL after an answer with the reason
 */
struct session *caller_find_living(struct caller *caller, bool has_word);

/** The operator of an entry of daemon->operators. */
struct caller *caller_of(struct guest *guest);

/** Before any connection, and after the last. */
void callers_init(struct daemon *daemon);
void callers_deinit(struct daemon *daemon);
/**
 * Takes over a connection whose first message is an operator's; an operator whose user has too many
 * connections is sent away.
 * @pid: of the operator's process
 */
void caller_new(struct daemon *daemon, struct connection *connection, uid_t uid, pid_t pid,
	const struct wire_message *message);
/** Sends an operator away. */
void caller_dismiss(struct guest *guest);
/** Answers the request that waited; may free the operator. */
void caller_answer(struct caller *caller);
struct caller *caller_free(struct caller *caller);

#endif
