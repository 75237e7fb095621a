// The table of events. Runs on the program's threads. An event's word has the place of its latest
// record, as (slot << SEQ_BITS | seq), 0 before the first; a thread writes the word inside the ring
// lock together with the record itself, so that the record is on the ring before any later command
// that reads the word. The table's lock guards the owners of slots.
//
// Life of a slot: free → in use → closed (its EVENT_DESTROY is sent) → free, once that is done. A
// slot without a record is free at once. Streams reach the EVENT_DESTROY at different times, so
// closed slots are not checked in the order of their ends alone: a slot that is not done moves to
// the end of the queue.

#include "client/state/event.h"

#include <pthread.h>

#include "client/graph/capture.h"
#include "client/link/lost.h"
#include "client/state/log.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/state/shared_event.h"
#include "client/state/stream.h"
#include "client/state/timing.h"
#include "client/submit/crossing.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"

#define HANDLE_TAG	  UINT64_C(8) /* no stream handle has this bit */
#define HANDLE_SLOT_SHIFT 4
#define HANDLE_USE_SHIFT  22
#define HANDLE_USE_BITS	  24
#define SEQ_BITS	  48
/* Closed slots that are checked before a new slot is taken. */
#define REAP_TRIES 4

struct event {
	word64 handle;			 /* 0 while the slot is unused; written under the table's lock */
	word64 record;			 /* written inside the ring lock */
	uint64_t uses;			 /* table */
	uint64_t gone;			 /* table: record of the EVENT_DESTROY */
	struct captured *captured;	 /* graph/capture.c: recorded in a capture, which may have ended */
	struct shm_shared_event *shared; /* of an event for several programs: the place of its records */
	word64 number;			 /* shared: of the latest record of this program */
	_Atomic bool exported, imported;
	_Atomic bool clocked;	 /* its time was queried, and probably will be again */
	struct session *session; /* of the context */
	CUcontext context;
	uint32_t flags;
	uint32_t next; /* table: link in the queue of closed slots or the stack of free slots */
};

static struct event table[SHM_EVENTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by lock. Slot 0 stays unused, so 0 can end the lists. */
static uint32_t used = 1, free_top, closed_first, closed_last;

static uint32_t slot_of(const struct event *event)
{
	return (uint32_t)(event - table);
}

static struct client_stream *record_stream(uint64_t record)
{
	return stream_slot((uint32_t)(record >> SEQ_BITS) % SHM_STREAMS);
}

static uint64_t record_seq(uint64_t record)
{
	return record & ((UINT64_C(1) << SEQ_BITS) - 1);
}

static uint64_t make_record(const struct submit *submit)
{
	return shm_place(submit->head->stream, submit->seq);
}

static bool is_done(uint64_t record)
{
	return record == 0 || wait_is_done(record_stream(record), record_seq(record));
}

static struct event *resolve(CUevent handle)
{
	uint64_t value = (uint64_t)(uintptr_t)handle;
	struct event *event = &table[(value >> HANDLE_SLOT_SHIFT) % SHM_EVENTS];

	return value && word_acquire(&event->handle) == value ? event : NULL;
}

static void shelve_free(struct event *event)
{
	event->next = free_top;
	free_top = slot_of(event);
}

static void shelve_closed(struct event *event)
{
	event->next = 0;
	if (closed_first)
		table[closed_last].next = slot_of(event);
	else
		closed_first = slot_of(event);
	closed_last = slot_of(event);
}

/* Moves closed slots that are done to the free slots: checks at most `tries`, none twice. */
static void reap(uint32_t tries)
{
	uint32_t last = closed_last, slot = 0;

	while (tries-- && closed_first && slot != last) {
		struct event *event = &table[closed_first];

		slot = closed_first;
		closed_first = event->next;
		if (is_done(event->gone))
			shelve_free(event);
		else
			shelve_closed(event);
	}
}

static struct event *take_slot(void)
{
	struct event *event;
	const uint32_t most = shm_view_events(&session_self()->connection.view);

	reap(REAP_TRIES);
	if (!free_top && used >= most)
		reap(SHM_EVENTS);
	if (free_top) {
		event = &table[free_top];
		free_top = event->next;
		return event;
	}
	return used < most ? &table[used++] : NULL;
}

static uint64_t next_handle(struct event *event)
{
	uint64_t use = ++event->uses & ((UINT64_C(1) << HANDLE_USE_BITS) - 1);

	return (use + 1) << HANDLE_USE_SHIFT | (uint64_t)slot_of(event) << HANDLE_SLOT_SHIFT | HANDLE_TAG;
}

/* A program may destroy events faster than their streams reach the EVENT_DESTROY. Drops the lock
 * meanwhile. */
static CUresult await_slot(void)
{
	uint64_t gone = closed_first ? table[closed_first].gone : 0;
	CUresult r;

	if (!gone)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&lock);
	r = wait_quietly(record_stream(gone), record_seq(gone), false);
	pthread_mutex_lock(&lock);
	return r;
}

