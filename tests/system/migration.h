// How tests move programs to another device of a service, and kill what is in the middle of it. One
// service with two devices.

#ifndef FRMPS_TESTS_SYSTEM_MIGRATION_H
#define FRMPS_TESTS_SYSTEM_MIGRATION_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/lib/service.h"
#include "tests/system/program.h"

#define MIGRATION_CONFIG   "quarantine_faults = 0\norphan_seconds = 1\n"
#define MIGRATION_PHYSICAL "devices = 0,1\n" MIGRATION_CONFIG
#define MIGRATION_LOGICAL  "devices = 0,0\n" MIGRATION_CONFIG
/* Room for an answer, bytes. */
#define MIGRATION_TEXT 1400

extern struct service migration_service;

void migration_start(const char *config);
/** A checked fixture's end: the service has to end well, if it was started. */
void migration_stop(void);
/** The service as a client of one of its devices sees it. */
struct service migration_device(unsigned number);
/** A number from the environment. */
int migration_rounds(const char *name, int usual);

/** The device that has the program's session; -1: none has. */
int migration_place(pid_t pid);
/** The same, once no daemon is in the middle of anything. */
int settled_place(pid_t pid);

/** An operator's command about the child's session on a device. @word: behind the session; NULL:
 * none. Return: whether it was done; @ret_text: the reason if not */
bool migration_order(unsigned device, const char *command, const struct child *child, const char *word,
	char *ret_text, size_t size);
/** Return: whether it has gone there */
bool migrate(const struct child *child, int from, const char *to, char *ret_text, size_t size);
void expect_moved(const struct child *child, int to);
/** It stays where it is. @why: part of the reason */
void expect_refused(const struct child *child, const char *to, const char *why);
/** To the other device. Executors may still start. */
void move_in_the_end(const struct child *child);

/** Orders a child to the other device, without waiting. */
void migration_ask(const struct child *child);
/** The order is over, whether it was done or not. */
void migration_asked(void);

/**
 * Orders a child to the other device, and kills something of the service at a random moment: a
 * daemon, or any process. Then the child is on one device.
 * @daemons: killed daemons so far, counted on
 */
void migrate_among_kills(const struct child *child, bool only_daemons, int *daemons);

#endif
