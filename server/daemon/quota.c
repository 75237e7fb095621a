// See quota.h.

#include "server/daemon/quota.h"

#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/bytes.h"
#include "server/config/config.h"
#include "server/holder/store.h"
#include "server/resource/resource.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/session/export.h"
#include "server/session/handout.h"
#include "server/session/message.h"
#include "server/session/session.h"
#include "server/session/upload.h"
#include "server/worker/worker.h"

/* Open files that are reserved regardless of sessions. The daemon's own: loop, log, sockets,
 * records; and descriptors that are just being received. */
#define FDS_OF_DAEMON 64u
/* One in so many of the available files is for guests: a guest sends its first message at once, or
 * asks and disconnects, so nobody needs many guests at a time. */
#define FILES_PER_GUEST 16u
/* Connection, process, two regions, doorbell, the sink; those of a request under way, and of
 * pinned memory that an executor has not released. */
#define FDS_OF_SESSION 11u
/* Connection, process, last words, and messages queued for the worker. */
#define FDS_OF_WORKER 8u
/* One in so many sessions is reserved for root and the service's own user. */
#define SESSIONS_PER_RESERVED 32u

uint64_t quota_guests(const struct daemon *daemon)
{
	uint64_t guests = daemon->fds_max / FILES_PER_GUEST;

	if (guests < QUOTA_GUESTS_LEAST)
		return QUOTA_GUESTS_LEAST;
	return guests < QUOTA_GUESTS_MOST ? guests : QUOTA_GUESTS_MOST;
}

static uint64_t spoken_for(const struct daemon *daemon, uint64_t sessions)
{
	const struct domain *domain;
	const struct worker *worker;
	uint64_t workers = 1;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			workers++;
	return FDS_OF_DAEMON + quota_guests(daemon) + sessions * FDS_OF_SESSION + workers * FDS_OF_WORKER;
}

static uint64_t fds_of(const struct session *session)
{
	return session->holdings.fds + uploads_count(&session->uploads);
}

static uint64_t held(const struct daemon *daemon)
{
	const struct session *session;
	uint64_t count = 0;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		count += fds_of(session);
	return count + handouts_count(&daemon->handouts, NULL) + exports_fds(&daemon->exports, NULL);
}

bool quota_is_operator(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t sessions_of(const struct daemon *daemon, uid_t owner)
{
	const struct session *session;
	uint64_t count = 0;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		count += session->owner == owner;
	return count;
}

/* Sessions for which there are open files. @beside: sessions that are about to come */
static uint64_t file_room(const struct daemon *daemon, uint64_t beside)
{
	uint64_t used = spoken_for(daemon, daemon->session_count + beside) + held(daemon);

	return used < daemon->fds_max ? (daemon->fds_max - used) / FDS_OF_SESSION : 0;
}

const char *quota_refuses_session(
	const struct daemon *daemon, const struct session_peer *peer, uint64_t beside, int32_t *ret_code)
{
	const uint64_t clients_max = daemon->config->clients_max, most = daemon->config->clients_per_user_max,
		       count = daemon->session_count + beside,
		       own = sessions_of(daemon, peer->owner) + beside, files = file_room(daemon, beside),
		       places = clients_max > count ? clients_max - count : 0, room = least(places, files),
		       kept = quota_is_operator(peer->uid) ? 0 : (count + room) / SESSIONS_PER_RESERVED;
	const char *why = NULL;

	if (room <= kept && places <= files)
		why = "the service serves as many programs as clients_max allows: end one (frmpsctl status "
		      "lists them), or raise the key";
	else if (room <= kept)
		why = "the service has no open files left for one more program: end one, or raise its limit "
		      "(LimitNOFILE of the unit)";
	else if (most && own >= most)
		why = "its user has as many programs as clients_per_user_max allows: end one (frmpsctl "
		      "status lists them), or raise the key";
	else if (!most && !quota_is_operator(peer->uid) && own >= room - kept)
		why = "its user has as many programs as leave room for other users: end one (frmpsctl status "
		      "lists them), or set clients_per_user_max";
	if (why)
		*ret_code = CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
	return why;
}

bool quota_allows_user(struct daemon *daemon, uid_t owner, uint64_t limit)
{
	uint64_t bytes;

	handouts_look(&daemon->handouts, owner);
	bytes = handouts_bytes(&daemon->handouts, owner);
	return (!limit || bytes <= limit) && handouts_count(&daemon->handouts, &owner) <= daemon->fds_max / 4;
}

/* A user gets three quarters of the unreserved files: with 10 000 of them, a program can map a
 * whole device in pieces of 20 MiB, as PyTorch's expandable segments do. Other users have the rest,
 * but for a sixteenth, which nobody gets. */
static bool has_fds(const struct session *session)
{
	const struct daemon *daemon = session->daemon;
	uint64_t spoken = spoken_for(daemon, daemon->session_count), own, most;
	const struct session *other;

	own = handouts_count(&daemon->handouts, &session->owner) +
	      exports_fds(&daemon->exports, &session->owner);
	most = daemon->fds_max > spoken ? daemon->fds_max - spoken : 0;
	TAILQ_FOREACH (other, &daemon->sessions, link)
		own += other->owner == session->owner ? fds_of(other) : 0;
	return own < most - most / 4 && held(daemon) < most - most / 16;
}

/* A user gets a quarter, and an eighth stays for the daemon's own records. */
static bool has_records(const struct session *session, const struct wire_message *message)
{
	const struct daemon *daemon = session->daemon;
	size_t cost = resource_record_cost(message);
	uint64_t own = store_share(cost), all = own, most = daemon->records_max;
	const struct session *other;

	TAILQ_FOREACH (other, &daemon->sessions, link) {
		all += other->holdings.record_bytes;
		own += other->owner == session->owner ? other->holdings.record_bytes : 0;
	}
	return own <= most / 4 && all <= most - most / 8 &&
	       store_has_room(daemon->store, cost, most - most / 8);
}

void quota_note_limit(struct session *session, const char *limit, uint64_t bytes)
{
	const struct event_about about = events_about(session);

	/* The program's library asks once more after freeing its cached memory, or asks for
	 * less. */
	if (session->refused_limit && !strcmp(session->refused_limit, limit))
		return;
	session->refused_limit = limit;
	events_note(session->daemon, EVENT_limit, LOG_LEVEL_INFO, &about,
		"session %llu (process %d, %s) gets no memory: %s more are refused (%s)",
		(unsigned long long)session->number, (int)session->pid, session->program, BYTES_OF(bytes),
		limit);
}

bool quota_allows(const struct session *session, const struct wire_message *message)
{
	if (message->type == WIRE_MAKE_FILE || message->type == WIRE_TAKE_FILE ||
		message->type == WIRE_EXPORT_MEMORY)
		return has_fds(session);
	if (!message_is_kept(message->type))
		return true;
	return has_records(session, message) &&
	       (message_row(message->type)->keep != KEEP_FD || has_fds(session));
}