static void forget_capture(struct event *event)
{
	if (event->captured)
		capture_forget(&event->captured);
}

static CUresult make(
	CUcontext context, unsigned int flags, struct shm_shared_event *shared, CUevent *ret_event)
{
	struct event *event;
	uint64_t handle;
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	while (!(event = take_slot()) && r == CUDA_SUCCESS)
		r = await_slot();
	pthread_mutex_unlock(&lock);
	if (!event)
		return r;
	/* A thread may have recorded the slot's former event while another thread destroyed it. */
	forget_capture(event);
	event->session = session_self();
	event->context = context;
	event->flags = flags;
	event->shared = shared;
	event->exported = event->imported = event->clocked = false;
	word_set(&event->number, 0);
	word_set(&event->record, 0);
	handle = next_handle(event);
	word_release(&event->handle, handle);
	*ret_event = (CUevent)(uintptr_t)handle;
	return CUDA_SUCCESS;
}

CUresult event_create(CUcontext context, unsigned int flags, CUevent *ret_event)
{
	struct shm_shared_event *shared = NULL;
	CUresult r = flags & CU_EVENT_INTERPROCESS ? shared_event_new(&shared) : CUDA_SUCCESS;

	if (r != CUDA_SUCCESS)
		return r;
	r = make(context, flags, shared, ret_event);
	if (r != CUDA_SUCCESS)
		shared_event_free(shared, false);
	return r;
}

uint32_t event_take_number(void)
{
	struct event *event;

	pthread_mutex_lock(&lock);
	event = take_slot();
	pthread_mutex_unlock(&lock);
	return event ? slot_of(event) : 0;
}

CUresult event_export(CUevent handle, CUipcEventHandle *ret_handle)
{
	struct event *event = resolve(handle);

	/* An imported event belongs to the program that made it. */
	if (!event || !event->shared || (event->exported && event->imported))
		return CUDA_ERROR_INVALID_HANDLE;
	event->exported = true;
	shared_event_export(event->shared, ret_handle);
	return CUDA_SUCCESS;
}

CUresult event_import(CUcontext context, const CUipcEventHandle *handle, CUevent *ret_event)
{
	struct shm_shared_event *shared;
	CUresult r = shared_event_import(handle, &shared);

	if (r != CUDA_SUCCESS)
		return r;
	r = make(context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, shared, ret_event);
	if (r == CUDA_SUCCESS)
		resolve(*ret_event)->imported = resolve(*ret_event)->exported = true;
	else
		shared_event_free(shared, true);
	return r;
}

static CUresult send_destroy(struct client_stream *stream, uint32_t slot, uint64_t *ret_gone)
{
	struct submit submit;
	CUresult r =
		submit_begin_own(stream, FRMPS_OP_EVENT_DESTROY, sizeof(struct frmps_event_record), &submit);

	if (r != CUDA_SUCCESS)
		return r;
	*(struct frmps_event_record *)submit.body = (struct frmps_event_record){.event = slot};
	*ret_gone = make_record(&submit);
	submit_commit_own(&submit);
	return CUDA_SUCCESS;
}

/* Sends EVENT_DESTROY to the executor: behind the record in the same stream or, if that stream is
 * closed, in the legacy stream. */
static uint64_t announce(struct event *event)
{
	uint64_t record = word_acquire(&event->record);
	uint64_t gone = 0;

	if (record && send_destroy(record_stream(record), slot_of(event), &gone) == CUDA_ERROR_INVALID_HANDLE)
		send_destroy(event->session->streams.legacy, slot_of(event), &gone);
	return gone;
}

