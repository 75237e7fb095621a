// See compiler.h.

#include "server/executor/compiler.h"

#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "server/executor/tenant.h"
#include "server/log.h"

/* Compilations at a time: at least two, so that one alone cannot hold up the next. */
#define LIMIT_LEAST 2u
#define LIMIT_MOST  8u
/* Compilers go deeper with every bracket of a text, which is the client's. What is not used takes
 * no memory. */
#define STACK_BYTES (UINT64_C(64) << 20)

/* All under the lock. */

static bool is_compiling(const struct compiler *compiler, const struct tenant *tenant)
{
	for (unsigned i = 0; i < compiler->count; i++)
		if (compiler->threads[i].tenant == tenant)
			return true;
	return false;
}

/* Threads that count towards the limit. */
static unsigned counted(const struct compiler *compiler)
{
	unsigned count = 0;

	for (unsigned i = 0; i < compiler->count; i++) {
		const struct tenant *tenant = compiler->threads[i].tenant;

		count += tenant && !tenant->closing;
	}
	return count;
}

static bool has_idle(const struct compiler *compiler)
{
	return is_compiling(compiler, NULL);
}

/* The first job that may run now; NULL if there is none. */
static struct job *find_job(const struct compiler *compiler)
{
	bool full = counted(compiler) >= compiler->limit;
	struct job *job;

	TAILQ_FOREACH (job, &compiler->queue, link)
		if (!is_compiling(compiler, job->tenant) && (!full || job->tenant->closing))
			break;
	return job;
}

static void *work(void *argument);

/* Return: 0 or an error number. */
static int start(struct compiler_thread *thread)
{
	pthread_attr_t attributes;
	int error = pthread_attr_init(&attributes);

	if (error)
		return error;
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	error = pthread_create(&thread->thread, &attributes, work, thread);
	pthread_attr_destroy(&attributes);
	return error;
}

/* Makes a thread if a job waits for nothing else. Return: 0 or an error number. */
static int grow(struct executor *executor)
{
	struct compiler *compiler = &executor->compiler;
	struct compiler_thread *thread = &compiler->threads[compiler->count];
	int error;

	if (compiler->stop || !find_job(compiler) || has_idle(compiler) ||
		compiler->count == COMPILER_THREADS_MAX)
		return 0;
	*thread = (struct compiler_thread){.executor = executor};
	error = start(thread);
	if (error)
		log_error("no thread to compile in: %s", strerror(error));
	else
		compiler->count++;
	return error;
}

/* ---- threads ---- */

/* Waits for a job and marks the thread with its tenant. NULL at the end. */
static struct job *next_job(struct compiler_thread *thread)
{
	struct compiler *compiler = &thread->executor->compiler;
	struct job *job = NULL;

	pthread_mutex_lock(&compiler->lock);
	while (!compiler->stop && !(job = find_job(compiler)))
		pthread_cond_wait(&compiler->more, &compiler->lock);
	if (compiler->stop)
		job = NULL;
	if (job) {
		TAILQ_REMOVE(&compiler->queue, job, link);
		thread->tenant = tenant_ref(job->tenant);
		thread->job = job;
		/* Somebody else for the next one. */
		grow(thread->executor);
	}
	pthread_mutex_unlock(&compiler->lock);
	return job;
}

static void done(struct compiler_thread *thread)
{
	struct compiler *compiler = &thread->executor->compiler;
	struct tenant *tenant = thread->tenant;

	pthread_mutex_lock(&compiler->lock);
	thread->tenant = NULL;
	pthread_cond_broadcast(&compiler->more);
	pthread_mutex_unlock(&compiler->lock);
	tenant_unref(tenant);
}

static void *work(void *argument)
{
	struct compiler_thread *thread = argument;
	struct executor *executor = thread->executor;
	struct job *job;

	prctl(PR_SET_NAME, "frmps-compile");
	executor_code(executor, executor->ops->thread_enter());
	while ((job = next_job(thread))) {
		if (executor_is_lost(executor)) {
			compiler_release(job);
			job_free(job);
		} else {
			job->run(job);
		}
		done(thread);
	}
	return NULL;
}

