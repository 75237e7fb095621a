// A session passes to this executor. Main thread; no thread serves the session meanwhile. The
// daemon sends Activate when no word of the session can change any more: the former executor is
// reaped; or the former executor has reported that it issues nothing more, and all commands that
// were issued for this session are done (fault/halt.c). So every word here is final. Only a culprit
// may still have work in a former executor that is dying: a culprit's words are not read.
//
// Known per stream, written by the former executor or its device:
//   journaled    copied from the ring
//   issued       handed to the driver; or, for commands held in software, settled: then also done
//   done         in the former generation's timeline, if not beyond `marked`
//   host_ready   all commands before this host function are done
// `done` is downward closed over all streams without looking at waits, because a mark lies in front
// of every driver event (retire.c).
//
// In flight (in doubt) per stream: the issued commands behind `done`, up to
//   - the first command with a mark behind (FRMPS_CMD_MARK in the journal): the mark did not
//     arrive, so no command behind the mark has begun;
//   - a wait for a command of another stream that is not done: the wait did not pass, so no command
//     behind the wait has begun.
// Issued commands beyond are as good as never issued.
//
// Then:
//   1. adopt the journals; take back updates of graphs that are not done (graph_change.c); check
//      every record that will be issued again as if it came from a ring
//   2. culprit, or kernels that ran beside a fault that is not explained, or a broken journal:
//      FAULTED
//   3. nothing in flight: go on. Otherwise repeat.c must prove that all commands in flight may be
//      repeated; if not: FAULTED with the fault's code and a reason that names the command
//   4. variables of modules in the context are lost: variables whose addresses the program has
//      asked for, and variables that kernels may have written (remains.c). If there are any, and a
//      command of the session was ever issued, FAULTED. Constants get the values of their mirrors
//      (constant.c)
//   5. write `done` into the new generation's timeline, then release `generation`, then set issued
//      and marked back to done, then state = RUNNING
//   6. when all sessions of the Activate are that far: give each to its serving thread, which
//      issues commands done+1 … again, then wake the client. Before that no session issues and no
//      client is woken, so the steps for the next session have the driver and the processors to
//      themselves
//   7. answer, then have the sinks filled (guard_watch.c): the driver may be busy with the end of
//      the former executor
//
// If this executor dies within 5, the next executor sees either the old generation with all words
// untouched, or the new generation with at least the commands in flight: the same proof is made
// again. Between 5 and 6 nothing is in flight. A client that was not woken is woken when the daemon
// holds the session again, and by the next executor.

#include "server/executor/takeover.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/executor/body.h"
#include "server/clock.h"
#include "server/executor/contain.h"
#include "server/executor/detach.h"
#include "server/executor/intake.h"
#include "server/executor/repeat.h"
#include "server/executor/sharing.h"
#include "server/executor/guard_watch.h"
#include "server/executor/timing.h"
#include "server/log.h"
#include "shm/doorbell.h"

/* Duration that is worth a line in the log. */
#define LONG_NS CLOCK_MS
/* More commands in flight are not examined: repetition then counts as not provable. */
#define DOUBT_MAX 8192u

/* Of one session at a time. Not on the heap: fresh pages at its end would have to be cleared by the
 * kernel, and all sessions would wait for that. */
static struct doubt {
	struct repeat_command commands[DOUBT_MAX];
	const struct frmps_head *records[DOUBT_MAX];
	uint32_t count;
	bool overflow;
} doubt;

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Taking over is quicker by a third where no page of the states is new to this process. */
static void touch_states(const struct tenant *tenant)
{
	uint32_t used = shm_view_used(&tenant->view);

	for (uint32_t slot = 0; slot < used; slot += 4096 / sizeof(struct shm_stream_state))
		word_relaxed(&tenant->view.states[slot].journaled);
}

void takeover_prepare(struct tenant *tenant)
{
	tenant_know_streams(tenant, shm_view_used(&tenant->view));
	timing_init(tenant);
	journal_init(&tenant->journal, tenant->view.blocks, tenant->view.shape.journal_blocks);
	touch_states(tenant);
}

/* The streams that ever had a command: searched once, for these are usually a few of very many. The
 * states of all others, and their words in all timelines, are zero. */
