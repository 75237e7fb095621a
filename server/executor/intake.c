// From the ring into the journal. Serving thread of the session.
//
// The client may write to the ring at any moment, also during a read. So the head is copied once
// and checked, the record is copied once into the journal with the checked head over its own, and
// from then on only that copy counts: the checked bytes are the issued bytes. A record becomes part
// of the journal (states[slot].journaled) before it leaves the ring. An executor that dies in
// between leaves a record in both: the next executor skips the record (stream->adopted).
//
// The ring's head is published once per batch by serve.c, not per record: the client looks at the
// same cache line.

#include "server/executor/intake.h"

#include <string.h>

#include "server/executor/graph_form.h"
#include "server/executor/retire.h"

/* Limits for heads of an op. `most` is 0 where there is no such op. */
struct row {
	uint32_t least, most; /* bytes of a record */
	uint16_t flags;
	bool directive;
};

#define PADDED(bytes)                                                                                        \
	((uint32_t)(((bytes) + FRMPS_RECORD_ALIGN - 1) / FRMPS_RECORD_ALIGN * FRMPS_RECORD_ALIGN))
#define LEAST(body)    (sizeof(struct frmps_head) + sizeof(struct body))
#define AT_MOST(bytes) ((bytes) < FRMPS_RECORD_MAX ? (bytes) : FRMPS_RECORD_MAX)
#define FLAGS(op)      (FRMPS_CMD_MARK | ((op) == FRMPS_OP_LAUNCH ? FRMPS_CMD_COOPERATIVE : 0))

