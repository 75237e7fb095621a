// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See linker.h. The linker thread runs all of this but the entries at the end; it starts with the first
// request.

#include "server/executor/linker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "server/executor/module.h"
#include "server/executor/session.h"
#include "server/log.h"

struct link {
	TAILQ_ENTRY(link) link;
	uint64_t session;
	uint32_t number;    /* the client's */
	uint32_t positions; /* inputs that were handed over */
	struct backend_link *backend;
};

static void link_free(struct executor *executor, struct link *link)
{
	TAILQ_REMOVE(&executor->linker.links, link, link);
	executor->linker.count--;
	if (!executor_is_lost(executor))
		executor_code(executor, executor->ops->link_destroy(link->backend));
	free(link);
}

static struct link *find(struct executor *executor, uint64_t session, uint32_t number)
{
	struct link *link;

	TAILQ_FOREACH (link, &executor->linker.links, link)
		if (link->session == session && link->number == number)
			break;
	return link;
}

static CUresult link_new(struct job *job, struct link **ret_link)
{
	struct executor *executor = job->executor;
	struct linker *linker = &executor->linker;
	struct link *link = calloc(1, sizeof(*link));
	CUresult code;

	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = executor_code(
		executor, executor->ops->link_create(&job->message.link.options, &link->backend));
	if (code) {
		free(link);
		return code;
	}
	if (linker->count == LINKER_LINKS)
		link_free(executor, TAILQ_FIRST(&linker->links));
	link->session = job->session->id;
	link->number = job->message.link.link;
	TAILQ_INSERT_TAIL(&linker->links, link, link);
	linker->count++;
	*ret_link = link;
	return CUDA_SUCCESS;
}

/* The link as the client knows it: with position 0 a new one. CUDA_ERROR_ILLEGAL_STATE: not so here. */
static CUresult take(struct job *job, struct link **ret_link)
{
	struct linker *linker = &job->executor->linker;
	struct link *link = find(job->executor, job->session->id, job->message.link.link);

	if (!job->message.link.position) {
		if (link)
			link_free(job->executor, link);
		return link_new(job, ret_link);
	}
	if (!link || link->positions != job->message.link.position)
		return CUDA_ERROR_ILLEGAL_STATE;
	TAILQ_REMOVE(&linker->links, link, link);
	TAILQ_INSERT_TAIL(&linker->links, link, link);
	*ret_link = link;
	return CUDA_SUCCESS;
}

/* @link: may be NULL */
static void reply(struct job *job, CUresult code, const struct link *link, const uint64_t *value)
{
	const char *logs[2] = {"", ""};
	struct wire_reply reply = {.code = code, .values = {value, value ? 1 : 0}, .names = {logs, 2}};

	if (link)
		job->executor->ops->link_logs(link->backend, &logs[0], &logs[1]);
	job_reply_with(job, &reply);
}

static CUresult add_input(struct job *job, struct link *link)
{
	const struct wire_link *wish = &job->message.link;
	struct backend_link_input input = {
		.type = wish->type, .bytes = wish->bytes, .name = wish->name, .options = &wish->own};
	uint8_t *bytes = NULL;
	CUresult code = module_read_file(job->packet.fd_count ? job->packet.fds[0] : -1, wish->bytes, &bytes);

	if (code)
		return code;
	input.at = bytes;
	code = executor_code(job->executor, job->executor->ops->link_add(link->backend, &input));
	free(bytes);
	/* A refused input counts for nothing, as with the driver. */
	if (!code)
		link->positions++;
	return code;
}

static void add(struct job *job)
{
	struct link *link = NULL;
	CUresult code = take(job, &link);

	if (!code)
		code = add_input(job, link);
	reply(job, code, link, NULL);
}

