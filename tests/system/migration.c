// How tests move programs to another device of a service, and kill what is in the middle of it.

#include "tests/system/migration.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/suite.h"
#include "tests/system/status.h"

#define ASK_LONG 120
#define LATER_S	 60

struct service migration_service;

void migration_start(const char *text)
{
	setenv("FRMPS_HOST_DEVICES", "2", 1);
	setenv("FRMPS_HOST_FAULTS", "named", 1);
	ck_assert(service_start_configured(&migration_service, text));
}

void migration_stop(void)
{
	unsetenv("FRMPS_HOST_MEMORY");
	if (migration_service.pid)
		ck_assert_int_eq(service_stop(&migration_service), 0);
}

struct service migration_device(unsigned number)
{
	return service_of_device(&migration_service, number);
}

int migration_place(pid_t pid)
{
	int place = -1;

	for (unsigned i = 0; i < 2; i++) {
		const struct service one = migration_device(i);

		if (status_session(&one, pid) <= 0)
			continue;
		ck_assert_int_eq(place, -1);
		place = (int)i;
	}
	return place;
}

int migration_rounds(const char *name, int usual)
{
	const char *text = getenv(name);

	return text ? atoi(text) : usual;
}

/*
 * Orders
 */

bool migration_order(unsigned device, const char *command, const struct child *child, const char *word,
	char *text, size_t size)
{
	const struct service one = migration_device(device);
	char number[24];
	const char *words[] = {number, word};
	const struct wire_names names = {words, word ? 2 : 1};

	*text = '\0';
	snprintf(number, sizeof(number), "%lld", status_session(&one, child->pid));
	return !ask_with(one.socket, command, &names, ASK_LONG, NULL, text, size);
}

bool migrate(const struct child *child, int from, const char *to, char *text, size_t size)
{
	return migration_order((unsigned)from, "migrate", child, to, text, size);
}

void expect_moved(const struct child *child, int to)
{
	char text[MIGRATION_TEXT], word[2] = {(char)('0' + to), '\0'};

	ck_assert_int_eq(migration_place(child->pid), 1 - to);
	ck_assert_msg(migrate(child, 1 - to, word, text, sizeof(text)), "%s", text);
	ck_assert_int_eq(migration_place(child->pid), to);
}

void expect_refused(const struct child *child, const char *to, const char *why)
{
	const int place = migration_place(child->pid);
	char text[MIGRATION_TEXT];

	ck_assert(!migrate(child, place, to, text, sizeof(text)));
	ck_assert_msg(strstr(text, why), "%s", text);
	ck_assert_int_eq(migration_place(child->pid), place);
}

/*
 * Kills
 */

static const char *asked_place;
static const struct child *asked_child;
static int asked_from;
static pid_t asker_pid;

/* Its answer may not come. */
static int asker(int number)
{
	char text[MIGRATION_TEXT];

	(void)number;
	migrate(asked_child, asked_from, asked_place, text, sizeof(text));
	return 0;
}

void migration_ask(const struct child *child)
{
	asked_child = child;
	asked_from = settled_place(child->pid);
	asked_place = asked_from ? "0" : "1";
	asker_pid = spawn(asker, 0);
}

void migration_asked(void)
{
	exit_status(asker_pid);
}

/* What the service has on a device: daemon, keeper, executors, compilers. */
static int processes(unsigned number, pid_t *ret_pids, int room)
{
	struct service holder = migration_service;
	pid_t holders[4];

	ck_assert_int_eq(service_children(&migration_service, holders, 4), 2);
	holder.pid = holders[number];
	return service_children(&holder, ret_pids, room);
}

static bool is_daemon(pid_t pid)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct service one = migration_device(i);

		if (status_daemon(&one) == pid)
			return true;
	}
	return false;
}

/* Kills a process of the service on a device. @daemons: how many daemons were killed so far */
static void kill_something(unsigned number, bool only_daemon, int *daemons)
{
	const struct service one = migration_device(number);
	pid_t pids[16], pid;
	int count = processes(number, pids, 16);

	pid = only_daemon || !count ? status_daemon(&one) : pids[rand() % count];
	*daemons += is_daemon(pid);
	kill(pid, SIGKILL);
}

void migrate_among_kills(const struct child *child, bool only_daemons, int *daemons)
{
	migration_ask(child);
	pass_time(1 + rand() % 400);
	kill_something(rand() % 2, only_daemons, daemons);
	migration_asked();
	ck_assert(service_log_wait(&migration_service, "the daemon is back", *daemons, LATER_S));
	settled_place(child->pid);
}

int settled_place(pid_t pid)
{
	for (int looks = 0; looks < LATER_S * 100; looks++) {
		const struct service first = migration_device(0), second = migration_device(1);
		const bool is_first = status_session(&first, pid) > 0;
		const bool is_second = status_session(&second, pid) > 0;

		if (is_first != is_second)
			return is_second;
		pass_time(10);
	}
	ck_abort_msg("process %d is on no device, or on both", (int)pid);
}

void move_in_the_end(const struct child *child)
{
	const int from = settled_place(child->pid);
	char text[MIGRATION_TEXT];

	for (int i = 0; !migrate(child, from, from ? "0" : "1", text, sizeof(text)); i++) {
		ck_assert_msg(i < LATER_S, "%s", text);
		pass_time(1000);
	}
	ck_assert_int_eq(settled_place(child->pid), 1 - from);
}
