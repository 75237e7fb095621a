// See oldest.h. The command is found in the journal as a later executor would find it
// (executor/journal.c); the kernel's name comes from the answer to the session's request for the
// function. Kernels of graphs have no names here.

#include "server/fault/oldest.h"

#include <stdio.h>
#include <stdlib.h>

#include "protocol/command.h"
#include "server/executor/journal.h"
#include "server/session/session.h"

static const char *name_of(const struct holdings *holdings, uint32_t function)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == WIRE_FIND_FUNCTION && entry->function == function)
			return entry->name;
	return "";
}

/* Return: true if the record is the command. */
static bool take(const struct session *session, const struct frmps_head *record, struct oldest *oldest)
{
	const struct frmps_launch *launch = (const void *)(record + 1);

	if (record->op != FRMPS_OP_LAUNCH && record->op != FRMPS_OP_GRAPH_LAUNCH)
		return false;
	oldest->stream = record->stream;
	oldest->seq = record->seq;
	snprintf(oldest->kernel, sizeof(oldest->kernel), "%s",
		record->op == FRMPS_OP_LAUNCH ? name_of(&session->holdings, launch->function) : "of a graph");
	return true;
}

/* Another process of the user may write to the journal yet. */
static bool is_inside(const struct shm_view *view, struct journal_place place)
{
	return place.block < view->shape.journal_blocks &&
	       place.offset <= JOURNAL_RECORDS - sizeof(struct frmps_head) - sizeof(struct frmps_launch);
}

static bool look_at_stream(
	const struct session *session, struct journal *journal, uint32_t slot, struct oldest *oldest)
{
	const struct shm_view *view = &session->view;
	uint64_t issued = word_acquire(&view->states[slot].issued), done = shm_view_known_done(view, slot);
	struct journal_place place;
	struct journal_list list;

	if (issued <= done)
		return false;
	journal_init(journal, view->blocks, view->shape.journal_blocks);
	journal_list_init(&list, &view->states[slot]);
	if (journal_adopt(journal, &list, done, &place) || issued > list.journaled)
		return false;
	for (uint64_t seq = done + 1; seq <= issued; seq++) {
		if (!is_inside(view, place))
			return false;
		if (take(session, journal_at(journal, place), oldest))
			return true;
		if (seq < issued)
			place = journal_next(journal, place);
	}
	return false;
}

void oldest_find(const struct session *session, struct oldest *ret_oldest)
{
	struct journal *journal = malloc(sizeof(*journal));
	uint32_t used = shm_view_used(&session->view);

	*ret_oldest = (struct oldest){0};
	for (uint32_t slot = 0; journal && slot < used; slot++) {
		if (!word_acquire(&session->view.states[slot].issued))
			continue;
		if (look_at_stream(session, journal, slot, ret_oldest))
			break;
	}
	free(journal);
}
