// From the journal to the backend: one handler per op, and the checks that need to know what the session owns
// at this moment. Serving thread of the session; the hot path of the executor: no lock, no allocation, no
// system call of ours.
//
// A command's bytes lie in the journal, where no client can write; kernel arguments are handed to the backend
// where they lie. states[slot].issued says "handed to the driver" before the driver is called, so a command
// of which it is not said has certainly not begun.
//
// A refusal by the backend that is not the end of the context is the client's late error: the command counts
// as done in its turn, and the client reports the error at its next synchronisation. A refusal that is the
// end of the context takes the word back: nothing was handed over.

#include "server/executor/dispatch.h"

#include "server/executor/retire.h"
#include "server/log.h"

typedef int issue_fn(struct session *session, struct stream *stream, struct frmps_head *record);

/* The command is about to be handed over. */
static void begin(struct stream *stream, const struct frmps_head *record)
{
	word_release(&stream->journal.state->issued, record->seq);
}

static int finish(struct session *session, struct stream *stream, struct frmps_head *record, CUresult code)
{
	if (!code) {
		retire_issued(session, stream, record);
		return 0;
	}
	executor_code(session->executor, code);
	if (backend_is_fatal(code)) {
		/* The call heard of the end of the context and did nothing else. */
		word_release(&stream->journal.state->issued, record->seq - 1);
		return DISPATCH_E_STOP;
	}
	session_late_error(session, code);
	retire_settled(session, stream, record);
	return 0;
}

static int settle(struct session *session, struct stream *stream, struct frmps_head *record)
{
	begin(stream, record);
	retire_settled(session, stream, record);
	return 0;
}

static int hold(struct session *session, struct stream *stream, enum stream_hold why)
{
	stream_hold(session, stream, why);
	return DISPATCH_E_HELD;
}

static bool is_idle(struct session *session, struct stream *stream)
{
	return stream->marked == stream->issued && stream_done(session, stream) == stream->issued;
}

static int offend_address(struct session *session, const char *op, uint64_t address, uint64_t bytes)
{
	session_offend(session, "%s of %llu bytes at %#llx, which is not its memory", op,
		(unsigned long long)bytes, (unsigned long long)address);
	return DISPATCH_E_STOP;
}

/* A launch whose owner is not said. Where it is wanted, not copied there: this is the hot path. */
static inline void fill_launch(struct backend_launch *launch, const struct function *function,
	const struct frmps_launch *body, bool cooperative)
{
	const struct frmps_launch_attribute *attributes = (const void *)(body + 1);

	launch->function = function->backend;
	launch->info = &function->info;
	launch->grid[0] = body->grid_x;
	launch->grid[1] = body->grid_y;
	launch->grid[2] = body->grid_z;
	launch->block[0] = body->block_x;
	launch->block[1] = body->block_y;
	launch->block[2] = body->block_z;
	launch->shared_bytes = body->shared_bytes;
	launch->arguments = (const uint8_t *)(attributes + body->attribute_count);
	launch->argument_bytes = body->argument_bytes;
	launch->attributes = attributes;
	launch->attribute_count = body->attribute_count;
	launch->cooperative = cooperative;
}

struct backend_launch dispatch_launch(
	const struct function *function, const struct frmps_launch *body, bool cooperative)
{
	struct backend_launch launch = {0};

	fill_launch(&launch, function, body, cooperative);
	return launch;
}

static int issue_launch(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_launch *body = (const void *)(record + 1);
	const struct function *function = module_function(&session->modules, body->function);
	CUresult code = stream->backend ? CUDA_SUCCESS : stream_open(session, stream);
	struct backend_launch launch;

	if (!function || function->info.argument_bytes != body->argument_bytes) {
		session_offend(session, "launch of function %u with %u bytes of arguments: %s",
			body->function, body->argument_bytes,
			function ? "it takes another number" : "there is no such function");
		return DISPATCH_E_STOP;
	}
	fill_launch(&launch, function, body, record->flags & FRMPS_CMD_COOPERATIVE);
	retire_phase(session, stream, STREAM_COMPUTES);
	remains_note_launch(session, function);
	begin(stream, record);
	stray_note_launch(session);
	if (!code)
		code = session_ops(session)->launch(stream->backend, &launch);
	return finish(session, stream, record, code);
}