/* The client's file: it may fail in any way. */
static CUresult write_image(int fd, const uint8_t *image, uint64_t bytes)
{
	uint64_t at = 0;

	if (bytes > LINKER_IMAGE_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (at < bytes) {
		ssize_t n = pwrite(fd, image + at, bytes - at, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		at += (uint64_t)n;
	}
	return CUDA_SUCCESS;
}

static void complete(struct job *job)
{
	int fd = job->packet.fd_count ? job->packet.fds[0] : -1;
	struct link *link = NULL;
	const void *image = NULL;
	size_t bytes = 0;
	uint64_t value;
	CUresult code = take(job, &link);

	if (!code)
		code = executor_code(
			job->executor, job->executor->ops->link_complete(link->backend, &image, &bytes));
	if (!code)
		code = write_image(fd, image, bytes);
	value = bytes;
	reply(job, code, link, code ? NULL : &value);
}

static void drop(struct job *job)
{
	struct link *link = find(job->executor, job->session->id, job->message.link.link);

	if (link)
		link_free(job->executor, link);
	reply(job, CUDA_SUCCESS, NULL, NULL);
}

/* All of a session. */
static void forget(struct job *job)
{
	struct link *link, *next;

	for (link = TAILQ_FIRST(&job->executor->linker.links); link; link = next) {
		next = TAILQ_NEXT(link, link);
		if (link->session == job->session->id)
			link_free(job->executor, link);
	}
	job_free(job);
}

/* ---- the thread ---- */

/* NULL at the end. */
static struct job *next_job(struct linker *linker)
{
	struct job *job;

	pthread_mutex_lock(&linker->lock);
	while (TAILQ_EMPTY(&linker->queue) && !linker->stop)
		pthread_cond_wait(&linker->more, &linker->lock);
	job = TAILQ_FIRST(&linker->queue);
	if (job)
		TAILQ_REMOVE(&linker->queue, job, link);
	pthread_mutex_unlock(&linker->lock);
	return job;
}

static void *work(void *argument)
{
	struct executor *executor = argument;
	struct link *link;
	struct job *job;

	prctl(PR_SET_NAME, "frmps-linker");
	executor_code(executor, executor->ops->thread_enter());
	while ((job = next_job(&executor->linker))) {
		if (executor_is_lost(executor))
			job_free(job);
		else
			job->run(job);
	}
	while ((link = TAILQ_FIRST(&executor->linker.links)))
		link_free(executor, link);
	return NULL;
}

static int start(struct executor *executor)
{
	struct linker *linker = &executor->linker;
	int error = linker->started ? 0 : pthread_create(&linker->thread, NULL, work, executor);

	if (error)
		log_error("no thread for the device linker: %s", strerror(error));
	else
		linker->started = true;
	return error;
}

static void queue(struct job *job)
{
	struct linker *linker = &job->executor->linker;

	pthread_mutex_lock(&linker->lock);
	TAILQ_INSERT_TAIL(&linker->queue, job, link);
	pthread_cond_signal(&linker->more);
	pthread_mutex_unlock(&linker->lock);
}

/* ---- entry ---- */

void linker_init(struct executor *executor)
{
	struct linker *linker = &executor->linker;

	TAILQ_INIT(&linker->queue);
	TAILQ_INIT(&linker->links);
	pthread_mutex_init(&linker->lock, NULL);
	pthread_cond_init(&linker->more, NULL);
}

void linker_deinit(struct executor *executor)
{
	struct linker *linker = &executor->linker;

	pthread_mutex_lock(&linker->lock);
	linker->stop = true;
	pthread_cond_signal(&linker->more);
	pthread_mutex_unlock(&linker->lock);
	if (linker->started)
		pthread_join(linker->thread, NULL);
	linker->started = false;
	pthread_cond_destroy(&linker->more);
	pthread_mutex_destroy(&linker->lock);
}

void linker_handle(struct job *job)
{
	static void (*const handlers[WIRE_TYPES])(struct job * job) = {
		[WIRE_LINK_ADD] = add,
		[WIRE_LINK_COMPLETE] = complete,
		[WIRE_LINK_DROP] = drop,
	};

	job->run = handlers[job->message.type];
	log_bug_on(!job->run);
	if (start(job->executor))
		job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, NULL);
	else
		queue(job);
}

void linker_forget(struct session *session)
{
	struct job *job = session->executor->linker.started ? job_new(session->executor) : NULL;

	/* Without memory for it they go when room is needed. */
	if (!job)
		return;
	job->session = session_ref(session);
	job->run = forget;
	queue(job);
}
