// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Children as the daemon sees them: their connection, their unanswered requests, their end. See worker.h for
// the states.

#include "server/failover/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"

/* Warming a standby sends thousands of small packets without waiting: they wait here. */
#define WORKER_QUEUE_MAX (1u << 20)

struct worker_pending {
	TAILQ_ENTRY(worker_pending) link;
	uint64_t id;
	worker_reply_fn *reply;
	void *context;
};

const char *worker_state_name(enum worker_state state)
{
	static const char *const names[] = {"starting", "warming", "warm", "active", "condemned"};

	return names[state];
}

static struct worker_pending *find_pending(struct worker *worker, uint64_t id)
{
	struct worker_pending *pending;

	TAILQ_FOREACH (pending, &worker->pending, link)
		if (pending->id == id)
			return pending;
	return NULL;
}

static void take_reply(struct worker *worker, const struct wire_message *message, struct packet *packet)
{
	struct worker_pending *pending = find_pending(worker, message->id);

	if (!pending) {
		worker_condemn(worker, "answered a request that was not made");
		return;
	}
	TAILQ_REMOVE(&worker->pending, pending, link);
	pending->reply(pending->context, worker, &message->reply, packet);
	free(pending);
}

static void take_lost(struct worker *worker, const struct wire_trouble *lost)
{
	worker->lost = true;
	worker->lost_code = lost->code;
	snprintf(worker->lost_text, sizeof(worker->lost_text), "%s", lost->text);
	worker_condemn(worker, "lost its context");
}

void worker_testify(struct worker *worker, int32_t code, const char *text)
{
	const struct wire_trouble lost = {.code = code, .text = text};

	if (worker->state != WORKER_CONDEMNED)
		take_lost(worker, &lost);
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct worker *worker = context;

	switch (message->type) {
	case WIRE_REPLY:
		take_reply(worker, message, packet);
		break;
	case WIRE_LOST:
		take_lost(worker, &message->trouble);
		break;
	case WIRE_READY:
		if (worker->state == WORKER_STARTING)
			daemon_worker_ready(worker, &message->ready);
		break;
	case WIRE_OFFENCE:
		daemon_worker_offence(worker, message->session, message->trouble.text);
		break;
	default:
		worker_condemn(worker, "sent a message that is not its to send");
		break;
	}
}

static void on_closed(void *context, const char *reason)
{
	struct worker *worker = context;

	/* A child that was asked to leave hangs up on its way out; the stop timer sees to one that does not
	 * go. */
	if (!worker->daemon->leaving)
		worker_condemn(worker, reason);
}

static const struct connection_handlers handlers = {.message = on_message, .closed = on_closed};

static struct worker *worker_free(struct worker *worker)
{
	if (!worker)
		return NULL;
	connection_shutdown(worker->connection);
	if (worker->words)
		munmap(worker->words, sizeof(*worker->words));
	free(worker->immovable);
	free(worker);
	return NULL;
}

/* The page for last words, mapped here and to be inherited. */
static int make_words(struct worker *worker, int *ret_fd)
{
	int fd = memfd_create("frmps-last-words", MFD_CLOEXEC);
	void *page;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, 4096) < 0)
		goto failed;
	page = mmap(NULL, sizeof(*worker->words), PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		goto failed;
	worker->words = page;
	*ret_fd = fd;
	return 0;
failed:
	close(fd);
	return -errno;
}

static struct worker *worker_new(struct daemon *daemon, struct domain *domain, enum role role, int socket)
{
	struct worker *worker = calloc(1, sizeof(*worker));

	if (!worker) {
		close(socket);
		return NULL;
	}
	worker->daemon = daemon;
	worker->domain = domain;
	worker->role = role;
	worker->started_us = timer_now_us();
	worker->next_request = 1;
	TAILQ_INIT(&worker->pending);
	worker->connection = connection_new(daemon->loop, socket, WORKER_QUEUE_MAX, &handlers, worker);
	return worker->connection ? worker : worker_free(worker);
}