bool dispatch_span(
	uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t rows, uint64_t *ret_bytes)
{
	uint64_t planes, lines, bytes;

	if (!width || !height || !depth)
		return false;
	if ((height > 1 || depth > 1) && pitch < width)
		return false;
	if (depth > 1 && rows < height)
		return false;
	if (__builtin_mul_overflow(depth - 1, rows, &planes) ||
		__builtin_add_overflow(planes, height - 1, &lines) ||
		__builtin_mul_overflow(lines, lines ? pitch : 0, &bytes) ||
		__builtin_add_overflow(bytes, width, &bytes))
		return false;
	*ret_bytes = bytes;
	return true;
}

/* One side of a copy: its address in this process, or false if the session may not touch it. */
static bool resolve(struct session *session, uint64_t address, uint64_t bytes, bool is_arena, bool is_host,
	bool writes, uint64_t *ret_address)
{
	uint64_t room = session->view.shape.arena_bytes;

	if (is_arena) {
		*ret_address = (uintptr_t)session->view.arena + address;
		return address <= room && bytes <= room - address;
	}
	*ret_address = address;
	return is_host == session_is_host(session, address) &&
	       session_admits(session, address, bytes, writes);
}

struct backend_copy dispatch_copy(const struct frmps_copy *body)
{
	return (struct backend_copy){
		.dst = body->dst,
		.src = body->src,
		.width = body->width,
		.height = body->height,
		.depth = body->depth,
		.dst_pitch = body->dst_pitch,
		.src_pitch = body->src_pitch,
		.dst_rows = body->dst_rows,
		.src_rows = body->src_rows,
		.dst_is_host = body->kind & (FRMPS_COPY_DST_ARENA | FRMPS_COPY_DST_HOST),
		.src_is_host = body->kind & (FRMPS_COPY_SRC_ARENA | FRMPS_COPY_SRC_HOST),
	};
}

static int offend_constant(struct session *session, uint64_t address, uint64_t bytes)
{
	session_offend(session, "write of %llu bytes at %#llx, which is more than a constant",
		(unsigned long long)bytes, (unsigned long long)address);
	return DISPATCH_E_STOP;
}

/* What a command wrote to a mirror goes on to its constant. The command itself was handed over, whatever
 * becomes of this. */
static void copy_on(struct session *session, struct stream *stream, struct backend_copy onward)
{
	CUresult code =
		executor_code(session->executor, session_ops(session)->copy(stream->backend, &onward));

	if (code && !backend_is_fatal(code))
		session_late_error(session, code);
}

/* @onto: constant_find() */
static int issue_checked_copy(struct session *session, struct stream *stream, struct frmps_head *record,
	const struct backend_copy *copy, uint64_t onto)
{
	CUresult code;

	retire_phase(
		session, stream, copy->dst_is_host && !copy->src_is_host ? STREAM_FETCHES : STREAM_FILLS);
	begin(stream, record);
	code = stream_open(session, stream);
	if (!code)
		code = session_ops(session)->copy(stream->backend, copy);
	if (!code && onto)
		copy_on(session, stream, backend_copy_on(copy, onto));
	return finish(session, stream, record, code);
}

static int issue_copy(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_copy *body = (const void *)(record + 1);
	struct backend_copy copy = dispatch_copy(body);
	uint64_t dst, src, onto;

	if (!dispatch_span(body->width, body->height, body->depth, body->dst_pitch, body->dst_rows, &dst) ||
		!resolve(session, body->dst, dst, body->kind & FRMPS_COPY_DST_ARENA,
			body->kind & FRMPS_COPY_DST_HOST, true, &copy.dst))
		return offend_address(session, "copy into a box", body->dst, body->width);
	if (!dispatch_span(body->width, body->height, body->depth, body->src_pitch, body->src_rows, &src) ||
		!resolve(session, body->src, src, body->kind & FRMPS_COPY_SRC_ARENA,
			body->kind & FRMPS_COPY_SRC_HOST, false, &copy.src))
		return offend_address(session, "copy from a box", body->src, body->width);
	if (!constant_find(&session->constants, copy.dst, dst, &onto))
		return offend_constant(session, copy.dst, dst);
	return issue_checked_copy(session, stream, record, &copy, onto);
}

/* One side of a copy, array or memory. @ret_bytes: of memory, from its address on; 0: an array */
static bool resolve_side(struct session *session, const struct frmps_array_copy *body, bool is_dst,
	struct backend_place *ret_place, uint64_t *ret_address, uint64_t *ret_bytes)
{
	const struct frmps_copy *box = &body->copy;
	struct range memory;

