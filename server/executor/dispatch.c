// From the journal to the backend: one handler per op, and the checks that depend on the session's
// present resources. Serving thread of the session; the hot path of the executor: no lock, no
// allocation, no system call of ours.
//
// A command's bytes lie in the journal, where no client can write; kernel arguments are handed to
// the backend in place. states[slot].issued counts a command as handed to the driver before the
// driver's call, so a command that is not counted has certainly not begun.
//
// An error of the backend that is not the end of the context is the client's late error: the
// command counts as done in its turn, and the client reports the error at its next synchronisation.
// An error that is the end of the context takes the count back: nothing was handed over.

#include "server/executor/dispatch.h"

#include "server/executor/arena.h"
#include "server/executor/body.h"
#include "server/executor/retire.h"
#include "server/executor/timing.h"

typedef int issue_fn(struct tenant *tenant, struct stream *stream, struct frmps_head *record);

/* The command is about to be handed over. */
static void begin(struct stream *stream, const struct frmps_head *record)
{
	word_release(&stream->journal.state->issued, record->seq);
}

static int finish(struct tenant *tenant, struct stream *stream, struct frmps_head *record, CUresult code)
{
	if (!code) {
		retire_issued(tenant, stream, record);
		return 0;
	}
	executor_code(tenant->executor, code);
	if (backend_is_fatal(code)) {
		/* The call reported the end of the context and did nothing else. */
		word_release(&stream->journal.state->issued, record->seq - 1);
		return DISPATCH_E_STOP;
	}
	tenant_late_error(tenant, code);
	retire_settled(tenant, stream, record);
	return 0;
}

static int settle(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	begin(stream, record);
	retire_settled(tenant, stream, record);
	return 0;
}

static int hold(struct tenant *tenant, struct stream *stream, enum stream_hold why)
{
	stream_hold(tenant, stream, why);
	return DISPATCH_E_HELD;
}

static bool is_idle(struct tenant *tenant, struct stream *stream)
{
	return stream->marked == stream->issued && stream_done(tenant, stream) == stream->issued;
}

static int offend_address(struct tenant *tenant, const char *op, uint64_t address, uint64_t bytes)
{
	tenant_offend(tenant, "%s of %llu bytes at %#llx, which is not its memory", op,
		(unsigned long long)bytes, (unsigned long long)address);
	return DISPATCH_E_STOP;
}

/* Records an event behind all issued commands of a stream: for waits that name no event. */
static CUresult join(struct tenant *tenant, struct stream *on, uint64_t seq, struct backend_event **ret_event)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	CUresult code = CUDA_SUCCESS;

	if (!on->join)
		code = ops->event_create(false, &on->join);
	if (!code && on->join_seq < seq) {
		code = retire_mark(tenant, on);
		if (!code)
			code = ops->event_record(on->join, on->backend);
		if (!code)
			on->join_seq = on->issued;
	}
	if (!code)
		*ret_event = on->join;
	return code;
}

/* Lets commands on `next` begin when all issued commands of the stream are done. */
static CUresult follow(struct tenant *tenant, struct stream *stream, struct backend_stream *next)
{
	struct backend_event *event;
	CUresult code;

	if (!stream->backend || stream_done(tenant, stream) == stream->issued)
		return CUDA_SUCCESS;
	code = join(tenant, stream, stream->issued, &event);
	return code ? code : tenant_ops(tenant)->stream_wait(next, event);
}

static CUresult try_renew_stream(struct tenant *tenant, struct stream *stream)
{
	struct backend_stream *next;
	CUresult code = stream_make(tenant, stream, cap_part(tenant, stream->part), &next);

	if (code)
		return code;
	code = follow(tenant, stream, next);
	if (code)
		stream_give_back(tenant, next);
	else
		stream_replace(tenant, stream, next);
	return code;
}

/* A stream that cannot be replaced, for memory may be short, goes on where it is, and the next
 * command tries again. */
static CUresult renew_stream(struct tenant *tenant, struct stream *stream)
{
	CUresult code = try_renew_stream(tenant, stream);

	return code && stream->backend && !backend_is_fatal(code) ? CUDA_SUCCESS : code;
}

/* Return: true if a stream's part is ready. From here on to the command's end the
 * session's multiprocessors stay the same. */
