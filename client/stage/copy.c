// See copy.h. Runs on the program's threads with no lock held. Large copies of pageable memory go
// through the arena in pieces, several in flight at a time: the processor fills or empties a piece
// while the device moves the others.

#include "client/stage/copy.h"

#include <stdlib.h>
#include <string.h>

#include "client/stage/arena.h"
#include "client/stage/bounce.h"
#include "client/stage/ferry.h"
#include "client/state/array.h"
#include "client/state/peer.h"
#include "client/state/ranges.h"
#include "client/state/registered.h"
#include "client/state/session.h"
#include "client/state/space.h"
#include "client/submit/callback.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"
#include "client/text/text.h"
#include "client/trace/trace.h"

/* Most pieces of a copy from the device to pageable memory that are in flight. */
#define PIPELINE 4
/* Pieces of at least this size, of which the arena has few, get a mark each. */
#define MARKED_BYTES (1u << 20)

static enum copy_place place_of(const struct range *range)
{
	const enum range_kind kind = range->kind;

	return kind == RANGE_HOST || kind == RANGE_MAPPED_HOST || kind == RANGE_POOL_HOST ||
			       kind == RANGE_BEHIND || kind == RANGE_FILE || range_is_managed(range)
		       ? COPY_PINNED
		       : COPY_DEVICE;
}

CUresult copy_classify(uint64_t address, uint64_t bytes, struct copy_side *ret_side)
{
	struct range range;

	if (!address)
		return CUDA_ERROR_INVALID_VALUE;
	if (ranges_lookup(address, &range) != 0) {
		if (space_is_window(address))
			return CUDA_ERROR_INVALID_VALUE;
		*ret_side = (struct copy_side){.place = COPY_PAGEABLE};
		return CUDA_SUCCESS;
	}
	if (bytes > range.room - (address - range.address) &&
		!(range.kind == RANGE_MAPPED && ranges_are_mapped(address, bytes)))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_side = (struct copy_side){.place = place_of(&range),
		.managed = range_is_managed(&range),
		.session = range.session,
		.sync = range.sync_memops};
	if (range.kind == RANGE_REGISTERED) {
		uint64_t device = registered_device_address(&range);

		ret_side->place = device ? COPY_PINNED : COPY_PAGEABLE;
		ret_side->registered = !device;
		ret_side->read_only = range.flags & CU_MEMHOSTREGISTER_READ_ONLY;
		ret_side->shift = device ? device - range.address : 0;
	}
	if (ret_side->place == COPY_DEVICE)
		ret_side->peers = peer_reach(address, bytes);
	if (ret_side->place == COPY_PINNED && !peer_has(range.session, address + ret_side->shift, bytes)) {
		ret_side->place = COPY_PAGEABLE;
		ret_side->registered = ret_side->pinned = true;
		ret_side->shift = 0;
	}
	return CUDA_SUCCESS;
}

static bool reaches(const struct session *session, const struct copy_side *side)
{
	return side->place == COPY_PINNED ||
	       (side->place == COPY_DEVICE &&
		       (side->session == session || (side->peers >> session_ordinal(session) & 1)));
}

bool copy_reaches(const struct copy_side *side)
{
	return reaches(session_self(), side);
}

