// Records and deposits. See store.h.
//
// The memory is a row of blocks. Each block has its slots' length at its head, and each slot holds
// one record or none, so a reader finds every record at any moment of the writer's work. A slot is
// written while its `type` is RECORD_NONE; storing the type completes the record.
//
// A turn is a transaction. Each record has the version of its begin and, once it is dropped, that
// of its end. One word says which versions count, and store_commit() changes that word with a
// single store. The next life takes a record whose begin counts and whose end does not. Slots
// whose end counts are used again. Only this life knows the free slots; the next life finds them
// by reading.
//
// Orders on the holder's board follow the commit: no record names a descriptor that the holder has
// closed, and no end of a process is settled whose consequences are not recorded.

#include "server/holder/store.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/hash.h"
#include "server/grow.h"
#include "server/holder/holder.h"
#include "server/log.h"
#include "server/loop/timer.h"

#define BLOCK_BYTES (UINT64_C(256) << 10)
#define BLOCK_MAGIC 0x46524d50u
#define BLOCK_HEAD  64u
#define SLOT_LEAST  128u
#define CLASSES	    10u /* 128 B … 64 KiB */

/* How long the daemon stands still for a holder that does not read. */
#define PATIENCE_MS 1000u

struct block {
	uint32_t magic;
	_Atomic uint32_t slot_bytes; /* 0: not in use yet */
	_Atomic uint64_t committed;  /* of the first block: versions up to this count */
};

struct record {
	_Atomic uint32_t type; /* enum record_type */
	uint32_t bytes;
	uint64_t key, version;
	uint64_t check;		/* of all of the above and the payload */
	_Atomic uint64_t ended; /* the version that drops the record; 0: none */
	_Alignas(8) uint8_t payload[];
};

struct slots {
	struct record **at;
	uint32_t count, room;
};

struct act {
	void (*act)(void *context);
	void *context;
};

/* What follows the commit: orders for the holder, and the daemon's own. */
struct orders {
	uint32_t *forgotten; /* keys */
	uint32_t forgotten_count, forgotten_room;
	uint32_t settled, syncs; /* how many more */
	struct act *acts;
	uint32_t act_count, act_room;
};

/* The outcome of the latest deposit. */
enum holder_state {
	HOLDER_TAKES,
	HOLDER_SLOW, /* the holder did not read for PATIENCE_MS */
	HOLDER_FULL, /* the holder has as many descriptors as it may have */
};

struct store {
	int socket, memory;
	uint8_t *base;
	uint64_t used; /* bytes of blocks */
	struct slots spares[CLASSES];
	struct slots dropped; /* by this turn; the next life sees them until the commit */
	uint64_t version, committed;
	/* Descriptors. */
	int *inherited; /* by key; -1: none, or taken */
	uint32_t inherited_count;
	struct holder_board *board;
	int bell;
	bool is_short; /* the memory could not grow, and this was logged */
	bool unread;   /* the board has orders for which the bell has not rung */
	struct orders orders;
	uint32_t life, fds_most, deposited, next_key;
	enum holder_state holder;
};

static unsigned class_of(size_t bytes)
{
	unsigned shift = 0;

	while ((SLOT_LEAST << shift) < bytes)
		shift++;
	return shift;
}

static uint64_t checksum(const struct record *record, uint32_t type)
{
	const uint64_t head[] = {type, record->bytes, record->key, record->version};

	return hash_add(hash_add(HASH_START, head, sizeof(head)), record->payload, record->bytes);
}

/*
 * Slots
 */

static void push(struct slots *slots, struct record *slot)
{
	log_bug_on(!grow(&slots->at, slots->count, &slots->room, sizeof(struct record *)));
	slots->at[slots->count++] = slot;
}

static uint32_t slots_of(uint32_t slot_bytes)
{
	return (uint32_t)((BLOCK_BYTES - BLOCK_HEAD) / slot_bytes);
}

static struct record *slot_at(uint8_t *block, uint32_t slot_bytes, uint32_t index)
{
	return (struct record *)(block + BLOCK_HEAD + (uint64_t)index * slot_bytes);
}

static struct block *block_of(const struct store *store, const struct record *record)
{
	uint64_t offset = (uint64_t)((const uint8_t *)record - store->base);

	return (struct block *)(store->base + offset / BLOCK_BYTES * BLOCK_BYTES);
}