struct used {
	uint32_t count;
	struct stream *streams[SHM_STREAMS];
};

static void find_used(struct tenant *tenant, struct used *ret)
{
	uint32_t used = shm_view_used(&tenant->view);

	ret->count = 0;
	tenant_know_streams(tenant, used);
	for (uint32_t slot = 0; slot < used; slot++)
		if (word_acquire(&tenant->view.states[slot].journaled))
			ret->streams[ret->count++] = &tenant->streams[slot];
}

static void read_stream(struct stream *stream, struct shm_timeline *former)
{
	struct shm_stream_state *state = stream->journal.state;
	uint64_t ready = word_acquire(&state->host_ready);

	stream->marked = least(word_acquire(&state->marked), word_acquire(&state->issued));
	stream->done =
		former ? least(word_acquire(&shm_timeline_at(former, stream->slot)->done), stream->marked)
		       : 0;
	if (ready && ready <= word_acquire(&state->journaled) && ready - 1 > stream->done)
		stream->done = ready - 1;
	stream->issued = word_acquire(&state->issued);
}

static struct frmps_head *first_of(struct tenant *tenant, struct stream *stream)
{
	return journal_at(&tenant->journal, stream->cursor);
}

static bool settles_itself(uint16_t op)
{
	return op == FRMPS_OP_HOST_FUNCTION || op == FRMPS_OP_WAIT_VALUE || op == FRMPS_OP_STREAM_DESTROY;
}

/* Return: NULL or what is wrong. */
static const char *adopt_stream(struct tenant *tenant, struct stream *stream)
{
	if (journal_adopt(&tenant->journal, &stream->journal, stream->done, &stream->cursor))
		return "its journal is not readable";
	if (stream->issued > stream->journal.journaled)
		return "its journal contradicts itself";
	stream->adopted = stream->journal.journaled;
	stream->priority = shm_view_entry(&tenant->view, stream->slot)->priority;
	stream->part = shm_view_entry(&tenant->view, stream->slot)->part;
	while (stream->done < stream->issued && settles_itself(first_of(tenant, stream)->op)) {
		stream->done++;
		if (stream->done < stream->journal.journaled)
			stream->cursor = journal_next(&tenant->journal, stream->cursor);
	}
	return NULL;
}

/* Return: NULL or what is wrong. */
static const char *check_stream(struct tenant *tenant, struct stream *stream)
{
	struct journal_place place = stream->cursor;

	for (uint64_t seq = stream->done + 1; seq <= stream->journal.journaled; seq++) {
		const struct frmps_head *record = journal_at(&tenant->journal, place);

		if (intake_check_head(record) || record->stream != stream->slot ||
			intake_check(tenant, record))
			return "its journal holds what is no command";
		if (seq < stream->journal.journaled)
			place = journal_next(&tenant->journal, place);
	}
	return NULL;
}

/* Updates of graphs that were carried out and are not done. */
static struct updates {
	struct frmps_head *records[DOUBT_MAX];
	uint32_t count;
} updates;

/* Return: false: too many. */
static bool collect_updates(struct tenant *tenant, struct stream *stream)
{
	struct journal_place place = stream->cursor;

	for (uint64_t seq = stream->done + 1; seq <= stream->issued; seq++) {
		struct frmps_head *record = journal_at(&tenant->journal, place);
		const struct frmps_graph_update *update = (const void *)(record + 1);

		if (record->op == FRMPS_OP_GRAPH_UPDATE && update->applied) {
			if (updates.count == DOUBT_MAX)
				return false;
			updates.records[updates.count++] = record;
		}
		if (seq < stream->journal.journaled)
			place = journal_next(&tenant->journal, place);
	}
	return true;
}

/* Sets graphs back to their state before the next command to issue. */
static const char *take_updates_back(struct tenant *tenant, const struct used *used)
{
	updates.count = 0;
	for (uint32_t i = 0; i < used->count; i++)
		if (!collect_updates(tenant, used->streams[i]))
			return "too many updates of graphs were under way";
	return graph_take_back(tenant, updates.records, updates.count)
		       ? "an update of a graph that was under way cannot be taken back"
		       : NULL;
}