static bool has_part(struct tenant *tenant, struct stream *stream)
{
	if (tenant->cap.waits)
		cap_look(tenant);
	return (stream->backend && stream->sms == word_relaxed(&tenant->sms)) ||
	       cap_readies(tenant, stream->part);
}

/* Opens the backend's stream on first use, and replaces the stream if the session's kernels are to
 * run elsewhere now, or at another priority. A group that was made in this turn counts: the command
 * may have been issued for that reason. See cap.c. */
static inline CUresult open_stream(struct tenant *tenant, struct stream *stream)
{
	if (tenant->cap.waits && !stream->part)
		cap_look(tenant);
	return stream->backend && stream->sms == word_relaxed(&tenant->sms) &&
			       stream->made_priority == stream->priority
		       ? CUDA_SUCCESS
		       : renew_stream(tenant, stream);
}

/* Copies a command's writes to a mirror on to the constant. The command itself was handed over,
 * even if this copy fails. */
static void copy_on(struct tenant *tenant, struct stream *stream, struct backend_copy onward)
{
	CUresult code = executor_code(tenant->executor, tenant_ops(tenant)->copy(stream->backend, &onward));

	if (code && !backend_is_fatal(code))
		tenant_late_error(tenant, code);
}

/* Copies stores of a kernel on, for mirrors that the kernel has pointers to. */
static void copy_stores_on(struct tenant *tenant, struct stream *stream, const struct backend_launch *launch)
{
	struct backend_copy copy;
	uint32_t offset = 0;

	/* The client may have freed memory that a mirror lies in. */
	while (constant_pointed_at(
		&tenant->constants, launch->arguments, launch->argument_bytes, &offset, &copy))
		if (tenant_admits_anywhere(tenant, copy.src, copy.width))
			copy_on(tenant, stream, copy);
}

static int issue_launch(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_launch *body = (const void *)(record + 1);
	const struct function *function = module_function(&tenant->modules, body->function);
	CUresult code = open_stream(tenant, stream);
	struct backend_launch launch;

	/* Another thread of the program has unloaded its module, and may have loaded another. */
	if (!function || function->info.argument_bytes != body->argument_bytes) {
		begin(stream, record);
		return finish(tenant, stream, record, code ? code : CUDA_ERROR_INVALID_HANDLE);
	}
	body_launch(&launch, function, body, record->flags & FRMPS_CMD_COOPERATIVE);
	retire_phase(tenant, stream, STREAM_COMPUTES);
	remains_note_launch(tenant, function);
	begin(stream, record);
	guard_watch_note_launch(tenant);
	if (!code)
		code = tenant_ops(tenant)->launch(stream->backend, &launch);
	if (!code)
		copy_stores_on(tenant, stream, &launch);
	return finish(tenant, stream, record, code);
}

/* One side of a copy: the address in this process. Return: false if the session may not touch the
 * memory. */
static bool resolve(struct tenant *tenant, uint64_t address, uint64_t bytes, bool is_arena, bool is_host,
	bool writes, uint64_t *ret_address)
{
	if (is_arena) {
		*ret_address = (uintptr_t)tenant->view.arena + address;
		return arena_admits(tenant, address, bytes);
	}
	*ret_address = address;
	return is_host == tenant_is_host(tenant, address) && tenant_admits(tenant, address, bytes, writes);
}

static int offend_constant(struct tenant *tenant, uint64_t address, uint64_t bytes)
{
	tenant_offend(tenant, "write of %llu bytes at %#llx, which is more than a constant",
		(unsigned long long)bytes, (unsigned long long)address);
	return DISPATCH_E_STOP;
}

/* @onto: constant_find() */
static int issue_checked_copy(struct tenant *tenant, struct stream *stream, struct frmps_head *record,
	const struct backend_copy *copy, uint64_t onto)
{
	CUresult code;

	retire_phase(tenant, stream, copy->dst_is_host && !copy->src_is_host ? STREAM_FETCHES : STREAM_FILLS);
	begin(stream, record);
	code = open_stream(tenant, stream);
	if (!code)
		code = arena_reach(tenant, copy->dst);
	if (!code)
		code = arena_reach(tenant, copy->src);
	if (!code)
		code = tenant_ops(tenant)->copy(stream->backend, copy);
	if (!code && onto)
		copy_on(tenant, stream, backend_copy_on(copy, onto));
	return finish(tenant, stream, record, code);
}

