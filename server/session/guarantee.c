// See guarantee.h.

#include "server/session/guarantee.h"

#include <stdio.h>

#include "server/bytes.h"
#include "server/config/config.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/request.h"
#include "server/session/export.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/session/sink.h"

uint64_t guarantee_wish(const struct session *session, const struct wire_message *message)
{
	switch (message->type) {
	case WIRE_MAP_MEMORY:
		return message->range.bytes;
	case WIRE_CREATE_MEMORY:
		return message->memory.host ? 0 : message->memory.bytes;
	case WIRE_SET_LIMIT:
		return holdings_limit_growth(&session->holdings, &message->limit);
	default:
		return 0;
	}
}

static uint64_t less(uint64_t from, uint64_t what)
{
	return from > what ? from - what : 0;
}

/* Bytes that the session's request is about to add. Memory that a session holds already, such as a
 * handle that is being mapped, counts there. */
static uint64_t brought_by(const struct session *session, const struct request *request)
{
	bool is_held = request->chunk && request->chunk->holders;

	return is_held ? 0 : guarantee_wish(session, &request->message);
}

/* With the request under way. */
static uint64_t held_by(const struct session *session)
{
	return session->holdings.owned_bytes + (session->request ? brought_by(session, session->request) : 0);
}

static uint64_t unused_by(const struct session *session)
{
	return less(session->terms.memory_guarantee, held_by(session));
}

static bool is_refused_to_others(const struct terms *terms)
{
	return terms->memory_policy != CONFIG_MEMORY_POLICY_EVICT;
}

/* Bytes reserved for the session alone on such terms. */
static uint64_t kept_for(const struct session *session, const struct terms *terms)
{
	return is_refused_to_others(terms) ? less(terms->memory_guarantee, held_by(session)) : 0;
}

/* Bytes of the device under these rules. */
static uint64_t device_bytes(const struct daemon *daemon, const struct rules *rules)
{
	struct terms terms;

	terms_of_device(rules, &terms);
	return terms_lower(daemon->device.total_bytes, terms.device_memory);
}

uint64_t guarantee_device_bytes(const struct daemon *daemon)
{
	return device_bytes(daemon, &daemon->rules);
}

/* True if the device has not all memory of the GPU. */
static bool is_part(const struct daemon *daemon)
{
	return guarantee_device_bytes(daemon) < daemon->device.total_bytes;
}

/* Memory of the device for so many sessions, under these rules. */
static uint64_t capacity_under(const struct daemon *daemon, const struct rules *rules, uint64_t sessions)
{
	const struct config *config = daemon->config;
	uint64_t total = device_bytes(daemon, rules), service = 0;
	const struct domain *domain;

	if (config->guard != CONFIG_GUARD_OFF)
		service = sessions * SINK_BYTES;
	if (config_uses_gpu(config))
		TAILQ_FOREACH (domain, &daemon->domains, link)
			service += domain_executors(domain) * GUARANTEE_EXECUTOR_BYTES;
	return less(total, service);
}

static uint64_t capacity(const struct daemon *daemon, uint64_t sessions)
{
	return capacity_under(daemon, &daemon->rules, sessions);
}

/* True if what the session holds, and is guaranteed, counts: it is served, or comes from another
 * device. */
static bool is_counted(const struct session *session)
{
	return session->state == SESSION_SERVED || session->state == SESSION_ELSEWHERE;
}

/* Sums over the sessions that count. */
struct sums {
	/* kept: reserved for the sessions with the guarantee */
	uint64_t sessions, guaranteed, held, kept;
};

static struct sums sum_up(const struct daemon *daemon, const struct session *except)
{
	const struct session *session;
	struct sums sums = {0};

	TAILQ_FOREACH (session, &daemon->sessions, link) {
		if (!is_counted(session) || session == except)
			continue;
		sums.sessions++;
		sums.guaranteed += session->terms.memory_guarantee;
		sums.held += held_by(session);
		sums.kept += kept_for(session, &session->terms);
	}
	sums.held += exports_unheld_bytes(&daemon->exports);
	return sums;
}