	*ret_bytes = 0;
	if (is_dst ? body->dst_array : body->src_array)
		return !array_place(session, body, is_dst, ret_place, &memory);
	return dispatch_span(box->width, box->height, box->depth, is_dst ? box->dst_pitch : box->src_pitch,
		       is_dst ? box->dst_rows : box->src_rows, ret_bytes) &&
	       resolve(session, is_dst ? box->dst : box->src, *ret_bytes,
		       box->kind & (is_dst ? FRMPS_COPY_DST_ARENA : FRMPS_COPY_SRC_ARENA),
		       box->kind & (is_dst ? FRMPS_COPY_DST_HOST : FRMPS_COPY_SRC_HOST), is_dst, ret_address);
}

static int issue_array_copy(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_array_copy *body = (const void *)(record + 1);
	struct backend_copy copy = dispatch_copy(&body->copy);
	uint64_t dst, src, onto = 0;

	if (!resolve_side(session, body, true, &copy.dst_at, &copy.dst, &dst) ||
		!resolve_side(session, body, false, &copy.src_at, &copy.src, &src)) {
		session_offend(session, "copy from array %u to array %u, or of memory, out of bounds",
			body->src_array, body->dst_array);
		return DISPATCH_E_STOP;
	}
	if (dst && !constant_find(&session->constants, copy.dst, dst, &onto))
		return offend_constant(session, copy.dst, dst);
	return issue_checked_copy(session, stream, record, &copy, onto);
}

static int issue_set(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_set *body = (const void *)(record + 1);
	uint64_t row, bytes, onto;
	CUresult code;

	if (__builtin_mul_overflow(body->width, body->element_bytes, &row) ||
		!dispatch_span(row, body->height, 1, body->pitch, 0, &bytes) ||
		!session_admits(session, body->dst, bytes, true))
		return offend_address(session, "set of rows", body->dst, body->width);
	if (!constant_find(&session->constants, body->dst, bytes, &onto))
		return offend_constant(session, body->dst, bytes);
	retire_phase(session, stream, STREAM_FILLS);
	begin(stream, record);
	code = stream_open(session, stream);
	if (!code)
		code = session_ops(session)->set(stream->backend, body);
	if (!code && onto)
		copy_on(session, stream, backend_set_on(body, onto));
	return finish(session, stream, record, code);
}

/* The mark comes before the driver's event: see the invariants in retire.c. */
static CUresult mark_and_record(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_event_record *body = (const void *)(record + 1);
	CUresult code;

	retire_issued(session, stream, record);
	code = retire_mark(session, stream);
	return code ? code
		    : event_record(
			      session, stream, body->event, body->flags & FRMPS_EVENT_TIMING, record->seq);
}

static int issue_event_record(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_event_record *body = (const void *)(record + 1);
	bool timing = body->flags & FRMPS_EVENT_TIMING;
	CUresult code;

	if (!timing && is_idle(session, stream))
		return settle(session, stream, record);
	begin(stream, record);
	code = stream_open(session, stream);
	if (code)
		return finish(session, stream, record, code);
	code = mark_and_record(session, stream, record);
	if (code && !backend_is_fatal(executor_code(session->executor, code)))
		session_late_error(session, code);
	return executor_is_lost(session->executor) ? DISPATCH_E_STOP : 0;
}

/* An event behind everything that was issued on a stream: for waits that name no event. */
static CUresult join(
	struct session *session, struct stream *on, uint64_t seq, struct backend_event **ret_event)
{
	const struct backend_ops *ops = session_ops(session);
	CUresult code = CUDA_SUCCESS;

	if (!on->join)
		code = ops->event_create(false, &on->join);
	if (!code && on->join_seq < seq) {
		code = retire_mark(session, on);
		if (!code)
			code = ops->event_record(on->join, on->backend);
		if (!code)
			on->join_seq = on->issued;
	}
	if (!code)
		*ret_event = on->join;
	return code;
}

static int issue_depend(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_depend *body = (const void *)(record + 1);
	struct stream *on = &session->streams[body->stream];
	struct backend_event *event;
	CUresult code;

	if (on == stream || stream_done(session, on) >= body->seq)
		return settle(session, stream, record);
	if (on->issued < body->seq)
		return hold(session, stream, STREAM_HOLD_DEPEND);
	begin(stream, record);
	code = stream_open(session, stream);
	event = event_find(session, body->event, body->stream, body->seq);
	if (!code && !event)
		code = join(session, on, body->seq, &event);
	if (!code)
		code = session_ops(session)->stream_wait(stream->backend, event);
	return finish(session, stream, record, code);
}