static void retire(struct event *event)
{
	uint64_t gone = announce(event);

	pthread_mutex_lock(&lock);
	event->gone = gone;
	if (gone)
		shelve_closed(event);
	else
		shelve_free(event);
	pthread_mutex_unlock(&lock);
}

bool event_is_live(CUevent event)
{
	return resolve(event) != NULL;
}

struct session *event_session(CUevent handle)
{
	const struct event *event = resolve(handle);

	return event ? event->session : NULL;
}

CUcontext event_context(CUevent handle)
{
	const struct event *event = resolve(handle);

	return event ? event->context : NULL;
}

CUresult event_check_launch(CUevent handle)
{
	const struct event *event = resolve(handle);

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->shared)
		return CUDA_ERROR_INVALID_VALUE;
	return event->flags & CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult event_destroy(CUevent handle)
{
	struct event *event = resolve(handle);
	uint64_t value = (uint64_t)(uintptr_t)handle;

	if (!event || !atomic_compare_exchange_strong(&event->handle, &value, 0))
		return CUDA_ERROR_INVALID_HANDLE;
	SESSION_SCOPE(event->session);
	forget_capture(event);
	event->shared = shared_event_free(event->shared, event->imported);
	retire(event);
	return CUDA_SUCCESS;
}

void event_release_context(CUcontext context)
{
	uint32_t end;

	pthread_mutex_lock(&lock);
	end = used;
	pthread_mutex_unlock(&lock);
	for (uint32_t i = 1; i < end; ++i) {
		uint64_t handle = word_acquire(&table[i].handle);

		if (handle && table[i].context == context)
			event_destroy((CUevent)(uintptr_t)handle);
	}
}