uint64_t guarantee_room(const struct session *session)
{
	const struct sums others = sum_up(session->daemon, session);
	uint64_t own = unused_by(session), room;

	if (!others.kept && !is_part(session->daemon))
		return UINT64_MAX;
	room = less(
		capacity(session->daemon, others.sessions + 1), others.held + others.kept + held_by(session));
	return room > own ? room : own;
}

const char *guarantee_reason(const struct session *session)
{
	return sum_up(session->daemon, session).kept ? "memory_guarantee of others" : "device_memory";
}

/* Memory of sessions that end: executors have not let go of it yet. */
static uint64_t leaving(const struct daemon *daemon)
{
	const struct session *session;
	uint64_t bytes = 0;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (session->state == SESSION_CLOSING && !session->holdings.away)
			bytes += session->holdings.memory_bytes;
	return bytes;
}

bool guarantee_fits(const struct session *session)
{
	const struct sums others = sum_up(session->daemon, session);
	uint64_t most = capacity(session->daemon, others.sessions + 1), held = others.held + held_by(session);

	/* Others may hold what is guaranteed to the session (memory_policy = evict). */
	if (is_part(session->daemon) && held + leaving(session->daemon) > most)
		return false;
	return !others.kept || held_by(session) <= session->terms.memory_guarantee ||
	       held + others.kept <= most;
}

uint64_t guarantee_spare(const struct daemon *daemon)
{
	const struct session *session;
	uint64_t claimed = exports_unheld_bytes(&daemon->exports) + leaving(daemon), sessions = 0;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (is_counted(session)) {
			claimed += held_by(session) + unused_by(session);
			sessions++;
		}
	return less(capacity(daemon, sessions), claimed);
}

bool guarantee_allows_executors(const struct daemon *daemon, uint64_t count)
{
	const struct sums sums = sum_up(daemon, NULL);

	return !config_uses_gpu(daemon->config) || (!sums.kept && !is_part(daemon)) ||
	       sums.held + sums.kept + count * GUARANTEE_EXECUTOR_BYTES <= capacity(daemon, sums.sessions);
}

bool guarantee_allows_sink(const struct daemon *daemon)
{
	const struct sums sums = sum_up(daemon, NULL);

	return (!sums.kept && !is_part(daemon)) || sums.held + sums.kept <= capacity(daemon, sums.sessions);
}

bool guarantee_refuses(const struct session *session, char *ret_text, size_t size)
{
	const struct sums others = sum_up(session->daemon, session);
	uint64_t own = session->terms.memory_guarantee;
	uint64_t most = capacity(session->daemon, others.sessions + 1);

	if (!own)
		return false;
	if (others.guaranteed + own > most) {
		snprintf(ret_text, size,
			"its memory_guarantee of %s cannot be kept: %s are guaranteed to others, "
			"and there are %s",
			BYTES_OF(own), BYTES_OF(others.guaranteed), BYTES_OF(most));
		return true;
	}
	if (is_refused_to_others(&session->terms) && others.held + others.kept + own > most) {
		snprintf(ret_text, size,
			"its memory_guarantee of %s cannot be kept: others hold %s, and there "
			"are %s (memory_policy is not evict)",
			BYTES_OF(own), BYTES_OF(others.held), BYTES_OF(most));
		return true;
	}
	return false;
}

/* At the start, capacity() counts only the minimum that every program needs. */
static uint64_t most_for_one(const struct daemon *daemon, const struct rules *rules)
{
	return daemon->phase != DAEMON_STARTS ? device_bytes(daemon, rules)
					      : capacity_under(daemon, rules, 1);
}

/* @most: for one program */
static bool is_more_than_device(const struct daemon *daemon, const struct terms *terms, uint64_t most,
	const char *where, char *ret_text, size_t size)
{
	if (terms->memory_guarantee <= most)
		return false;
	snprintf(ret_text, size, "memory_guarantee%s: %s are more than the device has%s, %s: set it lower",
		where, BYTES_OF(terms->memory_guarantee),
		daemon->phase != DAEMON_STARTS ? "" : " for a program", BYTES_OF(most));
	return true;
}

