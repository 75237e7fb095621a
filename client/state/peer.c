// See peer.h. `changing` is held while services are asked: a piece is in the state that the table
// says whenever nobody holds it. `lock` guards the table against readers.

#include "client/state/peer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/link/connect.h"
#include "client/link/control.h"
#include "client/state/device.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/state/virtual.h"
#include "client/submit/wait.h"

/* A window of a piece's session that another session has reserved as well. */
struct view {
	struct view *next;
	struct session *session;
	struct peer_window window;
	uint32_t users; /* shares in it */
};

/* A piece in another session. */
struct share {
	struct share *next;
	struct view *view;
};

struct piece {
	struct session *session;
	struct peer_window window;
	enum peer_audience audience;
	struct share *shares;
};

_Static_assert(PLACE_DEVICES <= 64, "a word has a bit for each session");

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct view *views;		/* guarded by changing */
static uint64_t open_to[PLACE_DEVICES]; /* by the owner's ordinal; the same */
static uint64_t joined;			/* sessions that get all pinned memory; the same */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range_map pieces; /* block: struct piece; changed under both locks, as the shares */
static _Atomic unsigned share_count;

bool peer_can(int device, int of)
{
	const struct client_device *one = device_get(device), *other = device_get(of);

	return one && other && (one->peers[other->number] & WIRE_PEER_ACCESS);
}

/* ---- the service ---- */

/* @ret_values: `count` of the answer's */
static CUresult ask(enum wire_type type, const struct wire_memory *memory, struct control_answer *answer,
	uint64_t *ret_values, uint32_t count)
{
	struct wire_message request = {.type = type, .memory = *memory};
	CUresult r = control_call(&request, answer);

	if (r == CUDA_SUCCESS && answer->message.reply.values.count < count)
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS && count)
		memcpy(ret_values, answer->message.reply.values.at, count * sizeof(*ret_values));
	return r;
}

static CUresult ask_window(enum wire_type type, const struct peer_window *window)
{
	uint64_t words[WINDOW_WORDS] = {0}, end = window->base + window->bytes;
	struct wire_message request = {.type = type,
		.window = {.address = window->base,
			.bytes = window->bytes,
			.free_windows = {words, WINDOW_WORDS},
			.host = window->is_host}};
	struct control_answer *answer = control_answer_new();
	CUresult r;

	/* They are not free in this process, but the process's own. */
	for (uint64_t at = window->base; at < end; at += WINDOW_BYTES - at % WINDOW_BYTES) {
		uint64_t field = (at - WINDOW_BASE) / WINDOW_BYTES;

		words[field / 64] |= UINT64_C(1) << field % 64;
	}
	r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;
	control_answer_free(answer);
	return r;
}

/* The service's name of a piece in another session: other handles of the session have less in the
 * lower half (virtual.c). */
static CUmemGenericAllocationHandle handle_of(uint64_t address)
{
	return address / VIRTUAL_GRANULE << 32 | UINT64_C(1) << 31;
}

/* In the peer's session. A later request never fails for want of memory here: what an earlier one
 * has done would stay. The program has pinned memory already, so the descriptor of it that comes
 * with the answer is closed. */
static CUresult map_there(const uint64_t token[2], uint64_t address, uint64_t bytes)
{
	struct wire_memory memory = {
		.handle = handle_of(address), .address = address, .token = {token[0], token[1]}};
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? ask(WIRE_IMPORT_MEMORY, &memory, answer, &memory.bytes, 1)
			    : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS) {
		r = memory.bytes == bytes ? ask(WIRE_MAP_HANDLE, &memory, answer, NULL, 0)
					  : CUDA_ERROR_UNKNOWN;
		if (r != CUDA_SUCCESS)
			ask(WIRE_RELEASE_MEMORY, &memory, answer, NULL, 0);
	}
	control_answer_free(answer);
	return r;
}

/* The same. */
static CUresult unmap_there(uint64_t address, uint64_t bytes, bool is_host)
{
	const struct wire_memory memory = {.handle = handle_of(address)};
	struct wire_message request = {.type = is_host ? WIRE_UNMAP_HOST : WIRE_UNMAP_MEMORY,
		.range = {.address = address, .bytes = bytes}};
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS)
		r = ask(WIRE_RELEASE_MEMORY, &memory, answer, NULL, 0);
	control_answer_free(answer);
	return r;
}

/* The right to the memory of a piece. */
static CUresult find_token(const struct range *range, uint64_t ret_token[2])
{
	const struct piece *piece = range->block;
	const struct wire_memory memory = {.address = range->address};
	struct control_answer *answer = control_answer_new();
	SESSION_SCOPE(piece->session);
	CUresult r =
		answer ? ask(WIRE_EXPORT_MEMORY, &memory, answer, ret_token, 2) : CUDA_ERROR_OUT_OF_MEMORY;

	control_answer_free(answer);
	return r;
}

/* ---- views, under `changing` ---- */

