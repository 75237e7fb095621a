// Making, checking and mapping a session's regions. Runs in the daemon (make), in clients and
// executors (map). No process reads offsets from the memory itself: shapes come from the handshake
// and stay in private memory.

#include "shm/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/command.h"

#define PAGE	   UINT64_C(4096)
#define REGION_MAX (UINT64_C(64) << 30)

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + PAGE - 1) & ~(PAGE - 1);
}

static uint64_t journal_end(const struct wire_shape *shape)
{
	return shape->journal_offset + (uint64_t)shape->journal_blocks * SHM_BLOCK_BYTES;
}

void shm_shape_init(struct wire_shape *shape, uint64_t ring_bytes, uint64_t arena_bytes, uint32_t blocks)
{
	*shape = (struct wire_shape){
		.ring_bytes = ring_bytes, .arena_bytes = arena_bytes, .journal_blocks = blocks};
	shape->ring_offset = page_up(sizeof(struct shm_client_header));
	shape->arena_offset = page_up(shape->ring_offset + ring_bytes);
	shape->more_offset = page_up(shape->arena_offset + arena_bytes);
	shape->client_bytes = page_up(shape->more_offset + sizeof(struct shm_client_more));
	shape->states_offset = page_up(sizeof(struct shm_server_header));
	shape->timelines_offset =
		page_up(shape->states_offset + SHM_STREAMS * sizeof(struct shm_stream_state));
	shape->times_offset =
		page_up(shape->timelines_offset + SHM_TIMELINE_PIECES * sizeof(struct shm_timeline));
	shape->journal_offset = page_up(shape->times_offset + SHM_EVENTS * sizeof(struct shm_time));
	shape->server_bytes = journal_end(shape);
}

uint64_t shm_graph_place(const struct wire_shape *shape, uint32_t graph, uint64_t bytes)
{
	return bytes <= SHM_GRAPH_BYTES && graph < FRMPS_GRAPH_IDS
		       ? journal_end(shape) + graph * SHM_GRAPH_BYTES
		       : 0;
}

/* True if [offset, offset + bytes) starts on a page at or behind `from` and ends at or before
 * `end`. */
static bool fits(uint64_t offset, uint64_t bytes, uint64_t from, uint64_t end)
{
	return offset % PAGE == 0 && offset >= from && offset <= end && bytes <= end - offset;
}

/* Streams that there is room for in the client's region. */
static uint64_t slots_of(const struct wire_shape *s)
{
	return s->more_offset ? SHM_STREAMS : SHM_PIECE;
}

int shm_shape_check(const struct wire_shape *s)
{
	uint64_t slots = slots_of(s);
	bool ok = s->client_bytes <= REGION_MAX && s->server_bytes <= REGION_MAX;

	ok = ok && s->ring_bytes >= 8 * FRMPS_RECORD_MAX && (s->ring_bytes & (s->ring_bytes - 1)) == 0;
	ok = ok && fits(s->ring_offset, s->ring_bytes, sizeof(struct shm_client_header), s->client_bytes);
	ok = ok && s->arena_bytes > 0;
	ok = ok && fits(s->arena_offset, s->arena_bytes, s->ring_offset + s->ring_bytes, s->client_bytes);
	ok = ok && (!s->more_offset || fits(s->more_offset, sizeof(struct shm_client_more),
					       s->arena_offset + s->arena_bytes, s->client_bytes));
	ok = ok && s->journal_blocks > 0;
	ok = ok && fits(s->states_offset, slots * sizeof(struct shm_stream_state),
			   sizeof(struct shm_server_header), s->timelines_offset);
	ok = ok && fits(s->timelines_offset, slots / SHM_PIECE * SHM_TIMELINES * sizeof(struct shm_timeline),
			   s->states_offset, s->times_offset);
	ok = ok && fits(s->times_offset, sizeof(struct shm_time), s->timelines_offset, s->journal_offset);
	ok = ok && fits(s->journal_offset, (uint64_t)s->journal_blocks * SHM_BLOCK_BYTES, s->timelines_offset,
			   s->server_bytes);
	return ok ? 0 : SHM_E_SHAPE;
}

static int nospace(int error)
{
	return error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE ? SHM_E_NOSPACE
											: -error;
}

/* A memfd of `bytes` bytes that keeps its seals, and that no other user can open again. */
static int sealed_memfd(const char *name, uint64_t bytes, int seals, int *ret_fd)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return nospace(errno);
	if (ftruncate(fd, (off_t)bytes) < 0 || fchmod(fd, 0600) < 0 ||
		fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) < 0) {
		int error = errno;

		close(fd);
		return nospace(error);
	}
	*ret_fd = fd;
	return 0;
}