static int issue_copy(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_copy *body = (const void *)(record + 1);
	struct backend_copy copy = body_copy(body);
	uint64_t dst, src, onto;

	if (!body_span(body->width, body->height, body->depth, body->dst_pitch, body->dst_rows, &dst) ||
		!resolve(tenant, body->dst, dst, body->kind & FRMPS_COPY_DST_ARENA,
			body->kind & FRMPS_COPY_DST_HOST, true, &copy.dst))
		return offend_address(tenant, "copy into a box", body->dst, body->width);
	if (!body_span(body->width, body->height, body->depth, body->src_pitch, body->src_rows, &src) ||
		!resolve(tenant, body->src, src, body->kind & FRMPS_COPY_SRC_ARENA,
			body->kind & FRMPS_COPY_SRC_HOST, false, &copy.src))
		return offend_address(tenant, "copy from a box", body->src, body->width);
	if (!constant_find(&tenant->constants, copy.dst, dst, &onto))
		return offend_constant(tenant, copy.dst, dst);
	return issue_checked_copy(tenant, stream, record, &copy, onto);
}

/* One side of a copy, array or memory. @ret_bytes: of memory, from its address on; 0: an array */
static bool resolve_side(struct tenant *tenant, const struct frmps_array_copy *body, bool is_dst,
	struct backend_place *ret_place, uint64_t *ret_address, uint64_t *ret_bytes)
{
	const struct frmps_copy *box = &body->copy;
	struct range memory;

	*ret_bytes = 0;
	if (is_dst ? body->dst_array : body->src_array)
		return !array_place(tenant, body, is_dst, ret_place, &memory);
	return body_span(box->width, box->height, box->depth, is_dst ? box->dst_pitch : box->src_pitch,
		       is_dst ? box->dst_rows : box->src_rows, ret_bytes) &&
	       resolve(tenant, is_dst ? box->dst : box->src, *ret_bytes,
		       box->kind & (is_dst ? FRMPS_COPY_DST_ARENA : FRMPS_COPY_SRC_ARENA),
		       box->kind & (is_dst ? FRMPS_COPY_DST_HOST : FRMPS_COPY_SRC_HOST), is_dst, ret_address);
}

static int issue_array_copy(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_array_copy *body = (const void *)(record + 1);
	struct backend_copy copy = body_copy(&body->copy);
	uint64_t dst, src, onto = 0;

	if (!resolve_side(tenant, body, true, &copy.dst_at, &copy.dst, &dst) ||
		!resolve_side(tenant, body, false, &copy.src_at, &copy.src, &src)) {
		tenant_offend(tenant, "copy from array %u to array %u, or of memory, out of bounds",
			body->src_array, body->dst_array);
		return DISPATCH_E_STOP;
	}
	if (dst && !constant_find(&tenant->constants, copy.dst, dst, &onto))
		return offend_constant(tenant, copy.dst, dst);
	return issue_checked_copy(tenant, stream, record, &copy, onto);
}

static int issue_set(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_set *body = (const void *)(record + 1);
	uint64_t row, bytes, onto;
	CUresult code;

	if (__builtin_mul_overflow(body->width, body->element_bytes, &row) ||
		!body_span(row, body->height, 1, body->pitch, 0, &bytes) ||
		!tenant_admits(tenant, body->dst, bytes, true))
		return offend_address(tenant, "set of rows", body->dst, body->width);
	if (!constant_find(&tenant->constants, body->dst, bytes, &onto))
		return offend_constant(tenant, body->dst, bytes);
	retire_phase(tenant, stream, STREAM_FILLS);
	begin(stream, record);
	code = open_stream(tenant, stream);
	if (!code)
		code = tenant_ops(tenant)->set(stream->backend, body);
	if (!code && onto)
		copy_on(tenant, stream, backend_set_on(body, onto));
	return finish(tenant, stream, record, code);
}

/* The mark comes before the driver's event: see the invariants in retire.c. */
static CUresult mark_and_record(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_event_record *body = (const void *)(record + 1);
	CUresult code;

	retire_issued(tenant, stream, record);
	code = retire_mark(tenant, stream);
	return code ? code
		    : event_record(
			      tenant, stream, body->event, body->flags & FRMPS_EVENT_TIMING, record->seq);
}