/* Return: false where the machine, or a limit, has no room for the block */
static bool add_block(struct store *store, unsigned class)
{
	uint8_t *block = store->base + store->used;
	uint32_t slot_bytes = SLOT_LEAST << class;
	bool grows;

	log_bug_on(store->used + BLOCK_BYTES > STORE_BYTES);
	grows = ftruncate(store->memory, (off_t)(store->used + BLOCK_BYTES)) == 0;
	if (!grows && !store->is_short)
		log_error(
			"the daemon's records cannot grow: %m (a limit of memory, or of the size of files); "
			"programs get no more memory meanwhile");
	store->is_short = !grows;
	if (!grows)
		return false;
	store->used += BLOCK_BYTES;
	((struct block *)block)->magic = BLOCK_MAGIC;
	atomic_store_explicit(&((struct block *)block)->slot_bytes, slot_bytes, memory_order_release);
	for (uint32_t i = slots_of(slot_bytes); i-- > 0;)
		push(&store->spares[class], slot_at(block, slot_bytes, i));
	return true;
}

static void release_slot(struct store *store, struct record *slot)
{
	atomic_store_explicit(&slot->type, RECORD_NONE, memory_order_release);
	push(&store->spares[class_of(block_of(store, slot)->slot_bytes)], slot);
}

/* The one store that makes everything since the last one count. */
static void publish(struct store *store)
{
	if (store->version == store->committed)
		return;
	store->committed = store->version;
	if (store->used)
		atomic_store_explicit(
			&((struct block *)store->base)->committed, store->committed, memory_order_release);
	while (store->dropped.count)
		release_slot(store, store->dropped.at[--store->dropped.count]);
}

static struct record *take_slot(struct store *store, size_t bytes)
{
	unsigned class = class_of(sizeof(struct record) + bytes);
	struct slots *spares = &store->spares[class];

	log_bug_on(class >= CLASSES);
	/* Where the memory cannot grow, the turn is recorded in parts: each part replaces records
	 * with their own room. */
	if (!spares->count && !add_block(store, class))
		publish(store);
	log_bug_on(!spares->count);
	return spares->at[--spares->count];
}

uint64_t store_share(size_t bytes)
{
	return BLOCK_BYTES / slots_of(SLOT_LEAST << class_of(sizeof(struct record) + bytes));
}

bool store_has_room(struct store *store, size_t bytes, uint64_t most)
{
	unsigned class = class_of(sizeof(struct record) + bytes);

	return !store || store->spares[class].count ||
	       (store->used + BLOCK_BYTES <= most && add_block(store, class));
}

static uint32_t type_of(const struct record *record)
{
	return atomic_load_explicit(&record->type, memory_order_acquire);
}

uint64_t store_serial(struct store *store)
{
	return store ? ++store->version : 0;
}

const struct record *store_put(struct store *store, const struct record *old, enum record_type type,
	uint64_t key, const void *payload, size_t bytes)
{
	struct record *record;

	if (!store)
		return NULL;
	if (old && type_of(old) == type && old->key == key && old->bytes == bytes &&
		!memcmp(old->payload, payload, bytes))
		return old;
	record = take_slot(store, bytes);
	record->bytes = (uint32_t)bytes;
	record->key = key;
	record->version = ++store->version;
	memcpy(record->payload, payload, bytes);
	record->check = checksum(record, type);
	atomic_store_explicit(&record->ended, 0, memory_order_relaxed);
	/* The next life reads the stores of this life, in order. */
	atomic_store_explicit(&record->type, type, memory_order_release);
	store_drop(store, old);
	return record;
}

static bool has_ended(const struct record *record)
{
	return atomic_load_explicit(&record->ended, memory_order_relaxed);
}

void store_drop(struct store *store, const struct record *record)
{
	struct record *slot = (struct record *)(uintptr_t)record;

	if (!store || !record || has_ended(record))
		return;
	if (record->version > store->committed) {
		release_slot(store, slot);
		return;
	}
	/* As of a version that does not count yet. */
	if (store->version == store->committed)
		store->version++;
	atomic_store_explicit(&slot->ended, store->version, memory_order_release);
	push(&store->dropped, slot);
}

/*
 * Reading
 */

void record_tidy_flag(bool *flag)
{
	uint8_t byte;

	memcpy(&byte, flag, sizeof(byte));
	*flag = byte == 1;
}

uint64_t record_key(const struct record *record)
{
	return record->key;
}

const void *record_payload(const struct record *record, size_t *ret_bytes)
{
	*ret_bytes = record->bytes;
	return record->payload;
}

bool record_read(const struct record *record, void *ret_payload, size_t bytes)
{
	if (record->bytes < bytes)
		return false;
	memcpy(ret_payload, record->payload, bytes);
	return true;
}

