// The operator's side of the control socket, for small programs: connect, ask, read the answer.
// Blocking.

#ifndef FRMPS_SERVER_TOOLS_ASK_H
#define FRMPS_SERVER_TOOLS_ASK_H

#include <stdbool.h>
#include <stddef.h>

#include "protocol/place.h"
#include "protocol/wire.h"

/* Outcome: the service is there and refuses. */
#define ASK_E_REFUSED 1

/* A daemon that does not answer within this time is as good as none. */
#define ASK_SECONDS 5u

/**
 * Finds the service's socket.
 * @given: NULL or empty: by place_find()
 * @ret_text: on failure, a sentence
 * Return: 0; -EACCES: the socket may belong to a user other than root and this user
 */
int ask_find(const char *given, char path[PLACE_BYTES], char *ret_text, size_t text_size);

/**
 * Asks the service.
 * @command: row of commands.def
 * @ret_json: the document, the caller's; NULL: not wanted
 * @ret_text: on failure, a sentence
 * Return: 0; ASK_E_REFUSED; -errno when the service cannot be reached or does not answer
 */
int ask(const char *path, const char *command, char **ret_json, char *ret_text, size_t text_size);

/* The devices of a service. */
struct ask_devices {
	unsigned count;
	unsigned number;	      /* of the device at `path` */
	char uuid[PLACE_DEVICES][48]; /* empty: the device does not answer */
};

/**
 * Finds the devices of the service.
 * @path: of the socket of the first device, or of another one
 * @quick: asks nobody where there is nothing beside the socket: one device, without a UUID
 * Return: 0; -errno: none answers
 */
int ask_devices(const char *path, bool quick, struct ask_devices *ret_devices);

/** Asks if the service is there, also where a daemon dies over it: of several devices one that
 * answers is enough. Return: as ask() */
int ask_any(const char *path, char *ret_text, size_t text_size);

/** The same for a command with arguments, or a slow command. @seconds: time limit */
int ask_with(const char *path, const char *command, const struct wire_names *arguments, unsigned seconds,
	char **ret_json, char *ret_text, size_t text_size);

#endif
