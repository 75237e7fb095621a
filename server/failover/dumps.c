// See dumps.h.

#include "server/failover/dumps.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "server/loop/watch.h"

#define WRITTEN (IN_MODIFY | IN_CLOSE_WRITE)

struct dumps {
	struct watch *watch;
	int fd; /* the watch's */
	dumps_fn *written;
	void *context;
};

/* Files without names: every event has the same size. */
static void on_events(void *context)
{
	struct dumps *dumps = context;
	struct inotify_event events[32];
	ssize_t length;

	while ((length = read(dumps->fd, events, sizeof(events))) > 0)
		for (size_t i = 0; i < (size_t)length / sizeof(*events); i++)
			if (events[i].mask & WRITTEN)
				dumps->written(dumps->context, events[i].wd);
}

struct dumps *dumps_new(struct uv_loop_s *loop, dumps_fn *written, void *context)
{
	struct dumps *dumps = calloc(1, sizeof(*dumps));
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	if (!dumps || fd < 0) {
		if (fd >= 0)
			close(fd);
		free(dumps);
		return NULL;
	}
	*dumps = (struct dumps){.fd = fd, .written = written, .context = context};
	dumps->watch = watch_new(loop, fd, on_events, dumps);
	return dumps->watch ? dumps : dumps_free(dumps);
}

struct dumps *dumps_free(struct dumps *dumps)
{
	if (dumps)
		watch_free(dumps->watch);
	free(dumps);
	return NULL;
}

int dumps_watch(struct dumps *dumps, int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return dumps ? inotify_add_watch(dumps->fd, path, WRITTEN) : -1;
}

void dumps_forget(struct dumps *dumps, int id)
{
	if (dumps && id >= 0)
		inotify_rm_watch(dumps->fd, id);
}