/* By key, the younger of two first. */
static int compare(const void *left, const void *right)
{
	const struct record *a = *(const struct record *const *)left,
			    *b = *(const struct record *const *)right;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->version > b->version ? -1 : a->version < b->version;
}

static size_t collect(struct store *store, enum record_type type, const struct record **records)
{
	size_t count = 0;

	for (uint64_t at = 0; at < store->used; at += BLOCK_BYTES) {
		uint32_t slot_bytes = ((struct block *)(store->base + at))->slot_bytes;

		for (uint32_t i = 0; slot_bytes && i < slots_of(slot_bytes); i++) {
			struct record *slot = slot_at(store->base + at, slot_bytes, i);

			if (type_of(slot) != type || has_ended(slot))
				continue;
			if (records)
				records[count] = slot;
			count++;
		}
	}
	return count;
}

size_t store_list(struct store *store, enum record_type type, const struct record ***ret_records)
{
	size_t count = store ? collect(store, type, NULL) : 0, left = 0;
	const struct record **records = calloc(count + 1, sizeof(struct record *));

	log_bug_on(!records);
	if (count)
		collect(store, type, records);
	qsort(records, count, sizeof(struct record *), compare);
	for (size_t i = 0; i < count; i++) {
		if (left && records[left - 1]->key == records[i]->key)
			store_drop(store, records[i]);
		else
			records[left++] = records[i];
	}
	*ret_records = records;
	return left;
}

void store_put_single(struct store *store, enum record_type type, const void *payload, size_t bytes)
{
	const struct record **records;
	size_t count = store_list(store, type, &records);

	store_put(store, count ? records[0] : NULL, type, 0, payload, bytes);
	free(records);
}

/* Return: true if the record counts: the turn that made it was committed, and no turn that dropped
 * it */
static bool counts(struct store *store, struct record *slot)
{
	uint64_t ended = atomic_load_explicit(&slot->ended, memory_order_relaxed);

	if (type_of(slot) == RECORD_NONE || slot->version > store->committed ||
		(ended && ended <= store->committed))
		return false;
	atomic_store_explicit(&slot->ended, 0, memory_order_relaxed);
	return true;
}

/* Return: false if something there cannot have been written by a daemon in order. */
static bool read_block(struct store *store, uint8_t *block)
{
	uint32_t slot_bytes = ((struct block *)block)->slot_bytes;
	unsigned class = class_of(slot_bytes);

	/* A dead daemon may have added the last block without a slot length. */
	if (!slot_bytes)
		return true;
	if (((struct block *)block)->magic != BLOCK_MAGIC || class >= CLASSES ||
		slot_bytes != SLOT_LEAST << class)
		return false;
	for (uint32_t i = 0; i < slots_of(slot_bytes); i++) {
		struct record *slot = slot_at(block, slot_bytes, i);

		if (!counts(store, slot))
			release_slot(store, slot);
		else if (slot->bytes > slot_bytes - sizeof(*slot) ||
			 slot->check != checksum(slot, type_of(slot)))
			return false;
	}
	return true;
}

static bool read_all(struct store *store)
{
	if (store->used)
		store->version = store->committed = ((struct block *)store->base)->committed;
	for (uint64_t at = 0; at < store->used; at += BLOCK_BYTES)
		if (!read_block(store, store->base + at))
			return false;
	/* The block that was never used is used first. */
	if (store->used && !((struct block *)(store->base + store->used - BLOCK_BYTES))->slot_bytes)
		store->used -= BLOCK_BYTES;
	return true;
}

static bool map(struct store *store)
{
	struct stat status;
	void *base;

	if (fstat(store->memory, &status) < 0)
		return false;
	/* Address space; the file grows as needed. */
	base = mmap(NULL, STORE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, store->memory, 0);
	if (base == MAP_FAILED)
		return false;
	store->base = base;
	store->used = (uint64_t)status.st_size / BLOCK_BYTES * BLOCK_BYTES;
	return true;
}

/*
 * Descriptors
 */

static bool is_wanted(const struct store *store, uint32_t key)
{
	return word_relaxed(&store->board->marks[key]) % 2;
}

/* Return: the new mark */
static uint32_t change_mark(struct store *store, uint32_t key)
{
	uint32_t mark = word_relaxed(&store->board->marks[key]) + 1;

	/* Partner: holder.c, look(). */
	word_release(&store->board->marks[key], mark);
	return mark;
}

/* The lowest free key; each below next_key is in use. */
static uint32_t free_key(struct store *store)
{
	uint32_t key = store->next_key;

	while (is_wanted(store, key))
		key++;
	store->next_key = key;
	if (key >= word_relaxed(&store->board->key_end))
		word_release(&store->board->key_end, key + 1);
	return key;
}

