// See command.h.

#include "client/trace/command.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/state/clock.h"
#include "client/state/stream_slot.h"
#include "client/trace/turn.h"

/* Each takes two of SHM_EVENTS, which programs use as well. */
#define COMMANDS 8192u

static struct {
	uint32_t (*take_event)(void);
	struct commands free, passed;
	uint32_t made;
	uint64_t untimed;
} pool;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void command_start(uint32_t (*take_event)(void))
{
	pool.take_event = take_event;
	STAILQ_INIT(&pool.free);
	STAILQ_INIT(&pool.passed);
}

/* Return: NULL: there is no memory, or there are no events. */
static struct command *make(void)
{
	struct command *command = pool.made < COMMANDS ? calloc(1, sizeof(*command)) : NULL;

	for (int i = 0; command && i < 2; ++i) {
		command->timing.events[i] = pool.take_event();
		if (!command->timing.events[i]) {
			free(command);
			return NULL;
		}
	}
	pool.made += command != NULL;
	return command;
}

static struct command *find(void)
{
	struct command *command;

	pthread_mutex_lock(&lock);
	command = STAILQ_FIRST(&pool.free);
	if (command)
		STAILQ_REMOVE_HEAD(&pool.free, next);
	else
		command = make();
	pthread_mutex_unlock(&lock);
	return command;
}

struct command *command_take(const struct client_stream *stream, bool waits)
{
	struct command *command = find();

	if (!command && waits) {
		turn_await();
		command = find();
	}
	if (!command) {
		command_count_untimed();
		return NULL;
	}
	command->timing.seqs[0] = command->timing.seqs[1] = 0;
	command->stream = stream;
	command->stream_id = stream->id;
	command->submitted = clock_now_ns();
	command->lost_since = 0;
	return command;
}

void command_give(struct command *command)
{
	pthread_mutex_lock(&lock);
	STAILQ_INSERT_HEAD(&pool.free, command, next);
	pthread_mutex_unlock(&lock);
}

void command_pass(struct command *command)
{
	pthread_mutex_lock(&lock);
	STAILQ_INSERT_TAIL(&pool.passed, command, next);
	pthread_mutex_unlock(&lock);
}

bool command_collect(struct commands *to)
{
	bool any;

	pthread_mutex_lock(&lock);
	any = !STAILQ_EMPTY(&pool.passed);
	STAILQ_CONCAT(to, &pool.passed);
	pthread_mutex_unlock(&lock);
	return any;
}

bool command_has_passed(void)
{
	bool has;

	pthread_mutex_lock(&lock);
	has = !STAILQ_EMPTY(&pool.passed);
	pthread_mutex_unlock(&lock);
	return has;
}

void command_count_untimed(void)
{
	pthread_mutex_lock(&lock);
	++pool.untimed;
	pthread_mutex_unlock(&lock);
}

uint64_t command_untimed(void)
{
	uint64_t untimed;

	pthread_mutex_lock(&lock);
	untimed = pool.untimed;
	pool.untimed = 0;
	pthread_mutex_unlock(&lock);
	return untimed;
}
