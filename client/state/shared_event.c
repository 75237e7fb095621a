// See shared_event.h. Runs on the program's threads. The lock guards the owners of places. A thread
// holds the lock while it asks the service for a page, which is rare, but not while it unmaps
// pages, which waits for the device.
//
// The numbers in a record's place differ by SHM_SHARED_RECORDS: a number is written only after the
// number before it, so that a slow stream never overwrites a later record. The stream waits for
// that, not the program.

#include "client/state/shared_event.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/link/lost.h"
#include "client/state/device.h"
#include "client/state/host.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/submit/crossing.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"

#define MAGIC "frmpsevt"
/* Pages that are unmapped at a time: each takes the service some milliseconds. */
#define DROP_MOST 4

struct content {
	char magic[8];
	uint64_t session;   /* of the program that made the event */
	uint64_t page;	    /* address of the page in that program */
	uint64_t place;	    /* in the page */
	uint8_t device[16]; /* UUID of its device */
};
_Static_assert(sizeof(struct content) <= sizeof(CUipcEventHandle), "a handle holds what it says");

/* A page of another program. */
struct import {
	uint64_t session, page;
	struct shm_shared_event *events;
	_Atomic uint32_t users; /* events that are open, and waits of other devices' streams */
	STAILQ_ENTRY(import) link;
};

struct spare {
	STAILQ_ENTRY(spare) link;
	struct shm_shared_event *event;
};

static struct shared_events *own(void)
{
	return &session_self()->shared_events;
}

void shared_event_start(void)
{
	struct shared_events *events = own();

	pthread_mutex_init(&events->lock, NULL);
	pthread_mutex_init(&events->dropping, NULL);
	STAILQ_INIT(&events->imports);
	STAILQ_INIT(&events->spares);
	events->page_used = SHM_SHARED_PAGE_EVENTS;
}

/* ---- places ---- */

/* A record in flight would still be written. */
static bool is_still(const struct shm_shared_event *event)
{
	return shared_event_is_done(event, shared_event_latest(event));
}

/* A place that was used before; NULL if there is none. */
static struct shm_shared_event *take_spare(void)
{
	struct shared_events *events = own();
	struct shm_shared_event *event;
	struct spare *spare;

	STAILQ_FOREACH (spare, &events->spares, link)
		if (is_still(spare->event))
			break;
	if (!spare)
		return NULL;
	STAILQ_REMOVE(&events->spares, spare, spare, link);
	event = spare->event;
	free(spare);
	return event;
}

/* Takes out the oldest pages with no event that is open. */
static void take_idle(struct import_list *ret_list)
{
	struct shared_events *events = own();
	struct import *import, *next;
	int count = 0;

	pthread_mutex_lock(&events->lock);
	for (import = STAILQ_FIRST(&events->imports); import && count < DROP_MOST; import = next) {
		next = STAILQ_NEXT(import, link);
		if (import->users)
			continue;
		STAILQ_REMOVE(&events->imports, import, import, link);
		STAILQ_INSERT_TAIL(ret_list, import, link);
		count++;
	}
	pthread_mutex_unlock(&events->lock);
}

/* Unmaps pages, behind all work that may use these. */
static bool drop_idle(struct import_list *list)
{
	struct shared_events *events = own();
	struct import *import;

	if (STAILQ_EMPTY(list))
		return false;
	if (wait_all_quietly() != CUDA_SUCCESS) {
		pthread_mutex_lock(&events->lock);
		STAILQ_CONCAT(&events->imports, list);
		pthread_mutex_unlock(&events->lock);
		return false;
	}
	while ((import = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, link);
		host_unmap_events((uint64_t)(uintptr_t)import->events);
		free(import);
	}
	return true;
}

/* Makes room for a page. Without the lock. Return: true if there may be room */
static bool drop_imports(void)
{
	struct shared_events *events = own();
	struct import_list idle = STAILQ_HEAD_INITIALIZER(idle);
	bool has_waited = pthread_mutex_trylock(&events->dropping) != 0, any;

	/* Another thread makes room. */
	if (has_waited)
		pthread_mutex_lock(&events->dropping);
	take_idle(&idle);
	any = drop_idle(&idle);
	pthread_mutex_unlock(&events->dropping);
	return any || has_waited;
}

/* Under the lock. */
static CUresult take_place(struct shm_shared_event **ret_event)
{
	struct shared_events *events = own();
	uint64_t address;
	CUresult r;

	*ret_event = take_spare();
	if (*ret_event)
		return CUDA_SUCCESS;
	if (events->page_used == SHM_SHARED_PAGE_EVENTS) {
		r = host_map_events(0, 0, &address);
		if (r != CUDA_SUCCESS)
			return r;
		events->page = (struct shm_shared_event *)(uintptr_t)address;
		events->page_used = 0;
	}
	*ret_event = &events->page[events->page_used++];
	return CUDA_SUCCESS;
}