static CUresult classify_side(const struct box *box, const struct box_side *side, struct copy_side *ret_side)
{
	uint64_t bytes;

	if (side->array) { /* the caller has checked that the box lies in the array */
		*ret_side = (struct copy_side){.place = COPY_DEVICE, .session = side->array->session};
		return array_is(side->array, side->serial) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	if (!box_extent(box, side, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return copy_classify(side->address, bytes, ret_side);
}

struct frmps_array_copy copy_form(const struct box *box, uint32_t kind)
{
	const struct client_array *dst = box->dst.array, *src = box->src.array;

	return (struct frmps_array_copy){
		.copy = {.dst = box->dst.address,
			.src = box->src.address,
			.width = box->width,
			.height = box->height,
			.depth = box->depth,
			.dst_pitch = dst ? 0 : box->dst.pitch,
			.src_pitch = src ? 0 : box->src.pitch,
			.dst_rows = dst ? 0 : box->dst.rows,
			.src_rows = src ? 0 : box->src.rows,
			.kind = kind},
		.dst_array = dst ? dst->form.array : 0,
		.dst_level = dst ? dst->level : 0,
		.src_array = src ? src->form.array : 0,
		.src_level = src ? src->level : 0,
	};
}

static uint64_t box_bytes(const struct box *box)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(box->width, box->height, &bytes) ||
		__builtin_mul_overflow(bytes, box->depth, &bytes))
		return UINT64_MAX;
	return bytes;
}

/* What a call does about its last command before it returns. */
enum ending {
	END_ASYNC, /* none: the program knows that the copy may be in flight */
	END_EARLY, /* none, but all later commands of the program run behind it */
	END_DONE,  /* waits for it */
};

static CUresult send(const struct box *box, uint32_t kind, uint16_t flags, enum ending ending,
	struct client_stream *stream, uint64_t *ret_seq)
{
	const struct frmps_array_copy form = copy_form(box, kind);
	bool has_array = copy_has_array(box);
	uint32_t bytes = has_array ? sizeof(form) : sizeof(form.copy);
	struct submit_timing *timing = trace_is_on() ? trace_copy(box_bytes(box), kind, stream) : NULL;
	struct submit submit;
	CUresult r = submit_begin_timed(
		stream, has_array ? FRMPS_OP_ARRAY_COPY : FRMPS_OP_COPY, bytes, timing, &submit);

	if (r == CUDA_SUCCESS) {
		memcpy(submit.body, &form, bytes);
		submit.head->flags |= flags;
		*ret_seq = submit.seq;
		submit_commit_timed(&submit, timing, ending == END_EARLY);
	}
	return trace_submitted(timing, r);
}

/* Waits for a command and reports errors of earlier commands. */
static CUresult finish(struct client_stream *stream, uint64_t seq)
{
	CUresult r = wait_quietly(stream, seq, false);

	return r == CUDA_SUCCESS ? wait_late_error() : r;
}

static CUresult end(struct client_stream *stream, uint64_t seq, enum ending ending)
{
	return ending == END_DONE ? finish(stream, seq) : CUDA_SUCCESS;
}

/* The device reaches both sides. */
static CUresult copy_direct(
	const struct box *box, uint32_t kind, struct client_stream *stream, enum ending ending)
{
	uint64_t seq;
	CUresult r = send(box, kind, ending == END_DONE ? FRMPS_CMD_MARK : 0, ending, stream, &seq);

	return r == CUDA_SUCCESS ? end(stream, seq, ending) : r;
}

/* The side of a piece that lies in the arena. */
static struct box_side staged_side(const struct box *piece, uint64_t address)
{
	return (struct box_side){.address = address, .pitch = piece->width, .rows = piece->height};
}

/* Reads a piece of pageable memory and submits its copy. @ending: of the last piece */
static CUresult send_piece(const struct box *piece, struct arena_lease *lease, enum ending ending,
	struct client_stream *stream, uint64_t *ret_seq)
{
	struct box in = *piece, out = *piece;
	CUresult r;

	in.dst = staged_side(piece, (uint64_t)(uintptr_t)lease->memory);
	box_copy_in(&in);
	out.src = staged_side(piece, lease->offset);
	/* A large piece is needed again soon; a mark behind several would hold all of these until
	 * the last is done. Behind a smaller piece a mark would only delay the next command. */
	r = send(&out, FRMPS_COPY_SRC_ARENA, lease->bytes >= MARKED_BYTES ? FRMPS_CMD_MARK : 0, ending,
		stream, ret_seq);
	if (r == CUDA_SUCCESS)
		arena_sent(lease, *ret_seq);
	else
		arena_release(lease);
	return r;
}

static CUresult copy_in(const struct box *box, struct client_stream *stream, enum ending ending)
{
	struct box_cursor cursor = {0};
	uint64_t left = box_bytes(box), seq = 0;
	struct arena_lease lease;
	struct box piece;
	CUresult r = CUDA_SUCCESS;

	while (r == CUDA_SUCCESS && left > 0) {
		r = arena_hold(left, stream, &lease);
		if (r != CUDA_SUCCESS)
			return r;
		box_next(box, &cursor, lease.bytes, &piece);
		left -= piece.width * piece.height;
		r = send_piece(&piece, &lease, left ? END_ASYNC : ending, stream, &seq);
	}
	return r == CUDA_SUCCESS ? end(stream, seq, ending) : r;
}

/* A piece in flight from the device. */
struct arrival {
	struct arena_lease lease;
	struct box piece;
	uint64_t seq;
};

/* Lets the device write the next piece of a box into the arena. CUDA_ERROR_NOT_READY: no piece is
 * free, and the caller has another piece in flight. */
static CUresult fetch(const struct box *box, struct box_cursor *cursor, uint64_t left, bool any_in_hand,
	struct client_stream *stream, struct arrival *arrival)
{
	CUresult r = any_in_hand ? arena_try(left, stream, &arrival->lease)
				 : arena_hold(left, stream, &arrival->lease);
	struct box out;

	if (r != CUDA_SUCCESS)
		return r;
	box_next(box, cursor, arrival->lease.bytes, &arrival->piece);
	out = arrival->piece;
	out.dst = staged_side(&out, arrival->lease.offset);
	r = send(&out, FRMPS_COPY_DST_ARENA, FRMPS_CMD_MARK, END_ASYNC, stream, &arrival->seq);
	if (r == CUDA_SUCCESS)
		arena_awaits(&arrival->lease, arrival->seq);
	else
		arena_release(&arrival->lease);
	return r;
}

/* Waits for a piece and copies it to the program's memory. After an error it only frees the piece,
 * behind the command that may still write it. */
static CUresult receive(struct arrival *arrival, struct client_stream *stream, CUresult r)
{
	struct box in = arrival->piece;

	if (r == CUDA_SUCCESS)
		r = wait_quietly(stream, arrival->seq, false);
	if (r != CUDA_SUCCESS) {
		arena_sent(&arrival->lease, arrival->seq);
		return r;
	}
	in.src = staged_side(&in, (uint64_t)(uintptr_t)arrival->lease.memory);
	box_copy_out(&in);
	arena_release(&arrival->lease);
	return CUDA_SUCCESS;
}

static CUresult copy_out(const struct box *box, struct client_stream *stream)
{
	struct arrival ring[PIPELINE];
	struct box_cursor cursor = {0};
	uint64_t left = box_bytes(box);
	unsigned int sent = 0, received = 0;
	CUresult r = CUDA_SUCCESS;

	while ((r == CUDA_SUCCESS && left > 0) || received < sent) {
		if (r == CUDA_SUCCESS && left > 0 && sent - received < PIPELINE) {
			struct arrival *arrival = &ring[sent % PIPELINE];

			r = fetch(box, &cursor, left, received < sent, stream, arrival);
			if (r == CUDA_SUCCESS) {
				left -= arrival->piece.width * arrival->piece.height;
				++sent;
			}
			if (r != CUDA_ERROR_NOT_READY)
				continue;
			r = CUDA_SUCCESS;
		}
		r = receive(&ring[received++ % PIPELINE], stream, r);
	}
	return r == CUDA_SUCCESS ? wait_late_error() : r;
}

/* From host memory to host memory: the device is not involved, but stream order is. Such copies are
 * synchronous by the driver's own rules, pinned or not. */
static CUresult copy_here(const struct box *box, struct client_stream *stream)
{
	CUresult r = wait_turn(stream);

	if (r == CUDA_SUCCESS)
		box_copy(box);
	return r;
}

/* A copy that a host function makes in stream order. */
struct late {
	struct box box;
	uint8_t bytes[]; /* of pageable memory that was read at once */
};

/* Most bytes of pageable memory that are read at once. */
#define LATE_MOST (64u << 10)

static void copy_late(void *user)
{
	struct late *late = user;

	box_copy(&late->box);
	free(late);
}

/* Programs treat managed memory as the device's, and do not wait for its asynchronous copies,
 * except for copies to pageable memory, and for large copies from pageable memory. */
static bool is_late(const struct box *box, const struct copy_side *dst, const struct copy_side *src)
{
	if (copy_is_plain(src))
		return dst->managed && box_bytes(box) <= LATE_MOST;
	return (dst->place == COPY_PINNED || dst->registered) && (dst->managed || src->managed);
}

static CUresult copy_here_late(
	const struct box *box, const struct copy_side *src, struct client_stream *stream)
{
	struct late *late = malloc(sizeof(*late) + (copy_is_plain(src) ? box_bytes(box) : 0));
	CUresult r;

	if (!late)
		return copy_here(box, stream);
	late->box = *box;
	if (copy_is_plain(src)) {
		struct box in = *box;

		in.dst = late->box.src = staged_side(box, (uint64_t)(uintptr_t)late->bytes);
		box_copy(&in);
	}
	r = callback_own_function(stream, copy_late, late);
	if (r != CUDA_SUCCESS)
		free(late);
	return r;
}

static uint32_t kind_of(const struct copy_side *dst, const struct copy_side *src)
{
	return (dst->place == COPY_PINNED ? FRMPS_COPY_DST_HOST : 0) |
	       (src->place == COPY_PINNED ? FRMPS_COPY_SRC_HOST : 0);
}

static CUresult copy_reachable(const struct box *box, const struct copy_side *dst,
	const struct copy_side *src, struct client_stream *stream, bool async)
{
	const uint32_t kind = kind_of(dst, src);

	if (async)
		return copy_direct(box, kind, stream, END_ASYNC);
	return copy_direct(box, kind, stream, kind || dst->sync || src->sync ? END_DONE : END_EARLY);
}

/* The device's half of a copy through pinned memory. */
static CUresult send_pinned(const struct box *box, struct client_stream *stream, bool to_device)
{
	return copy_direct(box, to_device ? FRMPS_COPY_SRC_HOST : FRMPS_COPY_DST_HOST, stream, END_ASYNC);
}

/* Places of both sides; checks that the call may name them. */
static CUresult classify(
	const struct box *box, unsigned int how, struct copy_side *ret_dst, struct copy_side *ret_src)
{
	CUresult r = classify_side(box, &box->dst, ret_dst);

	if (r == CUDA_SUCCESS)
		r = classify_side(box, &box->src, ret_src);
	if (r != CUDA_SUCCESS)
		return r;
	if ((how & COPY_DST_DEVICE) && ret_dst->place == COPY_PAGEABLE && !ret_dst->pinned)
		return CUDA_ERROR_INVALID_VALUE;
	if ((how & COPY_SRC_DEVICE) && ret_src->place == COPY_PAGEABLE && !ret_src->pinned)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult copy_examine(struct box *box, unsigned int how, struct copy_side *ret_dst, struct copy_side *ret_src)
{
	CUresult r;

	if (box->height == 1 && box->depth == 1)
		box->dst.pitch = box->src.pitch = box->width;
	r = classify(box, how, ret_dst, ret_src);
	if (r == CUDA_SUCCESS && ret_dst->read_only)
		return CUDA_ERROR_INVALID_VALUE;
	/* The rows of an array do not follow each other. */
	if (r == CUDA_SUCCESS && !copy_has_array(box))
		box_flatten(box);
	return r;
}

static CUresult run_box(struct box box, struct client_stream *stream, unsigned int how);

/* The session of a side that is memory of another device; NULL: for other memory. */
static struct session *far_session(const struct copy_side *side, const struct client_stream *stream)
{
	return side->place == COPY_DEVICE && side->session != stream->session ? side->session : NULL;
}

/* A device's part of a copy between devices. */
static CUresult send_part(
	const struct box *box, struct client_stream *stream, bool to_device, uint64_t *ret_seq)
{
	return send(box, to_device ? FRMPS_COPY_SRC_HOST : FRMPS_COPY_DST_HOST, FRMPS_CMD_MARK, END_ASYNC,
		stream, ret_seq);
}

/* The only device is not the stream's: the call makes the copy there, behind the earlier work of
 * the stream. */
static CUresult copy_there(
	struct box box, struct session *there, struct client_stream *stream, unsigned int how)
{
	CUresult r = wait_turn(stream);
	SESSION_SCOPE(there);

	if (r == CUDA_SUCCESS)
		r = run_box(box, there->streams.legacy, how & ~COPY_ASYNC);
	return r == CUDA_SUCCESS ? wait_stream(there->streams.legacy) : r;
}

/* Synchronous copies come behind the earlier work of the default streams of both devices. */
static CUresult wait_for_others(const struct copy_side *side, const struct client_stream *stream)
{
	struct session *session = far_session(side, stream);

	return session ? wait_stream(session->streams.legacy) : CUDA_SUCCESS;
}

/* A side is another device's memory than the stream's. */
static CUresult copy_far(const struct box *box, const struct copy_side *dst, const struct copy_side *src,
	struct client_stream *stream, unsigned int how)
{
	struct session *to = dst->place == COPY_DEVICE ? dst->session : NULL;
	struct session *from = src->place == COPY_DEVICE ? src->session : NULL;
	bool waits = !(how & COPY_ASYNC), is_alone = !to || !from || to == from;
	struct box near = *box;
	uint64_t seq;
	CUresult r = CUDA_SUCCESS;

	near.dst.address += dst->shift;
	near.src.address += src->shift;
	if (is_alone && (waits || (!to && copy_is_plain(dst)) || (!from && copy_is_plain(src))))
		return copy_there(*box, to ? to : from, stream, how);
	if (waits)
		r = wait_for_others(dst, stream);
	if (r == CUDA_SUCCESS && waits)
		r = wait_for_others(src, stream);
	if (r == CUDA_SUCCESS && reaches(stream->session, dst) && reaches(stream->session, src))
		return copy_direct(&near, kind_of(dst, src), stream, waits ? END_DONE : END_ASYNC);
	if (r == CUDA_SUCCESS)
		r = ferry(box, to, from, stream, send_part, &seq);
	return r == CUDA_SUCCESS && waits ? finish(stream, seq) : r;
}

static CUresult run_box(struct box box, struct client_stream *stream, unsigned int how)
{
	bool async = how & COPY_ASYNC;
	struct copy_side dst, src;
	CUresult r;

	if (box_is_empty(&box))
		return CUDA_SUCCESS;
	r = copy_examine(&box, how, &dst, &src);
	if (r != CUDA_SUCCESS)
		return r;
	if (dst.place != COPY_DEVICE && src.place != COPY_DEVICE)
		return async && is_late(&box, &dst, &src) ? copy_here_late(&box, &src, stream)
							  : copy_here(&box, stream);
	if (far_session(&dst, stream) || far_session(&src, stream))
		return copy_far(&box, &dst, &src, stream, how);
	box.dst.address += dst.shift;
	box.src.address += src.shift;
	if (dst.registered || src.registered) {
		if (async) {
			/* Without pinned memory the copy is made at once. The commands that were
			 * submitted before the failure change nothing. */
			r = bounce(&box, stream, dst.place == COPY_DEVICE, send_pinned);
			if (r != CUDA_ERROR_OUT_OF_MEMORY)
				return r;
		}
		/* Host functions of earlier copies may have to write or read the memory first. */
		r = wait_turn(stream);
		if (r != CUDA_SUCCESS)
			return r;
	}
	if (dst.place != COPY_PAGEABLE && src.place != COPY_PAGEABLE)
		return copy_reachable(&box, &dst, &src, stream, async);
	if (dst.place == COPY_DEVICE)
		return copy_in(&box, stream,
			async			     ? END_ASYNC
			: dst.sync || text_is_open() ? END_DONE /* the text of earlier commands is due */
						     : END_EARLY);
	return copy_out(&box, stream);
}

CUresult copy_box(struct box box, struct client_stream *stream, unsigned int how)
{
	CUresult r = run_box(box, stream, how);

	if (!(how & COPY_ASYNC))
		text_flush(stream->session);
	return r;
}

/* The driver's checks of a fill at the call. */
static CUresult check_fill(const struct copy_fill *fill, struct copy_side *ret_side)
{
	struct box box = {.height = fill->height, .depth = 1};
	CUresult r;

	if (__builtin_mul_overflow(fill->width, (uint64_t)fill->element_bytes, &box.width))
		return CUDA_ERROR_INVALID_VALUE;
	if (fill->dst % fill->element_bytes != 0 ||
		(fill->height > 1 && fill->pitch % fill->element_bytes != 0))
		return CUDA_ERROR_INVALID_VALUE;
	box.dst = (struct box_side){.address = fill->dst, .pitch = fill->pitch, .rows = fill->height};
	r = classify_side(&box, &box.dst, ret_side);
	return r == CUDA_SUCCESS && ret_side->place == COPY_PAGEABLE ? CUDA_ERROR_INVALID_VALUE : r;
}

static struct frmps_set set_form(const struct copy_fill *fill, const struct copy_side *side)
{
	return (struct frmps_set){
		.dst = fill->dst + side->shift,
		.width = fill->width,
		.height = fill->height,
		.pitch = fill->height > 1 ? fill->pitch : fill->width * fill->element_bytes,
		.value = fill->value,
		.element_bytes = fill->element_bytes,
	};
}

CUresult copy_fill_form(const struct copy_fill *fill, struct frmps_set *ret_form)
{
	struct copy_side side;
	CUresult r = check_fill(fill, &side);

	if (r == CUDA_SUCCESS && !copy_reaches(&side))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*ret_form = set_form(fill, &side);
	return r;
}

static CUresult send_fill(
	const struct frmps_set *form, enum ending ending, struct client_stream *stream, uint64_t *ret_seq)
{
	uint64_t bytes = form->width * form->element_bytes * form->height;
	struct submit_timing *timing = trace_is_on() ? trace_fill(bytes, stream) : NULL;
	struct submit submit;
	CUresult r = submit_begin_timed(stream, FRMPS_OP_SET, sizeof(*form), timing, &submit);

	if (r == CUDA_SUCCESS) {
		*(struct frmps_set *)submit.body = *form;
		*ret_seq = submit.seq;
		submit_commit_timed(&submit, timing, ending == END_EARLY);
	}
	return trace_submitted(timing, r);
}

/* As copy_there(). */
static CUresult set_there(
	const struct copy_fill *fill, const struct copy_side *side, struct client_stream *stream)
{
	CUresult r = wait_turn(stream);
	SESSION_SCOPE(side->session);

	if (r == CUDA_SUCCESS)
		r = copy_set(fill, side->session->streams.legacy, 0);
	return r == CUDA_SUCCESS ? wait_stream(side->session->streams.legacy) : r;
}

CUresult copy_set(const struct copy_fill *fill, struct client_stream *stream, unsigned int how)
{
	enum ending ending = END_ASYNC;
	struct copy_side side;
	struct frmps_set form;
	uint64_t seq = 0;
	CUresult r;

	if (fill->width == 0 || fill->height == 0)
		return CUDA_SUCCESS;
	r = check_fill(fill, &side);
	if (r == CUDA_SUCCESS && far_session(&side, stream)) {
		if (!(how & COPY_ASYNC))
			return set_there(fill, &side, stream);
		r = reaches(stream->session, &side) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	if (r != CUDA_SUCCESS)
		return r;
	if (!(how & COPY_ASYNC))
		ending = side.sync || side.place == COPY_PINNED ? END_DONE : END_EARLY;
	form = set_form(fill, &side);
	r = send_fill(&form, ending, stream, &seq);
	return r == CUDA_SUCCESS ? end(stream, seq, ending) : r;
}