static const char *adopt(struct tenant *tenant, const struct used *used)
{
	const struct shm_view *view = &tenant->view;
	uint32_t former = word_acquire(&view->server->generation);
	struct shm_timeline *timeline = former ? shm_view_timeline(view, former) : NULL;
	const char *wrong = NULL;

	for (uint32_t i = 0; !wrong && i < used->count; i++) {
		read_stream(used->streams[i], timeline);
		wrong = adopt_stream(tenant, used->streams[i]);
	}
	if (!wrong)
		wrong = take_updates_back(tenant, used);
	for (uint32_t i = 0; !wrong && i < used->count; i++)
		wrong = check_stream(tenant, used->streams[i]);
	return wrong;
}

static struct range box(struct tenant *tenant, uint64_t address, bool is_arena, uint64_t bytes)
{
	uint64_t start = is_arena ? (uintptr_t)tenant->view.arena + address : address;

	return (struct range){start, start + bytes};
}

/* With memory at two addresses, any address may be any memory. */
static void blur(const struct tenant *tenant, bool is_arena, struct range *range)
{
	if (tenant->aliased && !is_arena && range->start != range->end)
		*range = (struct range){0, UINT64_MAX};
}

static void describe_copy(struct tenant *tenant, const struct frmps_copy *body, struct repeat_command *ret)
{
	uint64_t dst = 0, src = 0;

	ret->effect = REPEAT_KNOWN;
	ret->writes_arena = body->kind & FRMPS_COPY_DST_ARENA;
	ret->reads_arena = body->kind & FRMPS_COPY_SRC_ARENA;
	ret->fetches = (body->kind & (FRMPS_COPY_DST_ARENA | FRMPS_COPY_DST_HOST)) &&
		       !(body->kind & (FRMPS_COPY_SRC_ARENA | FRMPS_COPY_SRC_HOST));
	/* Boxes that span nothing sensible were refused at the issue. */
	body_span(body->width, body->height, body->depth, body->dst_pitch, body->dst_rows, &dst);
	body_span(body->width, body->height, body->depth, body->src_pitch, body->src_rows, &src);
	ret->writes = box(tenant, body->dst, ret->writes_arena, dst);
	ret->reads = box(tenant, body->src, ret->reads_arena, src);
	blur(tenant, ret->writes_arena, &ret->writes);
	blur(tenant, ret->reads_arena, &ret->reads);
}

/* An array counts as all its memory. */
static void describe_array(struct tenant *tenant, uint32_t id, struct range *ret_range)
{
	const struct array *array = array_find(tenant, id);

	*ret_range = array ? array->memory : (struct range){0, UINT64_MAX};
	blur(tenant, false, ret_range);
}

static void describe_array_copy(
	struct tenant *tenant, const struct frmps_array_copy *body, struct repeat_command *ret)
{
	describe_copy(tenant, &body->copy, ret);
	if (body->dst_array)
		describe_array(tenant, body->dst_array, &ret->writes);
	if (body->src_array)
		describe_array(tenant, body->src_array, &ret->reads);
}

static void describe_set(struct tenant *tenant, const struct frmps_set *body, struct repeat_command *ret)
{
	uint64_t row, bytes = 0;

	ret->effect = REPEAT_KNOWN;
	if (!__builtin_mul_overflow(body->width, body->element_bytes, &row))
		body_span(row, body->height, 1, body->pitch, 0, &bytes);
	ret->writes = box(tenant, body->dst, false, bytes);
	blur(tenant, false, &ret->writes);
}

static void describe(struct tenant *tenant, const struct frmps_head *record, struct repeat_command *ret)
{
	*ret = (struct repeat_command){
		.stream = record->stream, .seq = record->seq, .effect = REPEAT_NOTHING};
	if (record->op == FRMPS_OP_LAUNCH || record->op == FRMPS_OP_GRAPH_LAUNCH)
		ret->effect = REPEAT_KERNEL;
	else if (record->op == FRMPS_OP_WRITE_VALUE)
		ret->effect = REPEAT_SIGNAL;
	else if (record->op == FRMPS_OP_COPY)
		describe_copy(tenant, (const void *)(record + 1), ret);
	else if (record->op == FRMPS_OP_ARRAY_COPY)
		describe_array_copy(tenant, (const void *)(record + 1), ret);
	else if (record->op == FRMPS_OP_SET)
		describe_set(tenant, (const void *)(record + 1), ret);
}