/* The view in the calling thread's session of a window; made if there is none. */
static CUresult find_view(const struct peer_window *window, struct view **ret_view)
{
	struct view *view = views;
	CUresult r;

	while (view && (view->session != session_self() || view->window.base != window->base))
		view = view->next;
	if (!view) {
		view = malloc(sizeof(*view));
		r = view ? ask_window(WIRE_RESERVE_WINDOW, window) : CUDA_ERROR_OUT_OF_MEMORY;
		if (r != CUDA_SUCCESS) {
			free(view);
			return r;
		}
		*view = (struct view){views, session_self(), *window, 0};
		views = view;
	}
	view->users++;
	*ret_view = view;
	return CUDA_SUCCESS;
}

static void drop_view(struct view *view)
{
	struct view **link = &views;

	while (*link != view)
		link = &(*link)->next;
	*link = view->next;
	free(view);
}

/* In its session, which keeps a window for pinned memory. */
static void leave_view(struct view *view)
{
	if (--view->users || view->window.is_host)
		return;
	/* If the service fails, the next view there does, too. */
	ask_window(WIRE_RELEASE_WINDOW, &view->window);
	drop_view(view);
}

/* ---- shares, under `changing` ---- */

static struct range *find_piece(uint64_t address)
{
	struct range *range = range_map_find(&pieces, address);

	return range && range->address == address ? range : NULL;
}

static struct share **find_share(struct piece *piece, const struct session *to)
{
	struct share **link = &piece->shares;

	while (*link && (*link)->view->session != to)
		link = &(*link)->next;
	return link;
}

/* In the peer's session. */
static CUresult share(struct piece *piece, uint64_t address, uint64_t bytes, const uint64_t token[2])
{
	struct share *made = malloc(sizeof(*made));
	CUresult r = made ? find_view(&piece->window, &made->view) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS) {
		r = map_there(token, address, bytes);
		if (r == CUDA_SUCCESS) {
			pthread_mutex_lock(&lock);
			made->next = piece->shares;
			piece->shares = made;
			pthread_mutex_unlock(&lock);
			atomic_fetch_add(&share_count, 1);
			return CUDA_SUCCESS;
		}
		leave_view(made->view);
	}
	free(made);
	return r;
}

static CUresult share_with(const struct range *range, struct session *to)
{
	struct piece *piece = range->block;
	uint64_t token[2];
	CUresult r;

	if (to == piece->session || *find_share(piece, to))
		return CUDA_SUCCESS;
	r = find_token(range, token);
	SESSION_SCOPE(to);
	return r == CUDA_SUCCESS ? share(piece, range->address, range->bytes, token) : r;
}

/* Return: its view, which has a user less */
static struct view *drop_share(struct share **link)
{
	struct share *over = *link;
	struct view *view = over->view;

	pthread_mutex_lock(&lock);
	*link = over->next;
	pthread_mutex_unlock(&lock);
	atomic_fetch_sub(&share_count, 1);
	free(over);
	return view;
}

/* A session with an error runs nothing any more, and its service unmaps all at its end. */
static CUresult end_share(const struct range *range, struct share **link)
{
	const struct piece *piece = range->block;
	SESSION_SCOPE((*link)->view->session);
	CUresult r = unmap_there(range->address, range->bytes, piece->window.is_host);

	if (r != CUDA_SUCCESS && process_error() == CUDA_SUCCESS)
		return r;
	leave_view(drop_share(link));
	return CUDA_SUCCESS;
}

static CUresult end_shares(const struct range *range)
{
	struct piece *piece = range->block;
	CUresult r = CUDA_SUCCESS;

	while (r == CUDA_SUCCESS && piece->shares)
		r = end_share(range, &piece->shares);
	return r;
}

/* The sessions that have a piece without being named. */
static uint64_t audience_of(const struct piece *piece)
{
	if (piece->audience == PEER_NAMED)
		return 0;
	return piece->audience == PEER_ALL ? joined : open_to[session_ordinal(piece->session)];
}

/* A peer with an error needs nothing more, and is no error of the owner's. */
static CUresult share_openly(const struct range *range)
{
	const struct piece *piece = range->block;
	const uint64_t peers = audience_of(piece);
	CUresult r = CUDA_SUCCESS;

	for (int i = 0; r == CUDA_SUCCESS && i < (int)PLACE_DEVICES; ++i) {
		if (peers >> i & 1)
			r = share_with(range, &sessions[i]);
		if (r != CUDA_SUCCESS && process_session_error(&sessions[i]) != CUDA_SUCCESS)
			r = process_session_error(piece->session);
	}
	return r;
}

/* ---- pieces ---- */

