// See parent.h. A failure of one device touches no other device: processes, sockets, records and
// logs of devices have nothing in common but this process, which runs no code of the service. If
// this process dies, the holders and everything below them end as well (PR_SET_PDEATHSIG).
//
// A member, the holder of one device:
//
//   NEW ──► STARTING ──ready──► SERVING
//              ▲  │ failed         │ failed    │ quit, or failed for good
//       RETRY_MS  ▼                ▼           ▼
//             WAITING ◄────────────┘         ENDED
//
// The start is that of all: nothing is tried again before each member serves or has failed. If the
// operator has named the devices (PARENT_ALL), a failure at the start ends the service, and else
// only if no device is served. Later the service is there as long as one device is. An operator's
// `quit` ends each member with 0: after the first such end no member is started again.

#include "server/parent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "protocol/place.h"
#include "server/holder/holder.h"
#include "server/log.h"
#include "server/loop/notify.h"
#include "server/loop/timer.h"

/* As the unit's RestartSec. */
#define RETRY_MS 2000u

enum member_state { NEW, STARTING, SERVING, WAITING, ENDED };

struct member {
	enum member_state state;
	pid_t pid;	   /* STARTING, SERVING */
	int reports;	   /* socket from the daemon; -1: none */
	uint64_t retry_us; /* NEW, WAITING: when the next one starts */
};

struct parent {
	unsigned count;
	enum parent_needs needs;
	struct member members[PLACE_DEVICES];
	int signals; /* signalfd */
	bool ready;  /* the start is over */
	bool stops;  /* no member is started any more */
	int code;    /* of the first member that failed for good */
};

static bool lives(const struct member *member)
{
	return member->state == STARTING || member->state == SERVING;
}

static void close_reports(struct member *member)
{
	if (member->reports >= 0)
		close(member->reports);
	member->reports = -1;
}

/* In the child: drops everything that belongs to the parent alone. */
static void become_member(struct parent *parent, pid_t self, int reports)
{
	sigset_t signals;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != self)
		_exit(EXIT_FAILURE);
	/* The parent passes signals on, also those to its whole group. */
	setpgid(0, 0);
	for (unsigned i = 0; i < parent->count; i++)
		close_reports(&parent->members[i]);
	close(parent->signals);
	notify_through(reports);
	holder_signals(&signals);
	sigprocmask(SIG_UNBLOCK, &signals, NULL);
}

/* True for a member that starts, now or at its time. */
static bool is_to_start(const struct parent *parent, const struct member *member)
{
	return !parent->stops && (member->state == NEW || (member->state == WAITING && parent->ready));
}

static void retry_later(struct member *member)
{
	member->retry_us = timer_now_us() + UINT64_C(1000) * RETRY_MS;
}

/* Return: true in the child */
static bool start(struct parent *parent, unsigned number)
{
	struct member *member = &parent->members[number];
	pid_t self = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		member->pid = fork();
		if (member->pid == 0) {
			close(pair[0]);
			become_member(parent, self, pair[1]);
			return true;
		}
		close(pair[1]);
		if (member->pid > 0) {
			member->reports = pair[0];
			member->state = STARTING;
			return false;
		}
		close(pair[0]);
	}
	log_error("device %u: its processes cannot be started: %s", number, strerror(errno));
	retry_later(member);
	return false;
}

static void stop_all(struct parent *parent)
{
	if (!parent->stops)
		notify_manager_directly("STOPPING=1");
	parent->stops = true;
	for (unsigned i = 0; i < parent->count; i++)
		if (lives(&parent->members[i]))
			kill(parent->members[i].pid, SIGTERM);
}

/* Return: true for an answer that a second try does not change, as in the unit
 * (RestartPreventExitStatus) */
static bool is_final(int code)
{
	return code == EX_USAGE || code == EX_UNAVAILABLE || code == EX_CONFIG;
}

static void note_end(struct parent *parent, unsigned number, int status)
{
	struct member *member = &parent->members[number];
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;

	close_reports(member);
	member->state = ENDED;
	/* Somebody has asked for the end. */
	parent->stops |= !code;
	if (!code || parent->stops)
		return;
	if ((parent->ready || parent->needs == PARENT_SOME) && !is_final(code)) {
		log_error("device %u is not served at the moment (exit code %d): its processes are started "
			  "again in %u s; other devices go on",
			number, code, RETRY_MS / 1000);
		member->state = WAITING;
		retry_later(member);
		return;
	}
	parent->code = parent->code ? parent->code : code;
	log_error("device %u is not served (exit code %d): %s", number, code,
		parent->ready ? "other devices go on" : "the service does not start");
	if (!parent->ready)
		stop_all(parent);
}

