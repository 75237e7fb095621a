// See userlog.h. A user's minute begins with the first line and ends by a timer, which forgets the
// user.

#include "server/session/userlog.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/loop/timer.h"
#include "server/session/daemon.h"

#define WINDOW_MS 60000u

struct userlog_user {
	TAILQ_ENTRY(userlog_user) link;
	struct daemon *daemon;
	struct timer *timer;
	uid_t uid;
	unsigned written[USERLOG_REASONS], left_out[USERLOG_REASONS];
};

static const struct {
	unsigned lines;
	const char *about;
} rows[] = {
#define USERLOG(reason, lines, about) {lines, about},
#include "server/session/userlog.def"
#undef USERLOG
};

/* Logs the number of lines left out and forgets the user. */
static void end(struct userlog_user *user)
{
	struct daemon *daemon = user->daemon;
	char whose[48] = "users that are not known or many";

	if (user->uid != USERLOG_OTHERS)
		snprintf(whose, sizeof(whose), "uid %lld", (long long)user->uid);
	for (unsigned i = 0; i < USERLOG_REASONS; i++)
		if (user->left_out[i])
			log_warning("%u lines about %s of %s are left out: at most %u a minute are written",
				user->left_out[i], rows[i].about, whose, rows[i].lines);
	TAILQ_REMOVE(&daemon->userlog.users, user, link);
	daemon->userlog.user_count--;
	timer_free(user->timer);
	free(user);
}

static void on_timer(void *context)
{
	end(context);
}

static struct userlog_user *find(const struct daemon *daemon, uid_t uid)
{
	struct userlog_user *user;

	TAILQ_FOREACH (user, &daemon->userlog.users, link)
		if (user->uid == uid)
			return user;
	return NULL;
}

static struct userlog_user *begin(struct daemon *daemon, uid_t uid)
{
	struct userlog_user *user = calloc(1, sizeof(*user));

	if (!user)
		return NULL;
	user->timer = timer_new(daemon->loop, on_timer, user);
	user->daemon = daemon;
	user->uid = uid;
	TAILQ_INSERT_TAIL(&daemon->userlog.users, user, link);
	daemon->userlog.user_count++;
	timer_start(user->timer, daemon->userlog.window_ms);
	return user;
}

bool userlog_allows(struct daemon *daemon, uid_t uid, enum userlog_reason reason)
{
	struct userlog_user *user = find(daemon, uid);

	if (!user && daemon->userlog.user_count >= USERLOG_USERS_MAX)
		user = find(daemon, uid = USERLOG_OTHERS);
	if (!user)
		user = begin(daemon, uid);
	if (!user)
		return false;
	if (user->written[reason] < rows[reason].lines) {
		user->written[reason]++;
		return true;
	}
	user->left_out[reason]++;
	daemon->counters.log_lines_left_out++;
	return false;
}

void userlog_event(struct daemon *daemon, uid_t uid, enum userlog_reason reason, enum log_level level,
	const char *format, ...)
{
	va_list arguments;

	if (!userlog_allows(daemon, uid, reason))
		return;
	va_start(arguments, format);
	log_event_list(level, format, arguments);
	va_end(arguments);
}

void userlog_init(struct daemon *daemon)
{
	TAILQ_INIT(&daemon->userlog.users);
	daemon->userlog.window_ms = WINDOW_MS;
}

void userlog_deinit(struct daemon *daemon)
{
	while (!TAILQ_EMPTY(&daemon->userlog.users))
		end(TAILQ_FIRST(&daemon->userlog.users));
}