/* In a stream that has nothing on the device a timed record waits for nothing, and is done: the
 * time comes without a mark (timing.h). */
static int record_alone(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_event_record *body = (const void *)(record + 1);
	CUresult code =
		event_record(tenant, stream, body->event, body->flags & FRMPS_EVENT_TIMING, record->seq);

	if (code)
		return finish(tenant, stream, record, code);
	retire_settled(tenant, stream, record);
	return 0;
}

static int issue_event_record(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_event_record *body = (const void *)(record + 1);
	bool timing = body->flags & FRMPS_EVENT_TIMING;
	CUresult code;

	if (!timing && is_idle(tenant, stream))
		return settle(tenant, stream, record);
	begin(stream, record);
	code = open_stream(tenant, stream);
	if (code)
		return finish(tenant, stream, record, code);
	if (is_idle(tenant, stream))
		return record_alone(tenant, stream, record);
	code = mark_and_record(tenant, stream, record);
	if (code && !backend_is_fatal(executor_code(tenant->executor, code)))
		tenant_late_error(tenant, code);
	return executor_is_lost(tenant->executor) ? DISPATCH_E_STOP : 0;
}

/* True if commands that wait for this command may begin: it is done, and the times of the records
 * before are taken. */
static bool is_over(struct tenant *tenant, struct stream *on, uint64_t seq)
{
	return stream_done(tenant, on) >= seq && (!on->backend || timing_is_settled(tenant, on, seq));
}

static int issue_depend(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_depend *body = (const void *)(record + 1);
	struct stream *on = tenant_stream(tenant, body->stream);
	struct backend_event *event;
	CUresult code;

	if (on == stream || is_over(tenant, on, body->seq))
		return settle(tenant, stream, record);
	if (on->issued < body->seq)
		return hold(tenant, stream, STREAM_HOLD_DEPEND);
	begin(stream, record);
	code = open_stream(tenant, stream);
	event = event_find(tenant, body->event, body->stream, body->seq);
	if (!code && !event)
		code = join(tenant, on, body->seq, &event);
	if (!code)
		code = tenant_ops(tenant)->stream_wait(stream->backend, event);
	return finish(tenant, stream, record, code);
}

/* Marked before and behind: a take-over knows exactly if the word may have been written
 * (takeover.c). */
static int issue_write_value(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_write_value *body = (const void *)(record + 1);
	const struct backend_copy word = {
		.dst = body->address, .width = body->bytes, .height = 1, .depth = 1};
	uint64_t onto;
	CUresult code;

	if (!tenant_admits(tenant, body->address, body->bytes, true))
		return offend_address(tenant, "write of a word", body->address, body->bytes);
	if (!constant_find(&tenant->constants, body->address, body->bytes, &onto))
		return offend_constant(tenant, body->address, body->bytes);
	code = open_stream(tenant, stream);
	if (!code)
		code = retire_mark(tenant, stream);
	begin(stream, record);
	if (!code)
		code = tenant_ops(tenant)->write_value(stream->backend, body);
	if (!code && onto)
		copy_on(tenant, stream, backend_copy_on(&word, onto));
	record->flags |= FRMPS_CMD_MARK;
	return finish(tenant, stream, record, code);
}

static int issue_wait_value(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_wait_value *body = (const void *)(record + 1);

	if (!tenant_admits(tenant, body->address, body->bytes, false))
		return offend_address(tenant, "wait for a word", body->address, body->bytes);
	return hold(tenant, stream, STREAM_HOLD_VALUE);
}

static int issue_host_function(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	(void)record;
	stream->host_told = false;
	return hold(tenant, stream, STREAM_HOLD_HOST);
}

static int issue_event_destroy(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_event_record *body = (const void *)(record + 1);

	executor_code(tenant->executor, event_destroy(tenant, body->event));
	return settle(tenant, stream, record);
}

static int issue_open(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	CUresult code;

	begin(stream, record);
	code = open_stream(tenant, stream);
	if (!code && !cap_has_part(tenant, stream->part))
		code = CUDA_ERROR_OUT_OF_MEMORY;
	return code ? finish(tenant, stream, record, code) : settle(tenant, stream, record);
}

static int issue_stream_destroy(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	(void)record;
	return hold(tenant, stream, STREAM_HOLD_DESTROY);
}