static bool did_not_pass(const struct tenant *tenant, const struct frmps_head *record)
{
	const struct frmps_depend *depend = (const void *)(record + 1);

	return record->op == FRMPS_OP_DEPEND && depend->stream != record->stream &&
	       tenant->streams[depend->stream].done < depend->seq;
}

static void collect_stream(struct tenant *tenant, struct stream *stream)
{
	struct journal_place place = stream->cursor;

	for (uint64_t seq = stream->done + 1; seq <= stream->issued; seq++) {
		const struct frmps_head *record = journal_at(&tenant->journal, place);

		if (did_not_pass(tenant, record))
			return;
		if (doubt.count == DOUBT_MAX) {
			doubt.overflow = true;
			return;
		}
		describe(tenant, record, &doubt.commands[doubt.count]);
		doubt.records[doubt.count++] = record;
		if (record->flags & FRMPS_CMD_MARK)
			return;
		if (seq < stream->issued)
			place = journal_next(&tenant->journal, place);
	}
}

static void name_command(
	const struct tenant *tenant, const struct frmps_head *record, char *text, size_t size)
{
	const struct frmps_launch *launch = (const void *)(record + 1);
	const struct frmps_graph_launch *graph = (const void *)(record + 1);
	const struct function *function;
	const char *kernel;
	uint32_t nodes;

	if (record->op == FRMPS_OP_GRAPH_LAUNCH) {
		kernel = graph_kernel(tenant, graph->graph, &nodes);
		snprintf(text, size, "a graph of %u nodes%s%s", nodes, *kernel ? ", the first kernel " : "",
			kernel);
		return;
	}
	if (record->op != FRMPS_OP_LAUNCH) {
		snprintf(text, size, "a %s",
			record->op == FRMPS_OP_WRITE_VALUE ? "memory operation of a stream"
							   : "copy whose source may have changed");
		return;
	}
	function = module_function(&tenant->modules, launch->function);
	if (function)
		snprintf(text, size, "kernel %s", function->name);
	else
		snprintf(text, size, "kernel number %u", launch->function);
}

/* Return: true if all commands in flight may be repeated. */
static bool prove(struct tenant *tenant, const char *cause, char *text, size_t size)
{
	char what[128];
	uint32_t index;

	if (doubt.overflow) {
		snprintf(text, size, "too many commands may or may not have run when %s", cause);
		return false;
	}
	if (repeat_is_provable(doubt.commands, doubt.count, tenant->replays, &index))
		return true;
	name_command(tenant, doubt.records[index], what, sizeof(what));
	snprintf(text, size, "%s may or may not have run when %s, and cannot be repeated", what, cause);
	return false;
}

static enum takeover_verdict resolve(
	struct tenant *tenant, const struct used *used, const char *cause, char *text, size_t size)
{
	doubt.count = 0;
	doubt.overflow = false;
	for (uint32_t i = 0; i < used->count; i++)
		collect_stream(tenant, used->streams[i]);
	if (!doubt.count)
		return TAKEOVER_CLEAN;
	return prove(tenant, cause, text, size) ? TAKEOVER_REPEATS : TAKEOVER_FAULTED;
}

/* True if a command of the session was ever issued: it may have written to variables. */
static bool has_issued(const struct used *used)
{
	for (uint32_t i = 0; i < used->count; i++)
		if (word_acquire(&used->streams[i]->journal.state->issued))
			return true;
	return false;
}

/* The mirrors may be away from the device: then constants get their values with the mirrors
 * (carry.c). */
static bool constants_are_right(struct tenant *tenant)
{
	return word_relaxed(&tenant->view.server->share) & SHM_SHARE_AWAY || constant_refresh(tenant);
}

/* Return: true if the modules' variables have the values that the session's work expects; else the
 * text has the reason. */
