// See turn_end.h.

#include "server/loop/turn_end.h"

#include <stdlib.h>
#include <uv.h>

struct turn_end {
	uv_prepare_t before; /* the loop waits */
	uv_check_t after;
	const struct turn_end_steps *steps;
	void *context;
	TAILQ_HEAD(, turn_end_member) members;
	unsigned open;
};

static void send_all(struct turn_end *turn_end)
{
	struct turn_end_member *member;

	TAILQ_FOREACH (member, &turn_end->members, link)
		member->send(member);
}

/* After all messages: a message may be the answer to one on another socket. */
static void take_off_all(struct turn_end *turn_end)
{
	struct turn_end_member *member;

	while ((member = TAILQ_FIRST(&turn_end->members))) {
		TAILQ_REMOVE(&turn_end->members, member, link);
		member->is_listed = false;
		member->take_off(member);
	}
}

static void end(struct turn_end *turn_end)
{
	do {
		turn_end->steps->change(turn_end->context);
		turn_end->steps->record(turn_end->context);
		send_all(turn_end);
	} while (turn_end->steps->answered(turn_end->context));
	take_off_all(turn_end);
}

void turn_end_now(struct turn_end *turn_end)
{
	turn_end->steps->record(turn_end->context);
	send_all(turn_end);
	take_off_all(turn_end);
}

void turn_end_join(struct turn_end *turn_end, struct turn_end_member *member)
{
	if (member->is_listed)
		return;
	member->is_listed = true;
	TAILQ_INSERT_TAIL(&turn_end->members, member, link);
}

static void on_before(uv_prepare_t *handle)
{
	end(handle->data);
}

static void on_after(uv_check_t *handle)
{
	end(handle->data);
}

struct turn_end *turn_end_new(struct uv_loop_s *loop, const struct turn_end_steps *steps, void *context)
{
	struct turn_end *turn_end = calloc(1, sizeof(*turn_end));

	if (!turn_end)
		return NULL;
	turn_end->steps = steps;
	turn_end->context = context;
	turn_end->open = 2;
	TAILQ_INIT(&turn_end->members);
	turn_end->before.data = turn_end->after.data = loop->data = turn_end;
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
	send_all(turn_end);
	take_off_all(turn_end);
	uv_close((uv_handle_t *)&turn_end->before, on_close);
	uv_close((uv_handle_t *)&turn_end->after, on_close);
	return NULL;
}

struct turn_end *turn_end_of(const struct uv_loop_s *loop)
{
	return loop->data;
}
