// See shared_event.h. The pages are memfds that cannot shrink; programs have written their
// contents.

#include "server/session/shared_event.h"

#include <sys/mman.h>

#include "server/loop/shared_fd.h"
#include "server/session/holdings.h"
#include "shm/layout.h"

/* The latest record of a place that was made. */
static uint64_t latest_of(uint64_t recorded, uint32_t place)
{
	uint64_t behind = (recorded + SHM_SHARED_RECORDS - place) % SHM_SHARED_RECORDS;

	return recorded >= behind ? recorded - behind : 0;
}

static void release_event(struct shm_shared_event *event, uint64_t session)
{
	/* Pairs with the program that took the number: the program wrote the owner of the record
	 * before. */
	uint64_t recorded = word_acquire(&event->recorded);

	for (uint32_t place = 0; place < SHM_SHARED_RECORDS; place++) {
		struct shm_shared_record *record = &event->records[place];
		uint64_t latest = latest_of(recorded, place);

		if (word_acquire(&record->session) == session && word_acquire(&record->done) < latest)
			word_release(&record->done, latest);
	}
}

static void release_page(const struct holding *entry, uint64_t session)
{
	struct shm_shared_event *events =
		mmap(NULL, SHM_SHARED_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, entry->fd->fd, 0);

	if (events == MAP_FAILED)
		return;
	for (uint32_t i = 0; i < SHM_SHARED_PAGE_EVENTS; i++)
		release_event(&events[i], session);
	munmap(events, SHM_SHARED_PAGE_BYTES);
}

void shared_event_release(const struct holdings *holdings, uint64_t session)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == WIRE_MAP_HOST && (entry->range.flags & WIRE_HOST_EVENTS) && entry->fd)
			release_page(entry, session);
}
