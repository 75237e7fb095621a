// Readability over uv_poll_t. See watch.h.

#include "server/loop/watch.h"

#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

struct watch {
	uv_poll_t handle;
	int fd;
	void (*readable)(void *context);
	void *context;
};

static void on_poll(uv_poll_t *handle, int status, int events)
{
	struct watch *watch = handle->data;

	(void)status;
	(void)events;
	watch->readable(watch->context);
}

static void on_close(uv_handle_t *handle)
{
	free(handle->data);
}

struct watch *watch_new(struct uv_loop_s *loop, int fd, void (*readable)(void *context), void *context)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch || uv_poll_init(loop, &watch->handle, fd) < 0) {
		free(watch);
		close(fd);
		return NULL;
	}
	watch->fd = fd;
	watch->readable = readable;
	watch->context = context;
	watch->handle.data = watch;
	watch_resume(watch);
	return watch;
}

int watch_fd(const struct watch *watch)
{
	return watch->fd;
}

void watch_pause(struct watch *watch)
{
	uv_poll_stop(&watch->handle);
}

void watch_resume(struct watch *watch)
{
	uv_poll_start(&watch->handle, UV_READABLE, on_poll);
}

struct watch *watch_free(struct watch *watch)
{
	if (!watch)
		return NULL;
	uv_poll_stop(&watch->handle);
	uv_close((uv_handle_t *)&watch->handle, on_close);
	close(watch->fd);
	return NULL;
}