static CUresult record_shared(struct event *event, struct client_stream *stream)
{
	uint64_t number, seq;
	uint32_t slot;
	CUresult r;

	if (capture_is_on(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	r = shared_event_record(event->shared, stream, &number, &slot, &seq);
	if (r != CUDA_SUCCESS)
		return r;
	word_release(&event->record, (uint64_t)slot << SEQ_BITS | seq);
	word_release(&event->number, number);
	return CUDA_SUCCESS;
}

/* True if the latest record is another program's, which only the shared place has, and is not
 * done. */
static bool is_foreign(struct event *event, uint64_t *ret_number)
{
	if (!event->shared)
		return false;
	*ret_number = shared_event_latest(event->shared);
	return *ret_number != word_acquire(&event->number) &&
	       !shared_event_is_done(event->shared, *ret_number);
}

CUresult event_record(CUevent handle, struct client_stream *stream)
{
	struct event *event = resolve(handle);
	struct submit submit;
	CUresult r;

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->shared)
		return record_shared(event, stream);
	if (capture_is_on(stream))
		return capture_record(stream, &event->captured);
	forget_capture(event);
	r = submit_begin(stream, FRMPS_OP_EVENT_RECORD, sizeof(struct frmps_event_record), &submit);
	if (r != CUDA_SUCCESS)
		return r;
	*(struct frmps_event_record *)submit.body = (struct frmps_event_record){
		.event = slot_of(event),
		.flags = event->flags & CU_EVENT_DISABLE_TIMING ? 0 : FRMPS_EVENT_TIMING,
	};
	submit.head->flags |= FRMPS_CMD_MARK;
	word_release(&event->record, make_record(&submit));
	submit_commit(&submit);
	return CUDA_SUCCESS;
}

/* Waits for the latest record outside of captures. */
static CUresult wait_recorded(struct event *event, struct client_stream *stream)
{
	uint64_t record = word_acquire(&event->record);
	struct submit submit;
	CUresult r;

	if (is_done(record) || record_stream(record) == stream)
		return CUDA_SUCCESS;
	if (event->session != stream->session)
		return crossing_wait(stream, record_stream(record), record_seq(record));
	r = submit_begin(stream, FRMPS_OP_DEPEND, sizeof(struct frmps_depend), &submit);
	if (r != CUDA_SUCCESS)
		return r;
	/* Reads the word again: another thread may have recorded meanwhile, and the event slot
	 * names the latest record. A record in this very stream precedes this command, so the wait
	 * ends at once. */
	record = word_acquire(&event->record);
	*(struct frmps_depend *)submit.body = (struct frmps_depend){
		.seq = record_seq(record),
		.stream = record_stream(record)->slot,
		.event = slot_of(event),
	};
	submit_commit(&submit);
	return CUDA_SUCCESS;
}

/* Waits for another program's record. Its word is in memory of the event's device. */
static CUresult wait_foreign(const struct event *event, uint64_t number, struct client_stream *stream)
{
	return event->session == stream->session
		       ? shared_event_wait(event->shared, number, stream)
		       : shared_event_wait_across(event->shared, number, event->session, stream);
}

CUresult event_wait(CUevent handle, struct client_stream *stream)
{
	struct event *event = resolve(handle);
	uint64_t number;

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (is_foreign(event, &number))
		return capture_is_on(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
					     : wait_foreign(event, number, stream);
	if (capture_is_on(stream) || event->captured)
		return capture_wait(stream, &event->captured, word_acquire(&event->record) != 0);
	return wait_recorded(event, stream);
}

CUresult event_wait_launched(CUevent handle, struct client_stream *stream)
{
	struct event *event = resolve(handle);
	uint64_t number;

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return is_foreign(event, &number) ? wait_foreign(event, number, stream)
					  : wait_recorded(event, stream);
}

CUresult event_refuse_captured(CUevent handle)
{
	struct event *event = resolve(handle);

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return event->captured ? capture_refuse_event(&event->captured) : CUDA_SUCCESS;
}

CUresult event_query(CUevent handle)
{
	struct event *event = resolve(handle);
	uint64_t record = event ? word_acquire(&event->record) : 0, number;

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (is_foreign(event, &number)) {
		CUresult r = lost_glance(event->session);

		return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : r;
	}
	if (event->captured)
		return capture_refuse_event(&event->captured);
	return record ? wait_poll(record_stream(record), record_seq(record)) : CUDA_SUCCESS;
}

static struct timing_record timing_record(struct event *event, uint64_t record)
{
	return (struct timing_record){.event = slot_of(event),
		.latest = &event->record,
		.place = record,
		.seq = record_seq(record),
		.stream = record_stream(record)};
}

/* A program that queries times does so right after its wait. With the driver an event is not done
 * before its time is known. */
static void await_time(struct event *event, uint64_t record)
{
	struct timing_record timed = timing_record(event, record);

	if (event->clocked)
		timing_expect(&timed);
}

CUresult event_synchronize(CUevent handle)
{
	struct event *event = resolve(handle);
	uint64_t record = event ? word_acquire(&event->record) : 0, number;
	CUresult r = CUDA_SUCCESS;

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (is_foreign(event, &number))
		return shared_event_synchronize(event->shared, number);
	if (event->captured)
		return capture_refuse_event(&event->captured);
	if (record)
		r = wait_done(
			record_stream(record), record_seq(record), event->flags & CU_EVENT_BLOCKING_SYNC);
	if (record && r == CUDA_SUCCESS)
		await_time(event, record);
	return r == CUDA_SUCCESS ? wait_late_error() : r;
}

/* Checks that a time can be queried. @ret_record: the record */
static CUresult check_timed(struct event *event, uint64_t *ret_record)
{
	uint64_t record = event ? word_acquire(&event->record) : 0;

	*ret_record = record;
	if (event && event->captured)
		return capture_refuse_event(&event->captured);
	if (!record || (event->flags & CU_EVENT_DISABLE_TIMING))
		return CUDA_ERROR_INVALID_HANDLE;
	return wait_known(record_stream(record), record_seq(record));
}

static void note_clocked(struct event *event)
{
	if (!event->clocked)
		event->clocked = true;
}

CUresult event_elapsed(CUevent start, CUevent end, float *ret_milliseconds)
{
	struct event *first = resolve(start), *second = resolve(end);
	struct timing_record from, to;
	uint64_t begun, ended;
	CUresult a = check_timed(first, &begun), b = check_timed(second, &ended);

	/* An error takes precedence over "not ready". */
	if (a == CUDA_SUCCESS || (a == CUDA_ERROR_NOT_READY && b != CUDA_SUCCESS))
		a = b;
	if (a != CUDA_SUCCESS)
		return a;
	/* Their times have nothing in common. */
	if (first->session != second->session)
		return CUDA_ERROR_INVALID_HANDLE;
	note_clocked(first);
	note_clocked(second);
	from = timing_record(first, begun);
	to = timing_record(second, ended);
	return timing_between(&from, &to, ret_milliseconds);
}
