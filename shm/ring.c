// The slow half of the ring; see ring.h for the picture. Writer functions run in the client under
// its ring lock, reader functions on the executor thread that serves the session.

#include "shm/ring.h"

void ring_writer_init(struct ring_writer *ring, struct shm_view *view)
{
	*ring = (struct ring_writer){.view = view, .mask = view->shape.ring_bytes - 1};
	ring->tail = word_relaxed(&view->client->tail);
	ring->seen = word_acquire(&view->server->head);
}

void ring_reader_init(struct ring_reader *ring, struct shm_view *view)
{
	*ring = (struct ring_reader){.view = view, .mask = view->shape.ring_bytes - 1};
	ring->head = ring->seen = word_relaxed(&view->server->head);
}

static bool has_room(struct ring_writer *ring, uint64_t bytes)
{
	if (ring->tail + bytes - ring->seen <= ring->mask + 1)
		return true;
	/* Pairs with ring_consume(): the writer may overwrite consumed bytes. */
	ring->seen = word_acquire(&ring->view->server->head);
	return ring->tail + bytes - ring->seen <= ring->mask + 1;
}

void *ring_reserve_slow(struct ring_writer *ring, uint32_t size)
{
	uint64_t at = ring->tail & ring->mask;
	uint64_t left = ring->mask + 1 - at;

	if (size <= left)
		return has_room(ring, size) ? ring->view->ring + at : NULL;
	/* A pad can be longer than the largest record allows: the room before the end is below the
	 * requested size, which is at most FRMPS_RECORD_MAX. */
	if (!has_room(ring, left))
		return NULL;
	/* 16 bytes hold a head without its last word, seq, which a pad lacks. */
	memcpy(ring->view->ring + at, &(struct frmps_head){.size = (uint32_t)left, .op = FRMPS_OP_PAD},
		left < sizeof(struct frmps_head) ? left : sizeof(struct frmps_head));
	ring_publish(ring, (uint32_t)left);
	return has_room(ring, size) ? ring->view->ring : NULL;
}

/* All bytes up to the known tail are read: looks for more. */
static int look(struct ring_reader *ring)
{
	uint64_t tail = word_acquire(&ring->view->client->tail);
	uint64_t published = tail - ring->head;

	if (published == 0)
		return RING_E_EMPTY;
	if (published > ring->mask + 1 || published % FRMPS_RECORD_ALIGN != 0)
		return RING_E_INVALID;
	ring->seen = tail;
	return 0;
}

int ring_peek(struct ring_reader *ring, struct frmps_head *ret_head, const uint8_t **ret_record)
{
	uint64_t at = ring->head & ring->mask;
	struct frmps_head head;
	int error = ring->seen == ring->head ? look(ring) : 0;

	if (error)
		return error;
	memcpy(&head, ring->view->ring + at, sizeof(head));
	/* The copy above is the only look at the head; keep the compiler from looking again. */
	__asm__ __volatile__("" : "+m"(head));
	/* The last 16 bytes of the ring can only be a pad; the bytes behind these are not its
	 * seq. */
	if (head.op == FRMPS_OP_PAD)
		head.seq = 0;
	else if (head.size < sizeof(head))
		return RING_E_INVALID;
	if (head.size == 0 || head.size > FRMPS_RECORD_MAX || head.size % FRMPS_RECORD_ALIGN != 0)
		return RING_E_INVALID;
	if (head.size > ring->seen - ring->head || at + head.size > ring->mask + 1)
		return RING_E_INVALID;
	*ret_head = head;
	*ret_record = ring->view->ring + at;
	return 0;
}