/* Marked before and behind: that it may have been written is known exactly (takeover.c). */
static int issue_write_value(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_write_value *body = (const void *)(record + 1);
	const struct backend_copy word = {
		.dst = body->address, .width = body->bytes, .height = 1, .depth = 1};
	uint64_t onto;
	CUresult code;

	if (!session_admits(session, body->address, body->bytes, true))
		return offend_address(session, "write of a word", body->address, body->bytes);
	if (!constant_find(&session->constants, body->address, body->bytes, &onto))
		return offend_constant(session, body->address, body->bytes);
	code = stream_open(session, stream);
	if (!code)
		code = retire_mark(session, stream);
	begin(stream, record);
	if (!code)
		code = session_ops(session)->write_value(stream->backend, body);
	if (!code && onto)
		copy_on(session, stream, backend_copy_on(&word, onto));
	record->flags |= FRMPS_CMD_MARK;
	return finish(session, stream, record, code);
}

static int issue_wait_value(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_wait_value *body = (const void *)(record + 1);

	if (!session_admits(session, body->address, body->bytes, false))
		return offend_address(session, "wait for a word", body->address, body->bytes);
	return hold(session, stream, STREAM_HOLD_VALUE);
}

static int issue_host_function(struct session *session, struct stream *stream, struct frmps_head *record)
{
	(void)record;
	stream->host_told = false;
	return hold(session, stream, STREAM_HOLD_HOST);
}

static int issue_event_destroy(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_event_record *body = (const void *)(record + 1);

	executor_code(session->executor, event_destroy(session, body->event));
	return settle(session, stream, record);
}

static int issue_stream_destroy(struct session *session, struct stream *stream, struct frmps_head *record)
{
	(void)record;
	return hold(session, stream, STREAM_HOLD_DESTROY);
}

static int issue_graph(struct session *session, struct stream *stream, struct frmps_head *record)
{
	const struct frmps_graph_launch *body = (const void *)(record + 1);
	CUresult code = stream->backend ? CUDA_SUCCESS : stream_open(session, stream);

	retire_phase(session, stream, STREAM_COMPUTES);
	begin(stream, record);
	stray_note_launch(session);
	if (!code)
		code = graph_launch(session, stream, body->graph);
	return finish(session, stream, record, code);
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
	[FRMPS_OP_GRAPH_LAUNCH] = issue_graph,
	[FRMPS_OP_ARRAY_COPY] = issue_array_copy,
};

/* Moves the cursor behind the command that was issued from it. */
static void advance(struct session *session, struct stream *stream)
{
	if (stream->issued < stream->journal.journaled)
		stream->cursor = journal_next(&session->journal, stream->cursor);
}

static bool has_credit(struct session *session, struct stream *stream)
{
	uint64_t credit = stream_credit(stream);

	if (stream->issued - stream->done < credit)
		return true;
	if (stream->issued - stream_done(session, stream) < credit)
		return true;
	retire_mark(session, stream);
	return false;
}

int dispatch_issue(struct session *session, struct stream *stream)
{
	struct frmps_head *record = journal_at(&session->journal, stream->cursor);
	int error;

	if (session->stopped || executor_is_lost(session->executor))
		return DISPATCH_E_STOP;
	if (gate_is_shut(&session->executor->gate) && !gate_admits(session, stream))
		return hold(session, stream, STREAM_HOLD_GATE);
	if (!has_credit(session, stream))
		return hold(session, stream, STREAM_HOLD_CREDIT);
	error = handlers[record->op](session, stream, record);
	if (!error)
		advance(session, stream);
	return error;
}

void dispatch_settle(struct session *session, struct stream *stream)
{
	settle(session, stream, journal_at(&session->journal, stream->cursor));
	advance(session, stream);
}

unsigned dispatch_backlog(struct session *session, struct stream *stream, unsigned budget)
{
	unsigned issued = 0;

	while (stream->issued < stream->journal.journaled) {
		if (issued == budget) {
			stream_hold(session, stream, STREAM_HOLD_RESUME);
			break;
		}
		if (dispatch_issue(session, stream))
			break;
		issued++;
	}
	return issued;
}