/* A member's processes are a process group. Processes that are left after a failure would be on the
 * device beside those of the next member; after an end on purpose none is left. */
static void reap(struct parent *parent)
{
	siginfo_t info = {0};
	int status;

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0) {
		const pid_t pid = info.si_pid;

		/* Nobody else can have the number before the member is reaped. */
		kill(-pid, SIGKILL);
		waitpid(pid, &status, 0);
		for (unsigned i = 0; i < parent->count; i++)
			if (lives(&parent->members[i]) && parent->members[i].pid == pid)
				note_end(parent, i, status);
		info.si_pid = 0;
	}
}

static void take_signals(struct parent *parent)
{
	struct signalfd_siginfo info;

	while (read(parent->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
			stop_all(parent);
	reap(parent);
}

/* Once each member serves or has failed. */
static void end_start(struct parent *parent)
{
	unsigned serving = 0;

	if (parent->ready || parent->stops)
		return;
	for (unsigned i = 0; i < parent->count; i++) {
		if (parent->members[i].state == NEW || parent->members[i].state == STARTING)
			return;
		serving += parent->members[i].state == SERVING;
	}
	if (!serving) {
		parent->code = EXIT_FAILURE;
		log_error("the service does not start: no device is served");
		stop_all(parent);
		return;
	}
	parent->ready = true;
	if (serving == parent->count)
		log_info("ready: %u devices", serving);
	else
		log_warning("ready: %u of %u devices", serving, parent->count);
	notify_manager_directly("READY=1");
}

static void hear(struct member *member)
{
	char text[64];
	ssize_t length = recv(member->reports, text, sizeof(text) - 1, MSG_DONTWAIT);

	if (length <= 0) {
		close_reports(member);
		return;
	}
	text[length] = '\0';
	if (strcmp(text, "READY=1") == 0)
		member->state = SERVING;
}

/* Return: true if a member has something to do, or will */
static bool goes_on(const struct parent *parent)
{
	for (unsigned i = 0; i < parent->count; i++)
		if (lives(&parent->members[i]) || is_to_start(parent, &parent->members[i]))
			return true;
	return false;
}

/* Until the next start. Return: milliseconds, -1 without one */
static int patience(const struct parent *parent)
{
	uint64_t now = timer_now_us(), next = UINT64_MAX;

	for (unsigned i = 0; i < parent->count; i++)
		if (is_to_start(parent, &parent->members[i]) && parent->members[i].retry_us < next)
			next = parent->members[i].retry_us;
	if (next == UINT64_MAX)
		return -1;
	return next <= now ? 0 : (int)((next - now) / 1000 + 1);
}

static void attend(struct parent *parent)
{
	struct pollfd wait[1 + PLACE_DEVICES] = {{.fd = parent->signals, .events = POLLIN}};

	for (unsigned i = 0; i < parent->count; i++)
		wait[1 + i] = (struct pollfd){.fd = parent->members[i].reports, .events = POLLIN};
	if (poll(wait, 1 + parent->count, patience(parent)) < 0)
		return;
	for (unsigned i = 0; i < parent->count; i++)
		if (wait[1 + i].revents)
			hear(&parent->members[i]);
	if (wait[0].revents)
		take_signals(parent);
	end_start(parent);
}

/* @ret_number: of the child. Return: true in a child */
static bool start_due(struct parent *parent, unsigned *ret_number)
{
	for (unsigned i = 0; i < parent->count; i++) {
		*ret_number = i;
		if (is_to_start(parent, &parent->members[i]) &&
			parent->members[i].retry_us <= timer_now_us() && start(parent, i))
			return true;
	}
	return false;
}

int parent_run(
	unsigned count, enum parent_needs needs, int (*serve)(void *context, unsigned number), void *context)
{
	struct parent parent = {.count = count, .needs = needs};
	unsigned number = 0;
	sigset_t signals;

	log_bug_on(!count || count > PLACE_DEVICES);
	holder_signals(&signals);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	parent.signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (parent.signals < 0) {
		log_error("cannot start: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	for (unsigned i = 0; i < count; i++)
		parent.members[i] = (struct member){.state = NEW, .reports = -1};
	while (goes_on(&parent)) {
		if (start_due(&parent, &number))
			return serve(context, number);
		attend(&parent);
	}
	close(parent.signals);
	log_info("stopped");
	return parent.code;
}
