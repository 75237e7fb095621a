// See output.h.

#include "server/worker/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/holder/store.h"
#include "server/identity.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/loop/watch.h"
#include "server/worker/crew.h"
#include "server/worker/worker.h"

#define MINUTE_MS 60000u

struct output {
	const struct worker *worker;
	struct watch *watch;
	struct timer *timer; /* a minute, from its first line on */
	int fd;		     /* the watch's */
	unsigned lines;	     /* in this minute */
	size_t length;	     /* of the line that has not ended yet */
	char line[2000];
};

static unsigned lines_max(const struct worker *worker)
{
	return worker->crew->heritage->log_level >= LOG_LEVEL_DEBUG ? OUTPUT_LINES_DEBUG : OUTPUT_LINES;
}

static bool may_write(const struct output *output)
{
	return output->lines < lines_max(output->worker);
}

static void log_line(struct output *output)
{
	const struct worker *worker = output->worker;
	char name[64], uid[16];
	const struct log_field fields[] = {{"USER", uid}};

	if (!output->lines++)
		timer_start(output->timer, MINUTE_MS);
	output->line[output->length] = '\0';
	snprintf(uid, sizeof(uid), "%u", (unsigned)worker->identity->uid);
	snprintf(name, sizeof(name), "frmps executor of user %s", uid);
	if (output->length)
		log_relay(name, worker->pid, fields, 1, output->line);
	output->length = 0;
}

/* A line without room is continued in another one. */
static void take(struct output *output, const char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (bytes[i] != '\n')
			output->line[output->length++] = bytes[i];
		if (bytes[i] == '\n' || output->length == sizeof(output->line) - 1)
			log_line(output);
	}
}

/* Few bytes at a time: others wait for the daemon. Return: false if there is nothing to be read
 * now */
static bool hear(struct output *output)
{
	char bytes[4096];
	ssize_t n = read(output->fd, bytes, sizeof(bytes));

	if (n > 0)
		take(output, bytes, (size_t)n);
	/* The end of the pipe would be readable for ever. */
	if (n == 0)
		watch_pause(output->watch);
	return n > 0;
}

static void on_readable(void *context)
{
	struct output *output = context;
	const struct worker *worker = output->worker;

	hear(output);
	if (may_write(output))
		return;
	watch_pause(output->watch);
	log_warning(
		"executor %d of user %u writes more than %u lines a minute: the daemon leaves the rest in "
		"the pipe until the minute is over, and what finds no room there is lost",
		(int)worker->pid, (unsigned)worker->identity->uid, lines_max(worker));
}

static void on_minute(void *context)
{
	struct output *output = context;

	output->lines = 0;
	watch_resume(output->watch);
}

/* @fd: taken over. Return: 0 or -errno */
static int listen_to(struct worker *worker, int fd)
{
	struct output *output = calloc(1, sizeof(*output));

	if (!output) {
		close(fd);
		return -ENOMEM;
	}
	*output = (struct output){.worker = worker, .fd = fd};
	worker->output = output;
	output->watch = watch_new(worker->crew->loop, fd, on_readable, output);
	output->timer = timer_new(worker->crew->loop, on_minute, output);
	if (output->watch)
		return 0;
	output_free(worker);
	return -ENOMEM;
}

int output_make(struct worker *worker, int *ret_fd)
{
	int ends[2], r;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	r = store_deposit(worker->crew->store, ends[0], &worker->output_key);
	if (r)
		close(ends[0]);
	r = r ? r : listen_to(worker, ends[0]);
	if (r) {
		close(ends[1]);
		return r;
	}
	*ret_fd = ends[1];
	return 0;
}

void output_watch(struct worker *worker, int fd)
{
	if (listen_to(worker, fd))
		log_warning("executor %d: no memory for what it writes", (int)worker->pid);
}

void output_drain(struct worker *worker)
{
	struct output *output = worker->output;

	if (!output)
		return;
	while (may_write(output) && hear(output))
		;
	if (output->length)
		log_line(output);
}

void output_free(struct worker *worker)
{
	struct output *output = worker->output;

	if (!output)
		return;
	watch_free(output->watch);
	timer_free(output->timer);
	free(output);
	worker->output = NULL;
}