int worker_start(struct daemon *daemon, struct domain *domain, enum role role, struct worker **ret_worker)
{
	int pair[2], words_fd = -1, r = 0;
	struct worker *worker;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	worker = worker_new(daemon, domain, role, pair[0]);
	if (!worker) {
		close(pair[1]);
		return -ENOMEM;
	}
	if (role == ROLE_EXECUTOR)
		r = make_words(worker, &words_fd);
	if (r < 0)
		close(pair[1]);
	else
		r = daemon->spawner->start(worker, pair[1], words_fd);
	if (r < 0) {
		worker_free(worker);
		return r;
	}
	*ret_worker = worker;
	return 0;
}

void worker_request(struct worker *worker, struct wire_message *message, struct shared_fd *const *fds,
	unsigned fd_count, worker_reply_fn *reply, void *context)
{
	struct worker_pending *pending = malloc(sizeof(*pending));
	int r;

	/* The answer must come exactly once: without memory for that promise there is no going on. */
	log_bug_on(!pending);
	*pending = (struct worker_pending){.id = worker->next_request++, .reply = reply, .context = context};
	TAILQ_INSERT_TAIL(&worker->pending, pending, link);
	message->id = pending->id;
	r = connection_send(worker->connection, message, fds, fd_count);
	if (r)
		worker_condemn(worker, r < 0 ? strerror(-r) : "cannot be written to");
}

void worker_post(struct worker *worker, const struct wire_message *message)
{
	if (connection_send(worker->connection, message, NULL, 0))
		worker_condemn(worker, "cannot be written to");
}

void worker_condemn(struct worker *worker, const char *reason)
{
	bool wanted;

	if (worker->state == WORKER_CONDEMNED)
		return;
	wanted = worker->daemon->leaving || (worker->domain && worker->domain->retiring);
	log_event(wanted ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, "%s %d (%s) is given up: %s%s%s",
		role_name(worker->role), (int)worker->pid, worker_state_name(worker->state), reason,
		worker->lost_text[0] ? ": " : "", worker->lost_text);
	worker->state = WORKER_CONDEMNED;
	worker->daemon->spawner->kill(worker);
	daemon_worker_condemned(worker);
}

bool worker_knows_sessions(const struct worker *worker)
{
	return worker->state == WORKER_WARMING || worker->state == WORKER_WARM ||
	       worker->state == WORKER_ACTIVE;
}

bool worker_is_immovable(const struct worker *worker, uint64_t session)
{
	for (uint32_t i = 0; i < worker->immovable_count; i++)
		if (worker->immovable[i] == session)
			return true;
	return false;
}

void worker_set_immovable(struct worker *worker, uint64_t session, const char *reason)
{
	uint64_t *grown;

	if (worker_is_immovable(worker, session))
		return;
	log_warning("session %llu cannot be moved to executor %d: %s", (unsigned long long)session,
		(int)worker->pid, reason);
	if (worker->immovable_count == worker->immovable_room) {
		worker->immovable_room = worker->immovable_room * 2 + 8;
		grown = realloc(worker->immovable, worker->immovable_room * sizeof(*grown));
		log_bug_on(!grown);
		worker->immovable = grown;
	}
	worker->immovable[worker->immovable_count++] = session;
}

void worker_reaped(struct worker *worker, int exit_status, int exit_signal)
{
	struct worker_pending *pending;

	worker->exit_status = exit_status;
	worker->exit_signal = exit_signal;
	/* Its last packets may be unread: Lost, an answer that was on its way. */
	connection_drain(worker->connection);
	while ((pending = TAILQ_FIRST(&worker->pending))) {
		TAILQ_REMOVE(&worker->pending, pending, link);
		pending->reply(pending->context, worker, NULL, NULL);
		free(pending);
	}
	daemon_worker_gone(worker);
	worker_free(worker);
}
