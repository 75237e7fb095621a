// See trace.h. The numbers of commands under way (command.h) and of bytes that are not written yet
// (file.h) are bounded. A thread that finds no room waits for a turn of the trace's thread
// (turn.h). If there is still no room, because the device or the disk is behind, a command is not
// timed or an event is lost, and the file says so.
//
// The trace's thread sleeps while nothing is under way. Otherwise it takes a turn every few
// milliseconds, so a program that is killed loses little.

#include "client/trace/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/state/clock.h"
#include "client/state/helper.h"
#include "client/state/log.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/state/uncancelled.h"
#include "client/submit/encode.h"
#include "client/trace/command.h"
#include "client/trace/device.h"
#include "client/trace/file.h"
#include "client/trace/track.h"
#include "client/trace/turn.h"

/* Between two turns. */
#define PAUSE_NS UINT64_C(2000000)
/* How long times are waited for when the process ends. */
#define LAST_NS UINT64_C(200000000)
/* Shorter calls that gave the device nothing are left out: programs poll. */
#define CALL_NS UINT64_C(1000)

word32 trace_on;

static struct {
	bool begun, runs; /* with the first session; there is a thread */
	/* The thread's. */
	bool says_losses;
} trace;

static _Atomic uint64_t ids; /* the latest id of a command */

static __thread struct {
	uint64_t first;	     /* command of the call that runs; 0: none */
	const char *name;    /* of that command */
	unsigned int ranges; /* that are open */
} self;

/* Something was put into the file. */
static void wake(void)
{
	turn_wake();
	if (trace_file_is_crowded())
		turn_await();
}

/*
 * Calls and marks of the program
 */

struct trace_call trace_call_begin(const char *name)
{
	self.first = 0;
	return (struct trace_call){name, clock_now_ns()};
}

void trace_call_end(const struct trace_call *call)
{
	uint64_t end = clock_now_ns();
	struct trace_line line;

	if (!trace_is_on() || (!self.first && end - call->begin < CALL_NS))
		return;
	track_begin(&line, "X", track_of_thread(), call->begin, call->name);
	line_add(&line, ",\"dur\":");
	line_add_time(&line, end - call->begin);
	line_add(&line, ",\"cat\":\"call\"");
	if (self.first) {
		line_add(&line,
			",\"args\":{\"correlation\":%llu,\"command\":", (unsigned long long)self.first);
		line_add_string(&line, self.name);
		line_add(&line, "}");
	}
	self.first = 0;
	track_end(&line);
	wake();
}

static void put_mark(const char *phase, const char *name)
{
	struct trace_line line;

	track_begin(&line, phase, track_of_thread(), clock_now_ns(), name);
	line_add(&line, ",\"cat\":\"nvtx\"%s", *phase == 'i' ? ",\"s\":\"t\"" : "");
	track_end(&line);
	wake();
}

void trace_push(const char *name)
{
	put_mark("B", name);
	++self.ranges;
}

void trace_pop(void)
{
	/* The range may have begun before the trace. */
	if (!self.ranges)
		return;
	--self.ranges;
	put_mark("E", "");
}

void trace_mark(const char *name)
{
	put_mark("i", name);
}

/*
 * Commands
 */

/* Return: NULL: the command is not timed. */
static struct command *begin(const struct client_stream *stream, const char *kind, const char *name)
{
	struct command *command = command_take(stream, true);

	if (!command)
		return NULL;
	command->id = ++ids;
	command->thread = track_of_thread();
	command->kind = kind;
	command->details[0] = '\0';
	snprintf(command->name, sizeof(command->name), "%s", name);
	if (!self.first) {
		self.first = command->id;
		self.name = name;
	}
	return command;
}

struct submit_timing *trace_launch(const struct launch *launch, const struct client_stream *stream)
{
	struct command *command = begin(stream, "kernel", launch->function->name);

	if (!command)
		return NULL;
	snprintf(command->details, sizeof(command->details),
		",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"shared_bytes\":%u", launch->grid[0],
		launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
		launch->shared_bytes);
	return &command->timing;
}

enum memory { DEVICE, PINNED, PAGEABLE };

/* Pageable memory goes through the arena, in pieces. */
static enum memory memory_of(uint32_t kind, uint32_t arena, uint32_t host)
{
	return kind & arena ? PAGEABLE : kind & host ? PINNED : DEVICE;
}

struct submit_timing *trace_copy(uint64_t bytes, uint32_t kind, const struct client_stream *stream)
{
	static const char *const names[2][2] = {{"copy DtoD", "copy DtoH"}, {"copy HtoD", "copy HtoH"}};
	static const char *const memories[] = {"device", "pinned", "pageable"};
	enum memory from = memory_of(kind, FRMPS_COPY_SRC_ARENA, FRMPS_COPY_SRC_HOST);
	enum memory to = memory_of(kind, FRMPS_COPY_DST_ARENA, FRMPS_COPY_DST_HOST);
	struct command *command = begin(stream, "copy", names[from != DEVICE][to != DEVICE]);