static bool has_its_variables(
	struct tenant *tenant, const struct used *used, const char *cause, char *text, size_t size)
{
	if (!has_issued(used) || (range_set_is_empty(&tenant->globals) && !remains_are_lost(tenant) &&
					 constants_are_right(tenant)))
		return true;
	snprintf(text, size,
		"what it had in its modules' variables, or its kernels in the device's heap, was lost when "
		"%s",
		cause);
	return false;
}

static void set_back(struct tenant *tenant, struct stream *stream)
{
	struct shm_stream_state *state = stream->journal.state;

	stream->issued = stream->marked = stream->done;
	word_set(&state->untimed, stream->done);
	word_release(&state->issued, stream->done);
	word_release(&state->marked, stream->done);
	if (stream->done < stream->journal.journaled)
		stream_hold(tenant, stream, STREAM_HOLD_RESUME);
}

/* Return: false: the daemon has ended the session meanwhile. */
static bool set_running(struct shm_server_header *server)
{
	uint32_t now = word_acquire(&server->state);

	while (now <= SHM_SESSION_HELD)
		if (atomic_compare_exchange_weak(&server->state, &now, SHM_SESSION_RUNNING))
			return true;
	return false;
}

/* Return: true if the session is to be served. */
static bool publish(struct tenant *tenant, const struct used *used, uint32_t generation)
{
	struct shm_server_header *server = tenant->view.server;

	tenant->timeline = shm_view_timeline(&tenant->view, generation);
	tenant->now = tenant->busy_at = clock_now();
	for (uint32_t i = 0; i < used->count; i++)
		word_set(&shm_timeline_at(tenant->timeline, used->streams[i]->slot)->done,
			used->streams[i]->done);
	/* Pairs with the acquire in shm_view_done(): the timeline is filled. */
	word_release(&server->generation, generation);
	for (uint32_t i = 0; i < used->count; i++)
		set_back(tenant, used->streams[i]);
	ring_reader_init(&tenant->ring, &tenant->view);
	contain_join(tenant, generation);
	sharing_join(tenant);
	cap_look(tenant);
	/* In time, as the session's own. */
	for (uint32_t i = 0; i < used->count; i++)
		cap_readies(tenant, used->streams[i]->part);
	word_set(&server->active, 0);
	word_set(&server->servings, word_relaxed(&server->servings) + 1);
	word_release(&server->asleep, 0);
	if (!set_running(server)) {
		tenant->stopped = true;
		word_release(&tenant->generation, 0);
		return false;
	}
	return true;
}

static enum takeover_verdict fault(struct tenant *tenant, CUresult code, const char *text)
{
	log_warning("session %llu (%s, pid %d) ends with code %d: %s", (unsigned long long)tenant->id,
		tenant->program, tenant->pid, code, text);
	tenant_end(tenant, SHM_SESSION_FAULTED, code ? code : CUDA_ERROR_LAUNCH_FAILED, text);
	return TAKEOVER_FAULTED;
}

enum takeover_verdict takeover_tenant(struct tenant *tenant, uint32_t generation,
	enum takeover_recover recover, CUresult code, const char *reason)
{
	const char *cause = *reason ? reason : "its executor ended";
	enum takeover_verdict verdict;
	static struct used used; /* of one session at a time, as `doubt` */
	const char *wrong;
	char text[256];

	if (recover == TAKEOVER_BY_REPLAY || recover == TAKEOVER_BY_FAIL)
		tenant->replays = recover == TAKEOVER_BY_REPLAY;
	if (recover == TAKEOVER_CULPRIT)
		return fault(tenant, code, cause);
	if (recover == TAKEOVER_UNSURE) {
		snprintf(text, sizeof(text),
			"%s, and this program's kernels ran at that moment: what they wrote cannot be "
			"believed",
			cause);
		return fault(tenant, code, text);
	}
	find_used(tenant, &used);
	wrong = adopt(tenant, &used);
	if (wrong)
		return fault(tenant, code, wrong);
	verdict = resolve(tenant, &used, cause, text, sizeof(text));
	if (verdict == TAKEOVER_FAULTED)
		return fault(tenant, code, text);
	if (!has_its_variables(tenant, &used, cause, text, sizeof(text))) {
		/* The context was lost on the way: the session is untouched, and the next executor
		 * can take it over. */
		if (executor_is_lost(tenant->executor))
			return TAKEOVER_FAULTED;
		return fault(tenant, code, text);
	}
	if (!publish(tenant, &used, generation))
		return TAKEOVER_FAULTED;
	return verdict;
}