static const struct row rows[] = {
#define OP(name, value, body, payload, directive)                                                            \
	[value] = {PADDED(LEAST(body)), AT_MOST(PADDED(LEAST(body) + (payload))),                            \
		(directive) ? 0 : FLAGS(value), directive},
#include "protocol/ops.def"
#undef OP
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

const char *intake_check_head(const struct frmps_head *head)
{
	const struct row *row;

	if (head->op >= ROWS || !rows[head->op].most)
		return "unknown op";
	if (head->op == FRMPS_OP_PAD)
		return NULL; /* any size that the ring allows; the bytes are not used */
	row = &rows[head->op];
	if (head->size % FRMPS_RECORD_ALIGN || head->size < row->least || head->size > row->most)
		return "wrong size for its op";
	if (head->stream >= SHM_STREAMS)
		return "stream out of range";
	if (head->reserved || head->flags & ~(uint32_t)row->flags)
		return "reserved bits are set";
	if (row->directive ? head->seq != 0 : head->seq == 0)
		return "a sequence number where none belongs, or none";
	return NULL;
}

static const char *check_launch(const struct frmps_head *record)
{
	const struct frmps_launch *body = (const void *)(record + 1);
	uint64_t bytes = sizeof(*record) + sizeof(*body) +
			 body->attribute_count * (uint64_t)sizeof(struct frmps_launch_attribute) +
			 body->argument_bytes;

	if (body->attribute_count > FRMPS_ATTRIBUTE_MAX || body->argument_bytes > FRMPS_ARGUMENT_MAX)
		return "too many launch attributes or arguments";
	return PADDED(bytes) == record->size ? NULL : "launch with another size than its parts";
}

const char *intake_check_copy(const struct frmps_copy *body)
{
	uint32_t dst = body->kind & (FRMPS_COPY_DST_ARENA | FRMPS_COPY_DST_HOST);
	uint32_t src = body->kind & (FRMPS_COPY_SRC_ARENA | FRMPS_COPY_SRC_HOST);

	if (body->reserved || body->kind != (dst | src) ||
		dst == (FRMPS_COPY_DST_ARENA | FRMPS_COPY_DST_HOST) ||
		src == (FRMPS_COPY_SRC_ARENA | FRMPS_COPY_SRC_HOST))
		return "copy of an unknown kind";
	return NULL;
}

/* A side that is an array has the place only: the other fields are 0. */
static bool is_side(uint32_t array, uint32_t level, uint64_t pitch, uint64_t height, uint32_t kind)
{
	if (!array)
		return !level;
	return array < FRMPS_ARRAY_IDS && level < FRMPS_ARRAY_LEVELS && !pitch && !height && !kind;
}

const char *intake_check_array_copy(const struct frmps_array_copy *body)
{
	const struct frmps_copy *copy = &body->copy;

	if ((!body->dst_array && !body->src_array) ||
		!is_side(body->dst_array, body->dst_level, copy->dst_pitch, copy->dst_rows,
			copy->kind & (FRMPS_COPY_DST_ARENA | FRMPS_COPY_DST_HOST)) ||
		!is_side(body->src_array, body->src_level, copy->src_pitch, copy->src_rows,
			copy->kind & (FRMPS_COPY_SRC_ARENA | FRMPS_COPY_SRC_HOST)))
		return "copy of arrays of an unknown kind";
	return intake_check_copy(copy);
}

const char *intake_check_set(const struct frmps_set *body)
{
	uint32_t element = body->element_bytes;

	if (element != 1 && element != 2 && element != 4)
		return "set of elements of an unknown size";
	if (body->dst % element || (body->height > 1 && body->pitch % element))
		return "set of elements that are not aligned";
	return NULL;
}

static const char *check_event(const struct tenant *tenant, const struct frmps_head *record)
{
	const struct frmps_event_record *body = (const void *)(record + 1);

	if (body->event >= shm_view_events(&tenant->view))
		return "event out of range";
	return body->flags & ~FRMPS_EVENT_TIMING ? "unknown event flags" : NULL;
}

static const char *check_depend(const struct tenant *tenant, const struct frmps_head *record)
{
	const struct frmps_depend *body = (const void *)(record + 1);
	const struct stream *on;

	if (body->stream >= SHM_STREAMS ||
		(body->event >= shm_view_events(&tenant->view) && body->event != FRMPS_NO_EVENT))
		return "wait for a stream or event out of range";
	on = &tenant->streams[body->stream]; /* zero before the stream is known */
	return body->seq > on->journal.journaled ? "wait for a command that does not exist yet" : NULL;
}

/* WriteValue and WaitValue have the same form. */
static const char *check_value(const struct frmps_head *record, uint32_t flags)
{
	const struct frmps_wait_value *body = (const void *)(record + 1);

	if ((body->bytes != 4 && body->bytes != 8) || body->address % body->bytes)
		return "word of an unknown size, or not aligned";
	return body->flags & ~flags ? "unknown flags of a word" : NULL;
}

static const char *check_graph_launch(const struct frmps_head *record)
{
	const struct frmps_graph_launch *body = (const void *)(record + 1);

	return body->graph >= FRMPS_GRAPH_IDS || body->reserved ? "graph out of range" : NULL;
}

static const char *check_graph_update(const struct frmps_head *record)
{
	const struct frmps_graph_update *body = (const void *)(record + 1);

	if (body->graph >= FRMPS_GRAPH_IDS || body->applied || body->reserved)
		return "update of a graph that cannot be";
	return graph_form_check_changes(body, graph_changes_bytes(record));
}

const char *intake_check(const struct tenant *tenant, const struct frmps_head *record)
{
	switch (record->op) {
	case FRMPS_OP_LAUNCH:
		return check_launch(record);
	case FRMPS_OP_COPY:
		return intake_check_copy((const void *)(record + 1));
	case FRMPS_OP_ARRAY_COPY:
		return intake_check_array_copy((const void *)(record + 1));
	case FRMPS_OP_SET:
		return intake_check_set((const void *)(record + 1));
	case FRMPS_OP_EVENT_RECORD:
	case FRMPS_OP_EVENT_DESTROY:
		return check_event(tenant, record);
	case FRMPS_OP_DEPEND:
		return check_depend(tenant, record);
	case FRMPS_OP_WRITE_VALUE:
		return check_value(record, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
	case FRMPS_OP_WAIT_VALUE:
		return check_value(record, CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH);
	case FRMPS_OP_GRAPH_LAUNCH:
		return check_graph_launch(record);
	case FRMPS_OP_GRAPH_UPDATE:
		return check_graph_update(record);
	case FRMPS_OP_CONDITION:
		return "a node of graphs as a command";
	default:
		return NULL;
	}
}

static int offend(struct tenant *tenant, const struct frmps_head *head, const char *wrong)
{
	tenant_offend(tenant, "record of op %u, %u bytes, stream %u, seq %llu: %s", head->op, head->size,
		head->stream, (unsigned long long)head->seq, wrong);
	return INTAKE_E_OFFENCE;
}

static int take_directive(struct tenant *tenant, const struct frmps_head *head, const uint8_t *record)
{
	struct stream *stream = tenant_stream(tenant, head->op == FRMPS_OP_PAD ? 0 : head->stream);
	struct frmps_wake wake;

	if (head->op == FRMPS_OP_MARK) {
		retire_want_mark(tenant, stream, stream->journal.journaled);
	} else if (head->op == FRMPS_OP_WAKE) {
		memcpy(&wake, record + sizeof(*head), sizeof(wake));
		if (wake.seq > stream->journal.journaled)
			return offend(tenant, head, "wake for a command that does not exist yet");
		retire_want_mark(tenant, stream, wake.seq);
		retire_want_wake(tenant, stream, wake.seq);
	}
	return INTAKE_E_NOTHING;
}

/* Counts a stream as used before its first command is journaled: an unused stream has no block. */
static void note_used(struct tenant *tenant, const struct stream *stream)
{
	word32 *streams = &tenant->view.server->streams;

	if (word_relaxed(streams) <= stream->slot)
		word_release(streams, stream->slot + 1);
}

/* Room in the journal for a record; when no block is free, drained streams of the session give
 * theirs. */
static bool make_room(struct tenant *tenant, struct stream *stream, uint32_t size)
{
	note_used(tenant, stream);
	if (journal_make_room(&tenant->journal, &stream->journal, size, stream_done(tenant, stream)))
		return true;
	for (uint32_t slot = 0; slot < tenant->known; slot++) {
		struct stream *other = &tenant->streams[slot];

		if (other != stream && other->journal.head != SHM_NO_BLOCK &&
			stream_done(tenant, other) >= other->journal.journaled)
			journal_clear(&tenant->journal, &other->journal);
	}
	return journal_make_room(&tenant->journal, &stream->journal, size, stream_done(tenant, stream));
}

static bool is_too_deep(struct tenant *tenant, struct stream *stream)
{
	return stream->journal.journaled - stream->done > 2 * SHM_STREAM_CREDIT &&
	       stream->journal.journaled - stream_done(tenant, stream) > 2 * SHM_STREAM_CREDIT;
}

/* The client may change the priority at any time. */
static void know_stream(struct tenant *tenant, struct stream *stream)
{
	const volatile struct shm_stream_entry *entry = shm_view_entry(&tenant->view, stream->slot);

	stream->priority = entry->priority;
	stream->part = entry->part;
}

/* Notes events in the order of the ring, which is the program's: streams reach the commands in
 * another order. */
static void know_event(struct tenant *tenant, const struct frmps_head *record)
{
	const struct frmps_event_record *body = (const void *)(record + 1);

	if (record->op == FRMPS_OP_EVENT_RECORD || record->op == FRMPS_OP_EVENT_DESTROY)
		event_expect(
			tenant, body->event, body->flags & FRMPS_EVENT_TIMING, record->stream, record->seq);
}

/* Bytes of a record in the journal. */
static uint32_t journaled_bytes(const struct frmps_head *head)
{
	return head->op == FRMPS_OP_GRAPH_UPDATE
		       ? 2 * head->size - (uint32_t)(sizeof(*head) + sizeof(struct frmps_graph_update))
		       : head->size;
}

static int take_command(struct tenant *tenant, const struct frmps_head *head, const uint8_t *record,
	struct stream **ret_stream)
{
	struct stream *stream = tenant_stream(tenant, head->stream);
	uint32_t size = journaled_bytes(head);
	struct frmps_head *copy;
	const char *wrong;

	if (head->seq <= stream->adopted)
		return INTAKE_E_NOTHING;
	if (head->seq != stream->journal.journaled + 1)
		return offend(tenant, head, "not the next of its stream");
	if (is_too_deep(tenant, stream))
		return offend(tenant, head, "too many commands are waiting in its stream");
	if (size > FRMPS_RECORD_MAX)
		return offend(tenant, head, "too large to be kept");
	if (!journal_fits(&stream->journal, size) && !make_room(tenant, stream, size))
		return INTAKE_E_FULL;
	copy = journal_reserve(&tenant->journal, &stream->journal);
	memcpy(copy, record, head->size);
	*copy = *head;
	copy->size = size;
	wrong = intake_check(tenant, copy);
	if (wrong)
		return offend(tenant, head, wrong);
	know_stream(tenant, stream);
	know_event(tenant, copy);
	if (stream->issued == stream->journal.journaled)
		stream->cursor = journal_end(&stream->journal);
	journal_commit(&tenant->journal, &stream->journal, size, head->seq);
	*ret_stream = stream;
	return 0;
}

int intake_next(struct tenant *tenant, struct stream **ret_stream)
{
	struct frmps_head head;
	const uint8_t *record;
	const char *wrong;
	int error = ring_peek(&tenant->ring, &head, &record);

	if (error == RING_E_EMPTY)
		return INTAKE_E_EMPTY;
	if (error) {
		tenant_offend(tenant, "its ring is not in order");
		return INTAKE_E_OFFENCE;
	}
	/* The next record comes from another processor's cache: fetched while this record is
	 * issued. A record that may not have been written yet must stay in that cache. */
	if (ring_has_seen_next(&tenant->ring, head.size)) {
		__builtin_prefetch(record + head.size);
		__builtin_prefetch(record + head.size + 64);
	}
	wrong = intake_check_head(&head);
	if (wrong)
		return offend(tenant, &head, wrong);
	if (rows[head.op].directive)
		error = take_directive(tenant, &head, record);
	else
		error = take_command(tenant, &head, record, ret_stream);
	if (!error || error == INTAKE_E_NOTHING)
		tenant->ring.head += head.size;
	return error;
}