	if (!command)
		return NULL;
	snprintf(command->details, sizeof(command->details), ",\"bytes\":%llu,\"from\":\"%s\",\"to\":\"%s\"",
		(unsigned long long)bytes, memories[from], memories[to]);
	return &command->timing;
}

struct submit_timing *trace_fill(uint64_t bytes, const struct client_stream *stream)
{
	struct command *command = begin(stream, "fill", "fill");

	if (!command)
		return NULL;
	snprintf(command->details, sizeof(command->details), ",\"bytes\":%llu", (unsigned long long)bytes);
	return &command->timing;
}

struct submit_timing *trace_graph(uint32_t nodes, const struct client_stream *stream)
{
	struct command *command = begin(stream, "graph", "graph");

	if (!command)
		return NULL;
	snprintf(command->details, sizeof(command->details), ",\"nodes\":%u", nodes);
	return &command->timing;
}

CUresult trace_submitted(struct submit_timing *timing, CUresult result)
{
	struct command *command = (struct command *)timing;

	if (!command)
		return result;
	if (result != CUDA_SUCCESS) {
		command_give(command);
		return result;
	}
	command_pass(command);
	turn_wake();
	return CUDA_SUCCESS;
}

/*
 * The thread
 */

/* A remark about the whole process. */
static void put_moment(const char *name)
{
	struct trace_line line;

	track_begin(&line, "i", track_of_process(), clock_now_ns(), name);
	line_add(&line, ",\"s\":\"p\",\"cat\":\"trace\"");
	track_end(&line);
}

static void look_for_error(struct session *session)
{
	CUresult code = process_session_error(session);
	char text[128];

	if (code == CUDA_SUCCESS || session->clocks.over)
		return;
	snprintf(text, sizeof(text), "error %d: the session is over, %llu commands have no end", (int)code,
		(unsigned long long)device_give_up(session));
	put_moment(text);
}

static void look_for_losses(void)
{
	uint64_t lost = trace_file_lost(), untimed = command_untimed();
	char text[128];

	if (!lost && !untimed)
		return;
	snprintf(text, sizeof(text), "%llu commands without times, %llu events lost",
		(unsigned long long)untimed, (unsigned long long)lost);
	put_moment(text);
	if (!trace.says_losses)
		client_log(CLIENT_LOG_ERROR, "the trace is not complete: %s", text);
	trace.says_losses = true;
}

static bool is_idle(void)
{
	return !command_has_passed() && !device_waits() && !trace_file_has_text();
}

static void *run(void *unused)
{
	bool closing, last = false;
	uint64_t since;

	(void)unused;
	while (!last) {
		turn_begin(is_idle, &closing, &since);
		device_look(clock_now_ns());
		SESSION_FOREACH (session)
			look_for_error(session);
		last = !trace_file_write();
		/* There is room for the remark now. */
		look_for_losses();
		last |= closing && (is_idle() || since > LAST_NS);
		if (last) {
			word_set(&trace_on, 0);
			trace_file_close();
		}
		turn_end(last);
		uncancelled_sleep(PAUSE_NS);
	}
	return NULL;
}

/*
 * Begin and end
 */

static void leave(void)
{
	if (!trace.runs)
		return;
	word_set(&trace_on, 0);
	turn_close();
}

/* The child has neither the thread nor a session. */
static void child_after_fork(void)
{
	word_set(&trace_on, 0);
	trace.runs = false;
	trace_file_close();
}

/* Once, with the first session. */
static void begin_trace(uint32_t (*take_event)(void))
{
	/* Not for a program with another user's rights: its caller must not choose the file. */
	const char *path = secure_getenv("FRMPS_TRACE");

	if (!path || !*path || !trace_file_open(path))
		return;
	command_start(take_event);
	device_start();
	track_start();
	if (pthread_atfork(NULL, NULL, child_after_fork) != 0 || atexit(leave) != 0 ||
		helper_start(run, NULL) != CUDA_SUCCESS) {
		client_log(CLIENT_LOG_ERROR, "there is no trace: out of memory");
		trace_file_close();
		return;
	}
	trace.runs = true;
	word_release(&trace_on, 1);
}

void trace_start(uint32_t (*take_event)(void), struct client_stream *(*make_stream)(void))
{
	if (!trace.begun)
		begin_trace(take_event);
	trace.begun = true;
	if (trace.runs)
		device_join(session_self(), make_stream());
}