/* The sessions of an Activate, in the message's order. */
struct activation {
	uint64_t *verdicts;
	struct tenant **joining; /* sessions that are to be served from now on, else NULL */
	uint32_t count;
};

static enum takeover_verdict take(struct job *job, uint32_t index, struct tenant **ret_joining)
{
	const struct wire_activate *wish = &job->message.activate;
	struct tenant *tenant = executor_tenant(job->executor, wish->sessions.at[index]);
	uint32_t recover = index < wish->recover.count ? wish->recover.at[index] : TAKEOVER_BY_POLICY;
	enum takeover_verdict verdict;

	if (!tenant || tenant->closing)
		return TAKEOVER_FAULTED;
	/* First: who was let go has stopped. */
	if (detach_undo(tenant, wish->generation)) {
		*ret_joining = tenant;
		return TAKEOVER_CLEAN;
	}
	if (tenant->stopped)
		return TAKEOVER_FAULTED;
	if (word_relaxed(&tenant->generation))
		return TAKEOVER_CLEAN; /* served already */
	verdict = takeover_tenant(tenant, wish->generation, (enum takeover_recover)recover,
		(CUresult)wish->code, wish->reason ? wish->reason : "");
	if (verdict != TAKEOVER_FAULTED)
		*ret_joining = tenant;
	return verdict;
}

static void take_all(struct job *job, struct activation *activation)
{
	for (uint32_t i = 0; i < activation->count; i++)
		activation->verdicts[i] = take(job, i, &activation->joining[i]);
}

static void serve_all(struct activation *activation)
{
	for (uint32_t i = 0; i < activation->count; i++) {
		struct tenant *tenant = activation->joining[i];

		if (!tenant)
			continue;
		serve_attach(tenant);
		wake_all(&tenant->view.server->wake);
	}
}

/* Fills the sinks: writes of previous executors prove nothing. */
static void watch_all(struct activation *activation)
{
	for (uint32_t i = 0; i < activation->count; i++)
		if (activation->joining[i])
			guard_watch_begin(activation->joining[i]);
}

static double ms_between(uint64_t begin, uint64_t end)
{
	return (double)(end - begin) / (double)CLOCK_MS;
}

/* Logs a long activation, which is a pause for all sessions. */
static void say_if_long(const struct activation *activation, uint64_t begin, uint64_t taken, uint64_t worked)
{
	uint64_t now = clock_now();

	if (activation->count && now - begin >= LONG_NS)
		log_info("%u sessions were taken over in %.1f ms, %.1f of them until they could be served; "
			 "%.1f on a processor",
			activation->count, ms_between(begin, now), ms_between(begin, taken),
			ms_between(0, worked));
}

static void activate(struct job *job, struct activation *activation)
{
	uint64_t begin = clock_now(), begin_work = clock_of(CLOCK_THREAD_CPUTIME_ID), taken;

	take_all(job, activation);
	taken = clock_now();
	serve_all(activation);
	cap_lend_unserved(job->executor);
	canary_begin(job->executor, job->message.activate.canary_ms);
	job_reply(job, CUDA_SUCCESS, activation->verdicts, activation->count, NULL);
	say_if_long(activation, begin, taken, clock_of(CLOCK_THREAD_CPUTIME_ID) - begin_work);
	watch_all(activation);
}

void takeover_handle(struct job *job)
{
	uint32_t count = job->message.activate.sessions.count;
	struct activation activation = {
		.verdicts = calloc(count + 1, sizeof(*activation.verdicts)),
		.joining = calloc(count + 1, sizeof(*activation.joining)),
		.count = count,
	};

	if (!activation.verdicts || !activation.joining)
		job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, NULL);
	else if (!job->message.activate.generation)
		job_reply(job, CUDA_ERROR_INVALID_VALUE, NULL, 0, NULL);
	else
		activate(job, &activation);
	free(activation.verdicts);
	free(activation.joining);
}
