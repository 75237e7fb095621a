// See events.h. Names are part of the operator's interface: added to, never changed.
//
//   latest		number of the latest event of all users: the next request names it
//   noted		how many events that this user may see there have ever been
//   events		a list, the latest last
//     number		1, 2, 3, … since the service's start
//     time_ms		milliseconds since the epoch
//     kind		session/events.def
//     uid		null: no user's programs were concerned
//     session, pid	null: none, or not known
//     program		the same
//     text		a sentence, as in the log
//
//   faults		a list, the latest first
//     time_ms, uid	as above
//     verdict		the sentence

#include "server/control/events.h"

#include <jansson.h>

#include "server/control/document.h"
#include "server/session/daemon.h"
#include "server/daemon/quota.h"

static bool may_see(const struct event_entry *event, uid_t uid)
{
	return quota_is_operator(uid) || event->about.uid == uid;
}

/* null for 0. */
static json_t *number_json(uint64_t number)
{
	return number ? json_integer((json_int_t)number) : json_null();
}

static json_t *uid_json(uid_t uid)
{
	return uid == (uid_t)-1 ? json_null() : json_integer(uid);
}

static json_t *event_json(const struct event_entry *event)
{
	const struct event_about *about = &event->about;

	return json_pack("{sI sI ss so so so ss? ss}", "number", (json_int_t)event->number, "time_ms",
		(json_int_t)event->time_ms, "kind", events_kind_name(event->kind), "uid",
		uid_json(about->uid), "session", number_json(about->session), "pid",
		number_json((uint64_t)about->pid), "program", about->program, "text", event->text);
}

static json_t *fault_json(const struct event_entry *event)
{
	return json_pack("{sI so ss}", "time_ms", (json_int_t)event->time_ms, "uid",
		uid_json(event->about.uid), "verdict", event->text);
}

bool events_has_later(const struct daemon *daemon, uid_t uid, uint64_t after)
{
	const struct event_entry *event;

	TAILQ_FOREACH_REVERSE (event, &daemon->events.all, event_list, link) {
		if (event->number <= after)
			return false;
		if (may_see(event, uid))
			return true;
	}
	return false;
}

char *events_json(const struct daemon *daemon, uid_t uid, uint64_t after)
{
	const bool all = quota_is_operator(uid);
	uint64_t noted = all ? daemon->events.latest : 0;
	json_t *list = json_array();
	const struct event_entry *event;

	TAILQ_FOREACH (event, &daemon->events.all, link) {
		if (!may_see(event, uid))
			continue;
		if (event->number > after)
			json_array_append_new(list, event_json(event));
		if (!all)
			noted = event->of_user;
	}
	return document_text(json_pack("{sI sI so}", "latest", (json_int_t)daemon->events.latest, "noted",
		(json_int_t)noted, "events", list));
}

char *faults_json(const struct daemon *daemon, uid_t uid)
{
	json_t *list = json_array();
	const struct event_entry *event;

	TAILQ_FOREACH_REVERSE (event, &daemon->events.all, event_list, link)
		if (event->kind == EVENT_verdict && may_see(event, uid))
			json_array_append_new(list, fault_json(event));
	return document_text(json_pack("{so}", "faults", list));
}