static int issue_graph(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_graph_launch *body = (const void *)(record + 1);
	CUresult code = open_stream(tenant, stream);

	if (!graph_may_launch(tenant, body->graph))
		return hold(tenant, stream, STREAM_HOLD_PART);
	retire_phase(tenant, stream, STREAM_COMPUTES);
	begin(stream, record);
	guard_watch_note_launch(tenant);
	if (!code)
		code = graph_launch(tenant, stream, body->graph);
	return finish(tenant, stream, record, code);
}

static int issue_graph_update(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	CUresult code;

	begin(stream, record);
	code = graph_update(tenant, record);
	if (!code)
		graph_change_ahead(tenant, (const void *)(record + 1));
	/* The graph's launches fail as well. */
	if (!code || code == CUDA_ERROR_INVALID_HANDLE) {
		if (code)
			tenant_late_error(tenant, code);
		retire_settled(tenant, stream, record);
		return 0;
	}
	/* No later launch may run without the update. */
	if (code == CUDA_ERROR_INVALID_VALUE)
		tenant_offend(tenant, "update of a graph that has no such nodes, or was not made for it");
	else
		tenant_end(tenant, SHM_SESSION_FAULTED, code, "no memory to change a graph");
	return DISPATCH_E_STOP;
}

static issue_fn *const handlers[] = {
	[FRMPS_OP_LAUNCH] = issue_launch,
	[FRMPS_OP_COPY] = issue_copy,
	[FRMPS_OP_SET] = issue_set,
	[FRMPS_OP_EVENT_RECORD] = issue_event_record,
	[FRMPS_OP_DEPEND] = issue_depend,
	[FRMPS_OP_WRITE_VALUE] = issue_write_value,
	[FRMPS_OP_WAIT_VALUE] = issue_wait_value,
	[FRMPS_OP_HOST_FUNCTION] = issue_host_function,
	[FRMPS_OP_EVENT_DESTROY] = issue_event_destroy,
	[FRMPS_OP_STREAM_DESTROY] = issue_stream_destroy,
	[FRMPS_OP_STREAM_OPEN] = issue_open,
	[FRMPS_OP_GRAPH_LAUNCH] = issue_graph,
	[FRMPS_OP_GRAPH_UPDATE] = issue_graph_update,
	[FRMPS_OP_ARRAY_COPY] = issue_array_copy,
};

/* Moves the cursor behind the issued command. */
static void advance(struct tenant *tenant, struct stream *stream)
{
	if (stream->issued < stream->journal.journaled)
		stream->cursor = journal_next(&tenant->journal, stream->cursor);
}

static bool has_credit(struct tenant *tenant, struct stream *stream)
{
	uint64_t credit = tenant->share.credit;

	if (stream->issued - stream->done < credit)
		return true;
	if (stream->issued - stream_done(tenant, stream) < credit)
		return true;
	retire_mark(tenant, stream);
	return false;
}

int dispatch_issue(struct tenant *tenant, struct stream *stream)
{
	struct frmps_head *record = journal_at(&tenant->journal, stream->cursor);
	int error;

	if (tenant->stopped || executor_is_lost(tenant->executor))
		return DISPATCH_E_STOP;
	if (gate_is_shut(&tenant->executor->gate) && !gate_admits(tenant, stream))
		return hold(tenant, stream, STREAM_HOLD_GATE);
	if (!has_credit(tenant, stream))
		return hold(tenant, stream, STREAM_HOLD_CREDIT);
	if (stream->part && !has_part(tenant, stream))
		return hold(tenant, stream, STREAM_HOLD_PART);
	error = handlers[record->op](tenant, stream, record);
	if (!error)
		advance(tenant, stream);
	return error;
}

void dispatch_settle(struct tenant *tenant, struct stream *stream)
{
	settle(tenant, stream, journal_at(&tenant->journal, stream->cursor));
	advance(tenant, stream);
}

unsigned dispatch_backlog(struct tenant *tenant, struct stream *stream, unsigned budget)
{
	unsigned issued = 0;

	while (stream->issued < stream->journal.journaled) {
		if (issued == budget) {
			stream_hold(tenant, stream, STREAM_HOLD_RESUME);
			break;
		}
		if (dispatch_issue(tenant, stream))
			break;
		issued++;
	}
	return issued;
}