/* Return: -error */
static int refuse(struct store *store, enum holder_state state, int error)
{
	if (store->holder != state)
		log_error("the service's main process takes no descriptor: %s", strerror(error));
	store->holder = state;
	return -error;
}

/* After an error of sendmsg() that passes when the holder reads. Return: false if the holder has
 * not read for too long */
static bool await_holder(const struct store *store, int error, uint64_t begin_us)
{
	struct pollfd wait = {.fd = store->socket, .events = POLLOUT};
	uint64_t waited_ms = (timer_now_us() - begin_us) / 1000;

	if (error == EINTR)
		return true;
	if (store->holder == HOLDER_SLOW || waited_ms >= PATIENCE_MS)
		return false;
	/* Descriptors in flight are limited as well (ETOOMANYREFS), and no event reports when there
	 * are fewer. */
	if (error == EAGAIN || error == EWOULDBLOCK)
		poll(&wait, 1, (int)(PATIENCE_MS - waited_ms));
	else
		poll(NULL, 0, 1);
	return true;
}

/* A message on the socket is safe: the holder reads it, whatever becomes of this process. */
static int send_deposit(struct store *store, const struct holder_message *said, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {.cmsg_level = SOL_SOCKET,
			     .cmsg_type = SCM_RIGHTS,
			     .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct iovec part = {.iov_base = (void *)(uintptr_t)said, .iov_len = sizeof(*said)};
	struct msghdr message = {.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	uint64_t begin_us = timer_now_us();

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	while (sendmsg(store->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		/* If the holder is gone, this process is about to end. */
		if (errno == EPIPE || errno == ECONNRESET)
			return 0;
		if (!await_holder(store, errno, begin_us))
			return refuse(store, HOLDER_SLOW, EAGAIN);
	}
	store->holder = HOLDER_TAKES;
	return 0;
}

int store_deposit(struct store *store, int fd, uint32_t *ret_key)
{
	struct holder_message message = {.say = HOLDER_DEPOSIT};
	int r;

	*ret_key = 0;
	if (!store || fd < 0)
		return 0;
	if (store->deposited >= store->fds_most)
		return refuse(store, HOLDER_FULL, EMFILE);
	message.key = free_key(store);
	message.mark = change_mark(store, message.key);
	r = send_deposit(store, &message, fd);
	if (r) {
		change_mark(store, message.key);
		return r;
	}
	store->deposited++;
	*ret_key = message.key;
	return 0;
}

void store_forget(struct store *store, uint32_t key)
{
	struct orders *orders;

	/* Nobody may have deposited the key in this life, nor in an earlier one with success. */
	if (!store || !key || key >= HOLDER_KEYS || !is_wanted(store, key))
		return;
	orders = &store->orders;
	log_bug_on(!grow(&orders->forgotten, orders->forgotten_count, &orders->forgotten_room,
		sizeof(*orders->forgotten)));
	orders->forgotten[orders->forgotten_count++] = key;
}

static void forget_now(struct store *store, uint32_t key)
{
	/* Forgotten twice in the turn. */
	if (!is_wanted(store, key))
		return;
	change_mark(store, key);
	store->deposited--;
	if (key < store->next_key)
		store->next_key = key;
	store->unread = true;
}

int store_take(struct store *store, uint32_t key)
{
	int fd;

	if (!key || key >= store->inherited_count)
		return -1;
	fd = store->inherited[key];
	store->inherited[key] = -1;
	return fd;
}

/* Return: false without memory */
static bool make_place(struct store *store, uint32_t key)
{
	uint32_t count = key + 1;
	int *inherited;

	if (key < store->inherited_count)
		return true;
	inherited = reallocarray(store->inherited, count, sizeof(int));
	if (!inherited)
		return false;
	for (uint32_t i = store->inherited_count; i < count; i++)
		inherited[i] = -1;
	store->inherited = inherited;
	store->inherited_count = count;
	return true;
}

int store_receive(struct store *store, int fd, uint32_t *ret_key)
{
	int r = store_deposit(store, fd, ret_key);

	if (!r && make_place(store, *ret_key)) {
		store->inherited[*ret_key] = fd;
		return 0;
	}
	store_forget(store, *ret_key);
	*ret_key = 0;
	close(fd);
	return r ? r : -ENOMEM;
}

void store_return(struct store *store, uint32_t key)
{
	int fd = store_take(store, key);

	if (fd < 0)
		return;
	close(fd);
	store_forget(store, key);
}

void store_close_rest(struct store *store)
{
	for (uint32_t key = 1; key < store->inherited_count; key++)
		store_return(store, key);
}

/* The holder lacks a descriptor that the dead daemon had marked and not sent. */
static void read_marks(struct store *store)
{
	uint32_t end = word_relaxed(&store->board->key_end);

	for (uint32_t key = 1; key < end; key++) {
		if (!is_wanted(store, key))
			continue;
		if (key < store->inherited_count && store->inherited[key] >= 0)
			store->deposited++;
		else
			change_mark(store, key);
	}
}

static bool inherit(struct store *store, const struct legacy *legacy)
{
	store->inherited = calloc(legacy->fd_count + 1, sizeof(int));
	if (!store->inherited)
		return false;
	if (legacy->fd_count)
		memcpy(store->inherited, legacy->fds, legacy->fd_count * sizeof(int));
	store->inherited_count = legacy->fd_count;
	read_marks(store);
	return true;
}

/*
 * Holder
 */

int store_socket(const struct store *store)
{
	return store->socket;
}

enum store_event store_hear(struct store *store, pid_t *ret_pid, int *ret_status, unsigned *ret_count)
{
	struct holder_message message;

	if (recv(store->socket, &message, sizeof(message), MSG_DONTWAIT) != (ssize_t)sizeof(message))
		return STORE_NOTHING;
	*ret_pid = message.pid;
	*ret_status = message.status;
	*ret_count = message.count;
	return message.say == HOLDER_STOP     ? STORE_STOP
	       : message.say == HOLDER_SYNCED ? STORE_SYNCED
					      : STORE_ENDED;
}

void store_settle(struct store *store)
{
	if (store)
		store->orders.settled++;
}

bool store_sync(struct store *store)
{
	if (store)
		store->orders.syncs++;
	return store;
}

void store_up(struct store *store)
{
	if (!store)
		return;
	word_release(&store->board->up, store->life);
	store->unread = true;
}

void store_then(struct store *store, void (*act)(void *context), void *context)
{
	struct orders *orders;

	if (!store) {
		act(context);
		return;
	}
	orders = &store->orders;
	log_bug_on(!grow(&orders->acts, orders->act_count, &orders->act_room, sizeof(*orders->acts)));
	orders->acts[orders->act_count++] = (struct act){act, context};
}

/* One may add others. */
static void do_acts(struct store *store)
{
	struct orders *orders = &store->orders;

	for (uint32_t i = 0; i < orders->act_count; i++)
		orders->acts[i].act(orders->acts[i].context);
	orders->act_count = 0;
}

static void add_to(struct store *store, word32 *word, uint32_t *more)
{
	if (!*more)
		return;
	word_release(word, word_relaxed(word) + *more);
	*more = 0;
	store->unread = true;
}

/* Each look costs the holder a walk over all keys. */
static void ring(struct store *store)
{
	if (!store->unread)
		return;
	store->unread = false;
	/* Fails only after so many rings that the holder will look anyhow. */
	(void)eventfd_write(store->bell, 1);
}

void store_commit(struct store *store)
{
	if (!store)
		return;
	publish(store);
	while (store->orders.forgotten_count)
		forget_now(store, store->orders.forgotten[--store->orders.forgotten_count]);
	add_to(store, &store->board->settled, &store->orders.settled);
	/* After everything that was forgotten before. */
	add_to(store, &store->board->syncs, &store->orders.syncs);
	ring(store);
	do_acts(store);
}

struct store *store_open(const struct legacy *legacy)
{
	struct store *store = calloc(1, sizeof(*store));

	if (!store)
		return NULL;
	store->socket = legacy->socket;
	store->memory = legacy->memory;
	store->bell = legacy->bell;
	store->board = legacy->board;
	store->fds_most = legacy->fds_most;
	store->life = legacy->lives + 1;
	store->next_key = 1;
	if (!map(store) || !inherit(store, legacy)) {
		log_error("the daemon's records cannot be mapped: %m");
		return store_close(store);
	}
	if (!read_all(store)) {
		log_error("the records of the previous daemon are damaged");
		return store_close(store);
	}
	return store;
}

struct store *store_close(struct store *store)
{
	if (!store)
		return NULL;
	do_acts(store);
	if (store->base)
		munmap(store->base, STORE_BYTES);
	for (unsigned i = 0; i < CLASSES; i++)
		free(store->spares[i].at);
	free(store->dropped.at);
	free(store->orders.forgotten);
	free(store->orders.acts);
	free(store->inherited);
	free(store);
	return NULL;
}