static void write_headers(struct shm_view *view)
{
	view->client->magic = SHM_CLIENT_MAGIC;
	view->client->major = FRMPS_PROTOCOL_MAJOR;
	view->server->magic = SHM_SERVER_MAGIC;
	view->server->major = FRMPS_PROTOCOL_MAJOR;
	word_set(&view->server->generation, 1);
	word_release(&view->server->state, SHM_SESSION_RUNNING);
}

static void *map_file(int fd, uint64_t bytes, int protection)
{
	void *at = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Maps both files; pointers are set, headers are not looked at. */
static int map_both(struct shm_view *view, int client_fd, int server_fd, enum shm_side side)
{
	const struct wire_shape *s = &view->shape;
	int server_protection = side == SHM_SIDE_CLIENT ? PROT_READ : PROT_READ | PROT_WRITE;
	/* The client does not need the journal, and maps only the part before it. Executors map the
	 * places of graphs when needed. */
	uint64_t server_bytes = side == SHM_SIDE_CLIENT ? s->journal_offset : journal_end(s);
	uint8_t *client = map_file(client_fd, s->client_bytes, PROT_READ | PROT_WRITE);
	uint8_t *server = map_file(server_fd, server_bytes, server_protection);

	view->client = (struct shm_client_header *)client;
	view->server = (struct shm_server_header *)server;
	if (!client || !server) {
		int error = errno;

		view->blocks = (struct shm_block *)(side == SHM_SIDE_SERVER ? server : NULL);
		shm_view_unmap(view);
		return -error;
	}
	view->ring = client + s->ring_offset;
	view->arena = client + s->arena_offset;
	if (s->more_offset)
		view->more = (struct shm_client_more *)(client + s->more_offset);
	view->states = (struct shm_stream_state *)(server + s->states_offset);
	view->timelines = (struct shm_timeline *)(server + s->timelines_offset);
	view->times = (struct shm_time *)(server + s->times_offset);
	if (side == SHM_SIDE_SERVER)
		view->blocks = (struct shm_block *)(server + s->journal_offset);
	return 0;
}

int shm_region_new(const struct wire_shape *shape, int *ret_client_fd, int *ret_server_fd)
{
	struct shm_view view = {.shape = *shape};
	int client_fd = -1, server_fd = -1;
	int r = shm_shape_check(shape);

	if (!r)
		r = sealed_memfd(
			"frmps-client", shape->client_bytes, F_SEAL_SHRINK | F_SEAL_GROW, &client_fd);
	/* It grows by the places of graphs. */
	if (!r)
		r = sealed_memfd("frmps-server", shape->server_bytes, F_SEAL_SHRINK, &server_fd);
	if (!r) {
		r = map_both(&view, client_fd, server_fd, SHM_SIDE_SERVER);
		if (r < 0)
			r = nospace(-r);
	}
	if (r) {
		if (client_fd >= 0)
			close(client_fd);
		if (server_fd >= 0)
			close(server_fd);
		return r;
	}
	write_headers(&view);
	shm_view_unmap(&view);
	*ret_client_fd = client_fd;
	*ret_server_fd = server_fd;
	return 0;
}

int shm_region_readonly(int server_fd, int *ret_fd)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", server_fd);
	/* A Welcome that is sent again finds the mode cleared already. */
	if (fchmod(server_fd, 0400) < 0)
		return -errno;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fchmod(server_fd, 0) < 0) {
		int error = errno;

		if (fd >= 0)
			close(fd);
		return -error;
	}
	*ret_fd = fd;
	return 0;
}

static int check_files(const struct wire_shape *shape, int client_fd, int server_fd)
{
	struct statx client, server;

	if (statx(client_fd, "", AT_EMPTY_PATH, STATX_SIZE, &client) < 0 ||
		statx(server_fd, "", AT_EMPTY_PATH, STATX_SIZE, &server) < 0)
		return -errno;
	if (client.stx_size != shape->client_bytes || server.stx_size < shape->server_bytes)
		return SHM_E_SHAPE;
	return 0;
}

int shm_view_map(struct shm_view *ret_view, const struct wire_shape *shape, int client_fd, int server_fd,
	enum shm_side side)
{
	struct shm_view view = {.shape = *shape};
	int r = shm_shape_check(shape);

	if (!r)
		r = check_files(shape, client_fd, server_fd);
	if (!r)
		r = map_both(&view, client_fd, server_fd, side);
	if (r)
		return r;
	/* The client's own header may hold anything by now; only the side that wrote it can trust
	 * it. */
	if (view.server->magic != SHM_SERVER_MAGIC || view.server->major != FRMPS_PROTOCOL_MAJOR) {
		shm_view_unmap(&view);
		return SHM_E_SHAPE;
	}
	*ret_view = view;
	return 0;
}

void shm_view_unmap(struct shm_view *view)
{
	if (view->client)
		munmap(view->client, view->shape.client_bytes);
	if (view->server)
		munmap(view->server, view->blocks ? journal_end(&view->shape) : view->shape.journal_offset);
	*view = SHM_VIEW_NULL;
}
