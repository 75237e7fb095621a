// See turn_end.h.

#include "server/loop/turn_end.h"

#include <stdlib.h>
#include <uv.h>

struct turn_end {
	uv_prepare_t before; /* the loop waits */
	uv_check_t after;
	void (*fire)(void *context);
	void *context;
	unsigned open;
};

static void on_before(uv_prepare_t *handle)
{
	struct turn_end *turn_end = handle->data;

	turn_end->fire(turn_end->context);
}

static void on_after(uv_check_t *handle)
{
	struct turn_end *turn_end = handle->data;

	turn_end->fire(turn_end->context);
}

struct turn_end *turn_end_new(struct uv_loop_s *loop, void (*fire)(void *context), void *context)
{
	struct turn_end *turn_end = calloc(1, sizeof(*turn_end));

	if (!turn_end)
		return NULL;
	turn_end->fire = fire;
	turn_end->context = context;
	turn_end->open = 2;
	turn_end->before.data = turn_end->after.data = turn_end;
	/* None of these calls fails. */
	uv_prepare_init(loop, &turn_end->before);
	uv_check_init(loop, &turn_end->after);
	uv_prepare_start(&turn_end->before, on_before);
	uv_check_start(&turn_end->after, on_after);
	uv_unref((uv_handle_t *)&turn_end->before);
	uv_unref((uv_handle_t *)&turn_end->after);
	return turn_end;
}

static void on_close(uv_handle_t *handle)
{
	struct turn_end *turn_end = handle->data;

	if (!--turn_end->open)
		free(turn_end);
}

struct turn_end *turn_end_free(struct turn_end *turn_end)
{
	if (!turn_end)
		return NULL;
	uv_close((uv_handle_t *)&turn_end->before, on_close);
	uv_close((uv_handle_t *)&turn_end->after, on_close);
	return NULL;
}