static CUresult try_new(struct shm_shared_event **ret_event)
{
	struct shared_events *events = own();
	CUresult r;

	pthread_mutex_lock(&events->lock);
	r = take_place(ret_event);
	pthread_mutex_unlock(&events->lock);
	return r;
}

CUresult shared_event_new(struct shm_shared_event **ret_event)
{
	CUresult r = try_new(ret_event);

	return r == CUDA_ERROR_OUT_OF_MEMORY && drop_imports() ? try_new(ret_event) : r;
}

/* Of the page of an event that is open, which is not unmapped while it has users. Return: NULL: an
 * own page */
static _Atomic uint32_t *users_of(const struct shm_shared_event *event)
{
	struct shared_events *events = own();
	struct import *import;

	pthread_mutex_lock(&events->lock);
	STAILQ_FOREACH (import, &events->imports, link)
		if (event >= import->events && event < import->events + SHM_SHARED_PAGE_EVENTS)
			break;
	pthread_mutex_unlock(&events->lock);
	return import ? &import->users : NULL;
}

struct shm_shared_event *shared_event_free(struct shm_shared_event *event, bool imported)
{
	struct shared_events *events = own();
	struct spare *spare = event && !imported ? malloc(sizeof(*spare)) : NULL;

	if (event && imported)
		--*users_of(event);
	if (!spare)
		return NULL;
	spare->event = event;
	pthread_mutex_lock(&events->lock);
	STAILQ_INSERT_TAIL(&events->spares, spare, link);
	pthread_mutex_unlock(&events->lock);
	return NULL;
}

/* ---- handles ---- */

void shared_event_export(const struct shm_shared_event *event, CUipcEventHandle *ret_handle)
{
	uint64_t address = (uint64_t)(uintptr_t)event, offset = address % SHM_SHARED_PAGE_BYTES;
	struct content content = {.magic = MAGIC,
		.session = session_self()->connection.session,
		.page = address - offset,
		.place = offset / sizeof(*event)};

	memcpy(content.device, session_self()->device.uuid, sizeof(content.device));
	memset(ret_handle, 0, sizeof(*ret_handle));
	memcpy(ret_handle, &content, sizeof(content));
}

/* Under the lock. */
static CUresult find_import(const struct content *content, struct import **ret_import)
{
	struct shared_events *events = own();
	struct import *import;
	uint64_t address;
	CUresult r;

	STAILQ_FOREACH (import, &events->imports, link)
		if (import->session == content->session && import->page == content->page)
			break;
	if (!import) {
		import = malloc(sizeof(*import));
		if (!import)
			return CUDA_ERROR_OUT_OF_MEMORY;
		r = host_map_events(content->session, content->page, &address);
		if (r != CUDA_SUCCESS) {
			free(import);
			return r;
		}
		*import = (struct import){.session = content->session,
			.page = content->page,
			.events = (struct shm_shared_event *)(uintptr_t)address};
		STAILQ_INSERT_TAIL(&events->imports, import, link);
	}
	*ret_import = import;
	return CUDA_SUCCESS;
}

static CUresult try_import(const struct content *content, struct shm_shared_event **ret_event)
{
	struct shared_events *events = own();
	struct import *import;
	CUresult r;

	pthread_mutex_lock(&events->lock);
	r = find_import(content, &import);
	if (r == CUDA_SUCCESS) {
		import->users++;
		*ret_event = &import->events[content->place];
	}
	pthread_mutex_unlock(&events->lock);
	return r;
}

int shared_event_device(const CUipcEventHandle *handle)
{
	const struct client_device *device;
	struct content content;

	memcpy(&content, handle, sizeof(content));
	for (int i = 0; (device = device_get(i)); i++)
		if (!memcmp(device->uuid, content.device, sizeof(content.device)))
			return i;
	return device_own();
}

CUresult shared_event_import(const CUipcEventHandle *handle, struct shm_shared_event **ret_event)
{
	struct content content;
	CUresult r;

	memcpy(&content, handle, sizeof(content));
	if (memcmp(content.magic, MAGIC, sizeof(content.magic)) != 0 || content.session == 0 ||
		content.place >= SHM_SHARED_PAGE_EVENTS)
		return CUDA_ERROR_MAP_FAILED;
	if (session_is_own(content.session))
		return CUDA_ERROR_INVALID_CONTEXT;
	r = try_import(&content, ret_event);
	return r == CUDA_ERROR_OUT_OF_MEMORY && drop_imports() ? try_import(&content, ret_event) : r;
}

