// See device.h.

#include "client/trace/device.h"

#include "client/state/session.h"
#include "client/state/timing.h"
#include "client/trace/align.h"
#include "client/trace/command.h"
#include "client/trace/file.h"
#include "client/trace/track.h"

/* Between two looks at where the clocks are. */
#define ALIGN_NS UINT64_C(100000000)
/* How long a replaced executor may still write times. */
#define LATE_NS UINT64_C(20000000)
/* The translation of the clocks changes a little from command to command. Overlaps of commands in a
 * stream up to this length come of that, and are removed. */
#define ROUNDING_NS UINT64_C(20000)

static struct {
	struct commands pending;
	uint64_t ends[SHM_STREAMS];  /* host's ns: of the latest command that was written */
	uint64_t named[SHM_STREAMS]; /* id of the stream that has a track; 0: none */
} device;

struct times {
	uint64_t epoch, begin, end;
};

enum outcome { THERE, MISSING, NEVER };

static bool read_record(const struct command *command, int which, uint64_t *ret_epoch, uint64_t *ret_ns)
{
	uint64_t seq = command->timing.seqs[which];

	return timing_read(command->stream, command->timing.events[which],
		shm_place(command->stream->slot, seq), ret_epoch, ret_ns);
}

/* The executor that made the record may have ended before it wrote the time. */
static enum outcome look_at_lost(struct command *command, int which, uint64_t now)
{
	if (!timing_is_orphaned(command->stream, command->timing.seqs[which]))
		return MISSING;
	if (!command->lost_since)
		command->lost_since = now;
	return now - command->lost_since > LATE_NS ? NEVER : MISSING;
}

static enum outcome look_at(struct command *command, uint64_t now, struct times *ret)
{
	uint64_t last;

	if (!read_record(command, 0, &ret->epoch, &ret->begin))
		return look_at_lost(command, 0, now);
	if (!read_record(command, 1, &last, &ret->end))
		return look_at_lost(command, 1, now);
	/* An executor did not know a time, or the two times are of two executors. */
	return ret->epoch && ret->epoch == last ? THERE : NEVER;
}

/* An arrow from the call to the command. */
static void put_arrow(const struct command *command, uint64_t track, uint64_t begin)
{
	unsigned long long id = command->id;
	struct trace_line line;

	track_begin(&line, "s", command->thread, command->submitted, "launch");
	line_add(&line, ",\"cat\":\"launch\",\"id\":%llu", id);
	track_end(&line);
	track_begin(&line, "f", track, begin, "launch");
	line_add(&line, ",\"cat\":\"launch\",\"bp\":\"e\",\"id\":%llu", id);
	track_end(&line);
}

static void name_stream(const struct command *command)
{
	uint32_t slot = command->stream->slot;

	if (device.named[slot] == command->stream_id)
		return;
	device.named[slot] = command->stream_id;
	device.ends[slot] = 0;
	track_name_stream(command->stream_id, command->stream == command->stream->session->streams.legacy);
}

static void put_command(const struct command *command, const struct times *times)
{
	uint64_t track = track_of_stream(command->stream_id), begin;
	uint64_t *end = &device.ends[command->stream->slot];
	struct align *align = &command->stream->session->clocks.align;
	struct trace_line line;

	name_stream(command);
	align_see(align, times->epoch, command->submitted, times->begin);
	begin = align_host(align, times->begin);
	if (begin < *end && *end - begin < ROUNDING_NS)
		begin = *end;
	*end = begin + times->end - times->begin;
	track_begin(&line, "X", track, begin, command->name);
	line_add(&line, ",\"dur\":");
	line_add_time(&line, *end - begin);
	line_add(&line, ",\"cat\":\"%s\",\"args\":{\"correlation\":%llu,\"stream\":%llu%s}", command->kind,
		(unsigned long long)command->id, (unsigned long long)command->stream_id, command->details);
	track_end(&line);
	put_arrow(command, track, begin);
}

/* Streams come to their commands in order: behind one whose time is missing nothing is looked
 * at. */
static void settle(uint64_t now)
{
	struct commands left = STAILQ_HEAD_INITIALIZER(left);
	uint64_t behind[SHM_STREAMS / 64] = {0};
	struct command *command;

	while ((command = STAILQ_FIRST(&device.pending))) {
		uint64_t *word = &behind[command->stream->slot / 64];
		uint64_t bit = UINT64_C(1) << command->stream->slot % 64;
		struct times times;
		enum outcome outcome = *word & bit ? MISSING : look_at(command, now, &times);

		STAILQ_REMOVE_HEAD(&device.pending, next);
		/* It was counted, or came later. */
		if (outcome == MISSING && command->stream->session->clocks.over) {
			command_give(command);
			continue;
		}
		if (outcome == MISSING) {
			*word |= bit;
			STAILQ_INSERT_TAIL(&left, command, next);
			continue;
		}
		if (trace_file_is_crowded())
			trace_file_write();
		if (outcome == THERE)
			put_command(command, &times);
		else
			command_count_untimed();
		command_give(command);
	}
	STAILQ_CONCAT(&device.pending, &left);
}

/* The device makes a record at once in a stream that has nothing else. */
static void record_clocks(struct trace_clocks *clocks, uint64_t now)
{
	struct client_stream *stream = clocks->stream;
	struct command *command = command_take(stream, false);
	struct submit submit;

	clocks->begun = now;
	if (!command)
		return;
	if (!submit_try_own(stream, FRMPS_OP_EVENT_RECORD, sizeof(struct frmps_event_record),
		    word_relaxed(&stream->seq), &submit)) {
		command_give(command);
		return;
	}
	*(struct frmps_event_record *)submit.body =
		(struct frmps_event_record){.event = command->timing.events[0], .flags = FRMPS_EVENT_TIMING};
	submit.head->flags |= FRMPS_CMD_MARK;
	command->timing.seqs[0] = submit.seq;
	submit_commit_own(&submit);
	clocks->command = command;
}

/* @wanted: whether the program gives devices work. A record of the shim's own is work as well, and
 * the service suspends no program that has work. */
static void look_at_clocks(struct trace_clocks *clocks, uint64_t now, bool wanted)
{
	struct command *command = clocks->command;
	uint64_t epoch, ns;

	if (!command) {
		if ((wanted || !clocks->align.epoch) && clocks->stream && now - clocks->begun >= ALIGN_NS)
			record_clocks(clocks, now);
		return;
	}
	if (read_record(command, 0, &epoch, &ns)) {
		if (epoch)
			align_see(&clocks->align, epoch, command->submitted, ns);
	} else if (look_at_lost(command, 0, now) == MISSING) {
		return;
	}
	command_give(command);
	clocks->command = NULL;
}

void device_start(void)
{
	STAILQ_INIT(&device.pending);
}

void device_join(struct session *session, struct client_stream *stream)
{
	session->clocks.stream = stream;
}

void device_look(uint64_t now)
{
	bool wanted = command_collect(&device.pending);

	settle(now);
	SESSION_FOREACH (session)
		if (!session->clocks.over)
			look_at_clocks(&session->clocks, now, wanted);
}

bool device_waits(void)
{
	bool waits = !STAILQ_EMPTY(&device.pending);

	SESSION_FOREACH (session)
		waits |= !session->clocks.over && session->clocks.command;
	return waits;
}

uint64_t device_give_up(struct session *session)
{
	const struct command *command;
	uint64_t count = 0;

	STAILQ_FOREACH (command, &device.pending, next)
		count += command->stream->session == session;
	session->clocks.over = true;
	return count;
}