static bool is_of_this_device(const struct rules *rules, const struct rule *rule)
{
	return rule->kind != RULE_DEVICE || rule->device == rules->device;
}

bool guarantee_refuses_rules(
	const struct daemon *daemon, const struct rules *rules, char *ret_text, size_t size)
{
	const struct session *session;
	struct sums sums = {0};
	bool promises = false;
	struct terms terms;
	uint64_t most;

	if (!daemon->device_known)
		return false;
	if (device_bytes(daemon, rules) < daemon->device.total_bytes && !capacity_under(daemon, rules, 1)) {
		snprintf(ret_text, size,
			"device_memory: %s leave nothing for a program beside executors and its guard: set "
			"it higher",
			BYTES_OF(device_bytes(daemon, rules)));
		return true;
	}
	most = most_for_one(daemon, rules);
	if (is_more_than_device(daemon, &rules->general, most, "", ret_text, size))
		return true;
	for (uint32_t i = 0; i < rules->count; i++)
		if (is_of_this_device(rules, &rules->rules[i]) &&
			is_more_than_device(
				daemon, &rules->rules[i].terms, most, " in a section", ret_text, size))
			return true;
	TAILQ_FOREACH (session, &daemon->sessions, link) {
		if (session->state != SESSION_SERVED)
			continue;
		terms_find(rules, &session->subject, &terms);
		terms_tighten(&terms, session->memory_wish, session->sm_wish, session->class_wish);
		sums.sessions++;
		sums.guaranteed += terms.memory_guarantee;
		sums.held += held_by(session);
		sums.kept += kept_for(session, &terms);
		promises |= terms.memory_guarantee > session->terms.memory_guarantee ||
			    kept_for(session, &terms) > kept_for(session, &session->terms);
	}
	sums.held += exports_unheld_bytes(&daemon->exports);
	most = capacity_under(daemon, rules, sums.sessions);
	/* A promise made before more executors came is no reason to refuse all other rules. */
	if (!promises)
		return false;
	if (sums.guaranteed > most) {
		snprintf(ret_text, size,
			"memory_guarantee: what is served now would have %s, and there are %s",
			BYTES_OF(sums.guaranteed), BYTES_OF(most));
		return true;
	}
	if (sums.kept && sums.held + sums.kept > most) {
		snprintf(ret_text, size,
			"memory_guarantee: what is served now holds %s and would be guaranteed %s "
			"more, and there are %s (memory_policy is not evict)",
			BYTES_OF(sums.held), BYTES_OF(sums.kept), BYTES_OF(most));
		return true;
	}
	return false;
}

/* Memory that the session's request already has. Memory still to come would free nothing. */
static uint64_t coming_to(const struct session *session)
{
	const struct request *request = session->request;

	return request && request->chunk ? brought_by(session, request) : 0;
}

bool guarantee_covers(const struct session *session, uint64_t bytes)
{
	/* held_by() includes the request under way. */
	return bytes && held_by(session) <= session->terms.memory_guarantee;
}

struct session *guarantee_victim(const struct session *session, uint64_t bytes)
{
	struct session *other, *victim = NULL;
	uint64_t most = 0, most_freed = 0;

	if (is_refused_to_others(&session->terms) || !guarantee_covers(session, bytes))
		return NULL;
	TAILQ_FOREACH (other, &session->daemon->sessions, link) {
		uint64_t coming = coming_to(other), freed;
		uint64_t over = less(other->holdings.owned_bytes + coming, other->terms.memory_guarantee);

		if (other == session || other->state != SESSION_SERVED || !over || over < most_freed)
			continue;
		freed = holdings_sole_bytes(&other->holdings) + coming;
		freed = freed < over ? freed : over;
		/* If no end frees anything, several sessions share the same memory, and the end of
		 * the last frees it. */
		if (freed < most_freed || (freed == most_freed && over <= most))
			continue;
		victim = other;
		most = over;
		most_freed = freed;
	}
	return victim;
}
