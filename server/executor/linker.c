// See linker.h. The compile threads run all of this but the entries at the end. What is done with
// the links of one session is done one after the other (compiler.h), so a link is only ever used by
// one thread; the lock is of the list, and of the word that keeps a link in use from giving way to
// another session's.

#include "server/executor/linker.h"

#include <stdlib.h>
#include <string.h>

#include "server/executor/compiler.h"
#include "server/executor/module.h"
#include "server/executor/tenant.h"
#include "server/log.h"

struct link {
	TAILQ_ENTRY(link) link;
	uint64_t session;
	uint32_t number;    /* the client's */
	uint32_t positions; /* inputs that were handed over */
	uint64_t bytes;	    /* that they have. Compile thread at work on it; read by those of its session */
	bool used;	    /* a compile thread is at work on it */
	struct backend_link *backend;
};

/* It is out of the list; NULL is fine. */
static void link_free(struct executor *executor, struct link *link)
{
	if (link && !executor_is_lost(executor))
		executor_code(executor, executor->ops->link_destroy(link->backend));
	free(link);
}

static void link_remove(struct linker *linker, struct link *link)
{
	TAILQ_REMOVE(&linker->links, link, link);
	linker->count--;
}

static void link_add(struct linker *linker, struct link *link)
{
	TAILQ_INSERT_TAIL(&linker->links, link, link);
	linker->count++;
}

/* The next link of a session, with a number or (0) any; NULL if there is none. Under the lock. */
static struct link *find(struct linker *linker, uint64_t session, uint32_t number)
{
	struct link *link;

	TAILQ_FOREACH (link, &linker->links, link)
		if (link->session == session && (!number || link->number == number))
			break;
	return link;
}

/* Takes links of a session out of the executor. */
static void forget_links(struct executor *executor, uint64_t session, uint32_t number)
{
	struct linker *linker = &executor->linker;
	struct link *link;

	do {
		pthread_mutex_lock(&linker->lock);
		link = find(linker, session, number);
		if (link)
			link_remove(linker, link);
		pthread_mutex_unlock(&linker->lock);
		link_free(executor, link);
	} while (link);
}

/* Adds a link in use; the one that gives way for it, NULL if none does. */
static struct link *put_in(struct linker *linker, struct link *link)
{
	struct link *oldest = NULL;

	link->used = true;
	pthread_mutex_lock(&linker->lock);
	if (linker->count >= LINKER_LINKS)
		TAILQ_FOREACH (oldest, &linker->links, link)
			if (!oldest->used)
				break;
	if (oldest)
		link_remove(linker, oldest);
	link_add(linker, link);
	pthread_mutex_unlock(&linker->lock);
	return oldest;
}

static CUresult link_new(struct job *job, struct link **ret_link)
{
	struct executor *executor = job->executor;
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
	link->session = job->tenant->id;
	link->number = job->message.link.link;
	link_free(executor, put_in(&executor->linker, link));
	*ret_link = link;
	return CUDA_SUCCESS;
}

/* The link as the client knows it: with position 0 a new one. It is in use then, until reply().
 * CUDA_ERROR_ILLEGAL_STATE: not so here. */
