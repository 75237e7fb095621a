// See saved.h. The part is the head of struct promotion as it is in memory, and a list of the
// sessions in the incident. A list from an earlier life is written again until its sessions are
// there: a record in between loses nobody.

#include "server/session/saved.h"

#include <stdlib.h>
#include <string.h>

#include "server/log.h"
#include "server/session/domain.h"
#include "server/session/session.h"

/* The head of struct promotion, which outlives the daemon. */
#define HEAD_BYTES offsetof(struct promotion, halt_timer)

struct saved_session {
	uint64_t number;
	uint32_t recover, held;
};

struct saved_list {
	uint32_t count, reserved;
	struct saved_session sessions[];
};

static size_t list_bytes(uint32_t count)
{
	return sizeof(struct saved_list) + count * sizeof(struct saved_session);
}

/* @list: NULL: counts. Return: how many there are */
static uint32_t collect(const struct domain *domain, struct saved_list *list)
{
	const struct session *session;
	uint32_t count = 0;

	TAILQ_FOREACH (session, &domain->sessions, domain_link) {
		const struct session_evidence *evidence = &session->evidence;

		if (evidence->recover == SESSION_RECOVER_NOTHING && !evidence->held)
			continue;
		if (list)
			list->sessions[count] =
				(struct saved_session){session->number, evidence->recover, evidence->held};
		count++;
	}
	return count;
}

size_t saved_write(const struct domain *domain, void *bytes)
{
	const struct saved_list *adopted = domain->promotion.adopted;
	uint32_t count = adopted ? adopted->count : collect(domain, NULL);
	struct saved_list *list = bytes ? (void *)((char *)bytes + HEAD_BYTES) : NULL;

	if (list) {
		memcpy(bytes, &domain->promotion, HEAD_BYTES);
		list->count = count;
	}
	if (list && adopted)
		memcpy(list->sessions, adopted->sessions, count * sizeof(*list->sessions));
	else if (list)
		collect(domain, list);
	return HEAD_BYTES + list_bytes(count);
}

void saved_read(struct domain *domain, const void *bytes, size_t size)
{
	struct promotion *promotion = &domain->promotion;

	log_bug_on(size < HEAD_BYTES + list_bytes(0));
	memcpy(promotion, bytes, HEAD_BYTES);
	promotion->adopted = malloc(size - HEAD_BYTES);
	log_bug_on(!promotion->adopted);
	memcpy(promotion->adopted, (const char *)bytes + HEAD_BYTES, size - HEAD_BYTES);
	log_bug_on(size != HEAD_BYTES + list_bytes(promotion->adopted->count));
}

void saved_give(struct session *session)
{
	const struct saved_list *list = session->domain->promotion.adopted;

	for (uint32_t i = 0; list && i < list->count; i++) {
		if (list->sessions[i].number != session->number)
			continue;
		session->evidence.recover = (enum session_recover)list->sessions[i].recover;
		session->evidence.held = list->sessions[i].held;
	}
}

void saved_forget(struct domain *domain)
{
	free(domain->promotion.adopted);
	domain->promotion.adopted = NULL;
}