static CUresult note(const struct range *range)
{
	int e;

	pthread_mutex_lock(&lock);
	e = range_map_add(&pieces, range);
	pthread_mutex_unlock(&lock);
	return e == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void forget(uint64_t address)
{
	struct range range;

	pthread_mutex_lock(&lock);
	range_map_remove(&pieces, address, &range);
	pthread_mutex_unlock(&lock);
	free(range.block);
}

CUresult peer_add(
	const struct peer_window *window, uint64_t address, uint64_t bytes, enum peer_audience audience)
{
	struct piece *piece;
	struct range range = {.address = address, .bytes = bytes, .room = bytes};
	CUresult r;

	if (device_count() < 2)
		return CUDA_SUCCESS;
	range.block = piece = malloc(sizeof(*piece));
	if (!piece)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*piece = (struct piece){.session = session_self(), .window = *window, .audience = audience};
	pthread_mutex_lock(&changing);
	r = note(&range);
	if (r != CUDA_SUCCESS) {
		free(piece);
	} else {
		r = share_openly(&range);
		/* A share that does not end stays noted: nobody else gets the addresses there. */
		if (r != CUDA_SUCCESS && end_shares(&range) == CUDA_SUCCESS)
			forget(address);
	}
	pthread_mutex_unlock(&changing);
	return r;
}

CUresult peer_remove(uint64_t address)
{
	const struct range *range;
	CUresult r = CUDA_SUCCESS;

	if (device_count() < 2)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&changing);
	range = find_piece(address);
	if (range)
		r = end_shares(range);
	if (range && r == CUDA_SUCCESS)
		forget(address);
	pthread_mutex_unlock(&changing);
	return r;
}

/* Shares all pieces with an audience. @from: of this session; NULL: of all. An owner with an error
 * has nothing any more that could be shared. */
static CUresult share_all(enum peer_audience audience, const struct session *from, struct session *to)
{
	const struct range *range;
	CUresult r = CUDA_SUCCESS;

	for (uint64_t at = 0; r == CUDA_SUCCESS && (range = range_map_next(&pieces, at));
		at = range->address + range->bytes) {
		const struct piece *piece = range->block;

		if (piece->audience != audience || (from && piece->session != from))
			continue;
		r = share_with(range, to);
		if (r != CUDA_SUCCESS && !from && process_session_error(piece->session) != CUDA_SUCCESS)
			r = CUDA_SUCCESS;
	}
	return r;
}

CUresult peer_open(struct session *from, struct session *to)
{
	uint64_t *peers = &open_to[session_ordinal(from)], bit = UINT64_C(1) << session_ordinal(to);
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&changing);
	if (!(*peers & bit))
		r = share_all(PEER_OPENED, from, to);
	/* Without success some chunks are shared, which is harmless. */
	if (r == CUDA_SUCCESS)
		*peers |= bit;
	pthread_mutex_unlock(&changing);
	return r;
}

CUresult peer_join(void)
{
	struct session *self = session_self();
	CUresult r = CUDA_SUCCESS;

	if (device_count() < 2)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&changing);
	r = share_all(PEER_ALL, NULL, self);
	if (r == CUDA_SUCCESS)
		joined |= UINT64_C(1) << session_ordinal(self);
	pthread_mutex_unlock(&changing);
	return r;
}

void peer_leave(void)
{
	const struct range *range;

	pthread_mutex_lock(&changing);
	joined &= ~(UINT64_C(1) << session_ordinal(session_self()));
	for (uint64_t at = 0; (range = range_map_next(&pieces, at)); at = range->address + range->bytes) {
		struct share **link = find_share(range->block, session_self());

		if (*link)
			drop_share(link);
	}
	for (struct view *view = views, *behind; view; view = behind) {
		behind = view->next;
		if (view->session == session_self())
			drop_view(view);
	}
	pthread_mutex_unlock(&changing);
}

CUresult peer_share(uint64_t address, struct session *to)
{
	const struct range *range;
	CUresult r;

	pthread_mutex_lock(&changing);
	range = find_piece(address);
	r = range ? share_with(range, to) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&changing);
	return r;
}

CUresult peer_unshare(uint64_t address, struct session *to)
{
	const struct range *range;
	struct share **link;
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&changing);
	range = find_piece(address);
	link = range ? find_share(range->block, to) : NULL;
	if (link && *link)
		r = end_share(range, link);
	pthread_mutex_unlock(&changing);
	return r;
}

/* ---- readers ---- */

/* Under `lock`. */
static uint64_t peers_of(const struct piece *piece)
{
	uint64_t peers = 0;

	for (const struct share *one = piece->shares; one; one = one->next)
		peers |= UINT64_C(1) << session_ordinal(one->view->session);
	return peers;
}

uint64_t peer_reach(uint64_t address, uint64_t bytes)
{
	uint64_t peers = UINT64_MAX, end = address + bytes;

	if (!atomic_load(&share_count))
		return 0;
	pthread_mutex_lock(&lock);
	for (uint64_t at = address; peers && at < end;) {
		const struct range *range = range_map_find(&pieces, at);

		peers = range ? peers & peers_of(range->block) : 0;
		at = range ? range->address + range->bytes : end;
	}
	pthread_mutex_unlock(&lock);
	return peers;
}

bool peer_has(const struct session *owner, uint64_t address, uint64_t bytes)
{
	const struct session *self = session_self();

	return owner == self || (peer_reach(address, bytes) >> session_ordinal(self) & 1);
}

CUresult peer_wait(uint64_t address)
{
	return peer_reach(address, 1) ? wait_everywhere() : wait_all();
}