/* ---- entry ---- */

static unsigned default_limit(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN) / 2;

	return processors < (long)LIMIT_LEAST  ? LIMIT_LEAST
	       : processors > (long)LIMIT_MOST ? LIMIT_MOST
					       : (unsigned)processors;
}

void compiler_init(struct executor *executor)
{
	struct compiler *compiler = &executor->compiler;

	TAILQ_INIT(&compiler->queue);
	pthread_mutex_init(&compiler->lock, NULL);
	pthread_cond_init(&compiler->more, NULL);
	compiler->limit =
		(unsigned)executor_number("FRMPS_COMPILE_THREADS", default_limit(), COMPILER_THREADS_MAX / 2);
	if (!compiler->limit)
		compiler->limit = 1;
}

void compiler_stop(struct executor *executor)
{
	struct compiler *compiler = &executor->compiler;
	struct job *job;

	pthread_mutex_lock(&compiler->lock);
	compiler->stop = true;
	pthread_cond_broadcast(&compiler->more);
	pthread_mutex_unlock(&compiler->lock);
	for (unsigned i = 0; i < compiler->count; i++)
		pthread_join(compiler->threads[i].thread, NULL);
	compiler->count = 0;
	while ((job = TAILQ_FIRST(&compiler->queue))) {
		TAILQ_REMOVE(&compiler->queue, job, link);
		job_free(job);
	}
}

void compiler_deinit(struct executor *executor)
{
	pthread_cond_destroy(&executor->compiler.more);
	pthread_mutex_destroy(&executor->compiler.lock);
}

bool compiler_queue(struct job *job)
{
	struct executor *executor = job->executor;
	struct compiler *compiler = &executor->compiler;
	bool queued = true, dropped, late;

	pthread_mutex_lock(&compiler->lock);
	dropped = compiler->stop;
	/* compiler_forget() has been here. */
	late = !dropped && job->tenant->closing && !job->answered;
	if (!dropped && !late) {
		TAILQ_INSERT_TAIL(&compiler->queue, job, link);
		if (grow(executor) && !compiler->count) {
			TAILQ_REMOVE(&compiler->queue, job, link);
			queued = false;
		}
		pthread_cond_broadcast(&compiler->more);
	}
	pthread_mutex_unlock(&compiler->lock);
	if (dropped)
		job_free(job);
	if (late)
		job_reply(job, CUDA_ERROR_INVALID_CONTEXT, NULL, 0, NULL);
	return queued;
}

void compiler_release(struct job *job)
{
	struct compiler *compiler = &job->executor->compiler;

	pthread_mutex_lock(&compiler->lock);
	for (unsigned i = 0; i < compiler->count; i++)
		if (compiler->threads[i].job == job)
			compiler->threads[i].job = NULL;
	pthread_mutex_unlock(&compiler->lock);
}

void compiler_forget(struct tenant *tenant)
{
	struct compiler *compiler = &tenant->executor->compiler;
	struct job *job, *next;

	pthread_mutex_lock(&compiler->lock);
	for (job = TAILQ_FIRST(&compiler->queue); job; job = next) {
		next = TAILQ_NEXT(job, link);
		if (job->tenant != tenant)
			continue;
		TAILQ_REMOVE(&compiler->queue, job, link);
		job_reply(job, CUDA_ERROR_INVALID_CONTEXT, NULL, 0, NULL);
	}
	for (unsigned i = 0; i < compiler->count; i++)
		if (compiler->threads[i].job && compiler->threads[i].tenant == tenant)
			job_answer_early(compiler->threads[i].job, CUDA_ERROR_INVALID_CONTEXT);
	grow(tenant->executor);
	pthread_cond_broadcast(&compiler->more);
	pthread_mutex_unlock(&compiler->lock);
}