static CUresult take(struct job *job, struct link **ret_link)
{
	struct linker *linker = &job->executor->linker;
	const struct wire_link *wish = &job->message.link;
	struct link *link;

	if (job->tenant->closing)
		return CUDA_ERROR_INVALID_CONTEXT; /* nobody waits for it */
	if (!wish->position) {
		forget_links(job->executor, job->tenant->id, wish->link);
		return link_new(job, ret_link);
	}
	pthread_mutex_lock(&linker->lock);
	link = find(linker, job->tenant->id, wish->link);
	if (link && link->positions == wish->position) {
		link_remove(linker, link);
		link_add(linker, link);
		link->used = true;
	} else {
		link = NULL;
	}
	pthread_mutex_unlock(&linker->lock);
	*ret_link = link;
	return link ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

/* @link: may be NULL */
static void reply(struct job *job, CUresult code, struct link *link, const uint64_t *value)
{
	struct linker *linker = &job->executor->linker;
	const char *logs[2] = {"", ""};
	struct wire_reply reply = {.code = code, .values = {value, value ? 1 : 0}, .names = {logs, 2}};

	if (link)
		job->executor->ops->link_logs(link->backend, &logs[0], &logs[1]);
	compiler_release(job);
	job_reply_with(job, &reply);
	if (!link)
		return;
	pthread_mutex_lock(&linker->lock);
	link->used = false;
	pthread_mutex_unlock(&linker->lock);
}

/* Bytes of inputs that a session's links have. Under the lock; the session's are only used by who
 * asks. */
static uint64_t held_by(const struct linker *linker, uint64_t session)
{
	const struct link *link;
	uint64_t bytes = 0;

	TAILQ_FOREACH (link, &linker->links, link)
		bytes += link->session == session ? link->bytes : 0;
	return bytes;
}

/* The session's link that gives way for an input of one in use; NULL if there is room, or no
 * other. */
static struct link *take_out_older(struct linker *linker, const struct link *link, uint64_t bytes)
{
	struct link *older = NULL;

	pthread_mutex_lock(&linker->lock);
	if (held_by(linker, link->session) > linker->limit - bytes)
		TAILQ_FOREACH (older, &linker->links, link)
			if (older->session == link->session && older != link)
				break;
	if (older)
		link_remove(linker, older);
	pthread_mutex_unlock(&linker->lock);
	return older;
}

/* Return: false if the link alone would have more than its session may. */
static bool make_room(struct executor *executor, const struct link *link, uint64_t bytes)
{
	struct linker *linker = &executor->linker;
	struct link *older;

	if (bytes > linker->limit || link->bytes > linker->limit - bytes)
		return false;
	while ((older = take_out_older(linker, link, bytes)))
		link_free(executor, older);
	return true;
}

static CUresult add_input(struct job *job, struct link *link)
{
	const struct wire_link *wish = &job->message.link;
	struct backend_link_input input = {
		.type = wish->type, .bytes = wish->bytes, .name = wish->name, .options = &wish->own};
	uint8_t *bytes = NULL;
	CUresult code;

	if (!make_room(job->executor, link, wish->bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = module_read_file(job->packet.fd_count ? job->packet.fds[0] : -1, wish->bytes, &bytes);
	if (code)
		return code;
	input.at = bytes;
	code = executor_code(job->executor, job->executor->ops->link_add(link->backend, &input));
	free(bytes);
	/* A refused input counts for nothing, as with the driver. */
	if (!code) {
		link->positions++;
		link->bytes += wish->bytes;
	}
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
		code = bytes > LINKER_IMAGE_MAX ? CUDA_ERROR_OUT_OF_MEMORY
						: module_write_file(fd, image, bytes);
	value = bytes;
	reply(job, code, link, code ? NULL : &value);
}

static void drop(struct job *job)
{
	forget_links(job->executor, job->tenant->id, job->message.link.link);
	reply(job, CUDA_SUCCESS, NULL, NULL);
}

static void forget(struct job *job)
{
	forget_links(job->executor, job->tenant->id, 0);
	compiler_release(job);
	job_free(job);
}

/* ---- entry ---- */

void linker_init(struct executor *executor)
{
	TAILQ_INIT(&executor->linker.links);
	pthread_mutex_init(&executor->linker.lock, NULL);
	executor->linker.limit = executor_number("FRMPS_LINK_MIB", LINKER_MIB_DEFAULT, UINT64_C(1) << 30)
				 << 20;
}

void linker_deinit(struct executor *executor)
{
	struct linker *linker = &executor->linker;
	struct link *link;

	while ((link = TAILQ_FIRST(&linker->links))) {
		link_remove(linker, link);
		link_free(executor, link);
	}
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
	job->executor->linker.asked = true;
	if (!compiler_queue(job))
		job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, NULL);
}

void linker_forget(struct tenant *tenant)
{
	struct job *job = tenant->executor->linker.asked ? job_new(tenant->executor) : NULL;

	/* Without memory for it they go when room is needed. */
	if (!job)
		return;
	job->tenant = tenant_ref(tenant);
	job->answered = true;
	job->run = forget;
	if (!compiler_queue(job))
		job_free(job);
}