/* ---- records ---- */

static struct shm_shared_record *record_of(const struct shm_shared_event *event, uint64_t number)
{
	return (struct shm_shared_record *)(uintptr_t)&event->records[number % SHM_SHARED_RECORDS];
}

uint64_t shared_event_latest(const struct shm_shared_event *event)
{
	/* Pairs with the program that took the number. */
	return word_acquire((word64 *)(uintptr_t)&event->recorded);
}

bool shared_event_is_done(const struct shm_shared_event *event, uint64_t number)
{
	/* A device writes the word, or the daemon for a program that has ended. */
	return word_acquire(&record_of(event, number)->done) >= number;
}

CUresult shared_event_wait(struct shm_shared_event *event, uint64_t number, struct client_stream *stream)
{
	struct submit submit;
	CUresult r = submit_begin(stream, FRMPS_OP_WAIT_VALUE, sizeof(struct frmps_wait_value), &submit);

	if (r != CUDA_SUCCESS)
		return r;
	*(struct frmps_wait_value *)submit.body = (struct frmps_wait_value){
		.address = (uint64_t)(uintptr_t)&record_of(event, number)->done,
		.value = number,
		.bytes = 8,
		.flags = CU_STREAM_WAIT_VALUE_GEQ,
	};
	submit_commit(&submit);
	return CUDA_SUCCESS;
}

/* A stream of another device waits for a record. */
struct awaited {
	struct session *session; /* of the event */
	const struct shm_shared_event *event;
	_Atomic uint32_t *users; /* NULL: an own page */
	uint64_t number;
};

static CUresult look(void *context)
{
	const struct awaited *awaited = context;
	CUresult r;

	if (shared_event_is_done(awaited->event, awaited->number))
		return CUDA_SUCCESS;
	r = lost_glance(awaited->session);
	return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : r;
}

static void end(void *context)
{
	const struct awaited *awaited = context;

	if (awaited->users)
		--*awaited->users;
	free(context);
}

static const struct crossing_source records = {look, end};

CUresult shared_event_wait_across(struct shm_shared_event *event, uint64_t number, struct session *session,
	struct client_stream *stream)
{
	struct awaited *awaited = malloc(sizeof(*awaited));
	CUresult r;

	if (!awaited)
		return CUDA_ERROR_OUT_OF_MEMORY;
	SESSION_SCOPE(session);
	*awaited = (struct awaited){session, event, users_of(event), number};
	if (awaited->users)
		++*awaited->users;
	r = crossing_wait_for(stream, &records, awaited);
	if (r != CUDA_SUCCESS)
		end(awaited);
	return r;
}

CUresult shared_event_record(struct shm_shared_event *event, struct client_stream *stream,
	uint64_t *ret_number, uint32_t *ret_slot, uint64_t *ret_seq)
{
	uint64_t number = atomic_fetch_add_explicit(&event->recorded, 1, memory_order_acq_rel) + 1;
	struct shm_shared_record *record = record_of(event, number);
	struct submit submit;
	CUresult r = CUDA_SUCCESS;

	/* A program that ends right here leaves a record that is never done. */
	if (number > SHM_SHARED_RECORDS && !shared_event_is_done(event, number - SHM_SHARED_RECORDS))
		r = shared_event_wait(event, number - SHM_SHARED_RECORDS, stream);
	word_release(&record->session, stream->session->connection.session);
	if (r == CUDA_SUCCESS)
		r = submit_begin(stream, FRMPS_OP_WRITE_VALUE, sizeof(struct frmps_write_value), &submit);
	if (r != CUDA_SUCCESS)
		return r;
	*(struct frmps_write_value *)submit.body = (struct frmps_write_value){
		.address = (uint64_t)(uintptr_t)&record->done, .value = number, .bytes = 8};
	submit.head->flags |= FRMPS_CMD_MARK;
	*ret_number = number;
	*ret_slot = submit.head->stream;
	*ret_seq = submit.seq;
	submit_commit(&submit);
	return CUDA_SUCCESS;
}

/* No thread wakes a program whose event another executor's device writes, so this polls, at an
 * interval of about 1 % of the time waited. */
CUresult shared_event_synchronize(const struct shm_shared_event *event, uint64_t number)
{
	struct timespec pause = {.tv_nsec = 20000};
	CUresult r = CUDA_SUCCESS;

	while (!shared_event_is_done(event, number) && r == CUDA_SUCCESS) {
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 1000000)
			pause.tv_nsec += pause.tv_nsec / 64;
		r = lost_glance(session_self());
	}
	return r;
}
