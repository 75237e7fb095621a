// Module variables that were not moved (server/backend/relocate.c) are in the context: the next executor's
// images hold the values that they were loaded with.
// Those of which a program has asked for the address (tenant->globals), and those that its kernels may have
// written (remains.c), are at the same address in both, and go along:
//
//   module thread of the executor that halts gently (halt.c): nothing runs and the gate is closed. Each range
//                    of each session that goes on is copied through a registered page into a memfd, which
//                    leaves with the answer
//   daemon           keeps the descriptor and sends it with Activate (fault/promote.c)
//   main thread of the executor that takes over (takeover.c), before a session is served: copies the values
//                    to the same addresses
//
// Of the file it is believed only what values there are: a range is written if it is one of the session's
// own, and from the generation that served the session last. At another address no value is of use: there may
// be a pointer to its variable anywhere. An executor that dies while it takes over has
// changed the variables of those whom it served, and values from before are not theirs any more.
//
// A session whose values cannot be had is not in the file, with none of its ranges, and is told there
// (takeover.c). That is so when the device does not do the copy in time, beyond SAVE_MOST or RANGES_MOST, and
// where kernels have left more behind than variables with names. An executor that halts otherwise has work on
// the device, or a dead context: no values can be had from it.

#include "server/executor/variable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/executor/clock.h"
#include "server/executor/tenant.h"
#include "server/log.h"

#define PIECE	  (UINT64_C(256) << 10)
#define SAVE_MOST (UINT64_C(256) << 20)
/* Everybody waits meanwhile: some ten microseconds for each. */
#define RANGES_MOST 4096u
/* How long the device may take for a piece. Survivors wait for it, and do not lose what they have. */
#define PIECE_NS (UINT64_C(2000) * CLOCK_MS)

struct variable_page {
	word64 mark;
	uint64_t reserved[511];
	uint8_t piece[PIECE];
};

/* In the file, in front of its bytes. */
struct variable_record {
	uint64_t session, generation, address, bytes;
};

struct variable_place {
	struct variable_record record;
	off_t offset; /* of the bytes */
};

CUresult variable_open(struct executor *executor)
{
	struct variable_path *path = &executor->variables;
	void *page =
		mmap(NULL, sizeof(*path->page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CUresult code;

	if (page == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = executor->ops->host_register(page, sizeof(*path->page));
	if (!code) {
		code = executor->ops->stream_create(0, 0, &path->stream);
		if (code)
			executor->ops->host_unregister(page);
	}
	if (code) {
		munmap(page, sizeof(*path->page));
		return code;
	}
	pthread_mutex_init(&path->lock, NULL);
	path->page = page;
	return CUDA_SUCCESS;
}

void variable_close(struct executor *executor)
{
	struct variable_path *path = &executor->variables;

	if (!path->page)
		return;
	executor_code(executor, executor->ops->stream_destroy(path->stream));
	executor_code(executor, executor->ops->host_unregister(path->page));
	munmap(path->page, sizeof(*path->page));
	pthread_mutex_destroy(&path->lock);
	*path = (struct variable_path){0};
}

static void pause_for(uint64_t ns)
{
	const struct timespec time = {.tv_nsec = (long)ns};

	nanosleep(&time, NULL);
}

/* Locked. Behind copies that were given to the device: without it nobody knows when they are done. */
static CUresult put_mark(struct executor *executor)
{
	struct variable_path *path = &executor->variables;
	CUresult code =
		executor_code(executor, executor->ops->mark(path->stream, &path->page->mark, path->mark));

	path->marked = code == CUDA_SUCCESS;
	return code;
}

static bool may_ask(struct executor *executor)
{
	uint64_t now = clock_now();

	return !executor_is_lost(executor) && contain_still_until(executor, now) <= now;
}

/* Locked. Whether the page may change yet. What did not come in time may have come by now. */
static bool is_broken(struct executor *executor)
{
	struct variable_path *path = &executor->variables;

	if (path->broken && !path->marked && may_ask(executor))
		put_mark(executor);
	if (path->broken && path->marked && word_acquire(&path->page->mark) >= path->mark) {
		path->broken = false;
		word_set(&path->late, 0);
	}
	return path->broken;
}

/* Locked. Return: whether the device has done them. */
static bool carry_out(struct executor *executor, const struct backend_copy *copies, uint32_t count)
{
	struct variable_path *path = &executor->variables;
	uint64_t since = clock_now(), now = since;
	CUresult code = CUDA_SUCCESS;

	if (is_broken(executor))
		return false;
	for (uint32_t i = 0; !code && i < count; i++)
		code = executor_code(executor, executor->ops->copy(path->stream, &copies[i]));
	if (code)
		return false;
	path->mark++;
	code = put_mark(executor);
	/* Pairs with the device's write. */
	while (!code && word_acquire(&path->page->mark) < path->mark && now - since < PIECE_NS) {
		pause_for(clock_interval(since, now));
		now = clock_now();
	}
	path->broken = code || word_acquire(&path->page->mark) < path->mark;
	return !path->broken;
}

bool variable_carry_out(struct executor *executor, const struct backend_copy *copies, uint32_t count)
{
	bool fine;

	pthread_mutex_lock(&executor->variables.lock);
	fine = carry_out(executor, copies, count);
	pthread_mutex_unlock(&executor->variables.lock);
	return fine;
}

static struct backend_copy linear(uint64_t dst, uint64_t src, uint64_t bytes)
{
	return (struct backend_copy){.dst = dst, .src = src, .width = bytes, .height = 1, .depth = 1};
}

static bool write_all(int fd, const void *bytes, size_t size)
{
	return write(fd, bytes, size) == (ssize_t)size;
}

/* ---- what there is ---- */

/* What a program may have written by commands, and what its kernels may have. The same in every executor. */
static int list_ranges(struct tenant *tenant, struct remains_list *ret)
{
	struct remains_list list;
	struct range *globals, *all;
	uint32_t count;

	if (remains_list(tenant, &list))
		return -ENOMEM;
	if (range_set_list(&tenant->globals, &globals, &count)) {
		free(list.ranges);
		return -ENOMEM;
	}
	all = realloc(list.ranges, (list.count + count + 1) * sizeof(*all));
	if (all) {
		if (count)
			memcpy(all + list.count, globals, count * sizeof(*all));
		list.ranges = all;
		list.count += count;
		*ret = list;
	} else {
		free(list.ranges);
	}
	free(globals);
	return all ? 0 : -ENOMEM;
}

/* ---- saving ---- */

static bool save_piece(struct executor *executor, int fd, uint64_t address, uint64_t bytes)
{
	struct variable_path *path = &executor->variables;
	struct backend_copy copy = linear((uintptr_t)path->page->piece, address, bytes);
	bool fine;

	copy.dst_is_host = true;
	pthread_mutex_lock(&path->lock);
	fine = carry_out(executor, &copy, 1) && write_all(fd, path->page->piece, bytes);
	pthread_mutex_unlock(&path->lock);
	return fine;
}

static bool save_range(struct tenant *tenant, int fd, const struct range *range)
{
	const struct variable_record record = {.session = tenant->id,
		.generation = word_relaxed(&tenant->generation),
		.address = range->start,
		.bytes = range->end - range->start};
	bool fine = write_all(fd, &record, sizeof(record));

	for (uint64_t done = 0; fine && done < record.bytes; done += PIECE) {
		uint64_t bytes = record.bytes - done < PIECE ? record.bytes - done : PIECE;

		fine = save_piece(tenant->executor, fd, range->start + done, bytes);
	}
	return fine;
}

/* All of its ranges, or nothing. */
static void save_tenant(struct tenant *tenant, int fd, uint32_t *ranges_left)
{
	off_t begin = lseek(fd, 0, SEEK_CUR);
	uint64_t room = SAVE_MOST - (uint64_t)begin;
	struct remains_list list;
	bool fine;

	if (list_ranges(tenant, &list))
		return;
	fine = list.count <= *ranges_left && !list.lost[0];
	for (uint32_t i = 0; fine && i < list.count; i++) {
		uint64_t bytes = list.ranges[i].end - list.ranges[i].start + sizeof(struct variable_record);

		fine = bytes <= room && save_range(tenant, fd, &list.ranges[i]);
		room -= fine ? bytes : 0;
	}
	*ranges_left -= fine ? list.count : 0;
	free(list.ranges);
	if (fine)
		return;
	log_warning("the values of variables of session %llu (%s, pid %d) cannot be taken along%s%s",
		(unsigned long long)tenant->id, tenant->program, tenant->pid, list.lost[0] ? ": " : "",
		list.lost);
	if (ftruncate(fd, begin) || lseek(fd, begin, SEEK_SET) < 0)
		log_error("cannot take back what was written of them: %m");
}

static bool goes_on(const struct tenant *tenant)
{
	return word_relaxed(&tenant->generation) && !word_acquire(&tenant->ended) && !tenant->closing;
}

/* Return: how many of them, each with a reference. */
static uint32_t list_tenants(struct executor *executor, struct tenant ***ret_tenants)
{
	struct tenant *tenant, **list;
	uint32_t count = 0, room = 0;

	pthread_mutex_lock(&executor->tenants_lock);
	TAILQ_FOREACH (tenant, &executor->tenants, link)
		room++;
	list = calloc(room + 1, sizeof(struct tenant *));
	TAILQ_FOREACH (tenant, &executor->tenants, link)
		if (list && goes_on(tenant))
			list[count++] = tenant_ref(tenant);
	pthread_mutex_unlock(&executor->tenants_lock);
	*ret_tenants = list;
	return count;
}

int variable_save(struct executor *executor)
{
	int fd = memfd_create("frmps-variables", MFD_CLOEXEC);
	struct tenant **tenants;
	uint32_t count = list_tenants(executor, &tenants), ranges_left = RANGES_MOST;

	for (uint32_t i = 0; i < count; i++) {
		if (fd >= 0)
			save_tenant(tenants[i], fd, &ranges_left);
		tenant_unref(tenants[i]);
	}
	free(tenants);
	if (fd >= 0 && !lseek(fd, 0, SEEK_CUR)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* ---- moved variables ---- */

static bool fill_piece(struct tenant *tenant, uint64_t address, const uint8_t *values, uint64_t bytes)
{
	struct variable_path *path = &tenant->executor->variables;
	struct backend_copy copy = linear(address, (uintptr_t)path->page->piece, bytes);
	bool fine = false;

	copy.src_is_host = true;
	pthread_mutex_lock(&path->lock);
	/* The device may still read what did not end in time. */
	if (!is_broken(tenant->executor)) {
		memcpy(path->page->piece, values, bytes);
		word_set(&path->late, tenant->id);
		fine = carry_out(tenant->executor, &copy, 1);
		if (!path->broken)
			word_set(&path->late, 0);
	}
	pthread_mutex_unlock(&path->lock);
	return fine;
}

bool variable_is_late(struct tenant *tenant)
{
	struct variable_path *path = &tenant->executor->variables;
	bool late;

	if (!path->page)
		return false;
	/* Whose values are on their way is known without it. */
	if (pthread_mutex_trylock(&path->lock))
		return word_relaxed(&path->late) == tenant->id;
	late = is_broken(tenant->executor) && word_relaxed(&path->late) == tenant->id;
	pthread_mutex_unlock(&path->lock);
	return late;
}

CUresult variable_fill(struct tenant *tenant, const struct range *block, const uint8_t *values)
{
	struct range_cache cache = {0};
	uint64_t bytes = block->end - block->start;

	if (block->end < block->start || !range_set_covers(&tenant->device, &cache, block->start, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t done = 0; done < bytes; done += PIECE) {
		uint64_t size = bytes - done < PIECE ? bytes - done : PIECE;

		if (!fill_piece(tenant, block->start + done, values + done, size))
			return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	return CUDA_SUCCESS;
}

/* ---- restoring ---- */

static bool read_at(int fd, off_t offset, void *ret_bytes, size_t size)
{
	return pread(fd, ret_bytes, size, offset) == (ssize_t)size;
}

static bool add_place(struct variable_set *set, const struct variable_place *place)
{
	struct variable_place *grown;

	if (set->count == RANGES_MOST)
		return false;
	grown = realloc(set->at, (set->count + 1) * sizeof(*grown));

	if (!grown)
		return false;
	set->at = grown;
	set->at[set->count++] = *place;
	return true;
}

void variable_set_init(struct variable_set *set, int fd)
{
	struct variable_place place = {.offset = 0};
	struct stat status;

	*set = (struct variable_set){.fd = fd};
	if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		return;
	while (read_at(fd, place.offset, &place.record, sizeof(place.record))) {
		place.offset += (off_t)sizeof(place.record);
		if (place.offset > status.st_size ||
			place.record.bytes > (uint64_t)(status.st_size - place.offset) ||
			!add_place(set, &place))
			return;
		place.offset += (off_t)place.record.bytes;
	}
}

void variable_set_deinit(struct variable_set *set)
{
	free(set->at);
	*set = (struct variable_set){.fd = -1};
}

static bool restore_piece(struct executor *executor, uint64_t address, int fd, off_t offset, uint64_t bytes)
{
	struct variable_path *path = &executor->variables;
	struct backend_copy copy = linear(address, (uintptr_t)path->page->piece, bytes);
	bool fine;

	copy.src_is_host = true;
	pthread_mutex_lock(&path->lock);
	fine = !is_broken(executor) && read_at(fd, offset, path->page->piece, bytes) &&
	       carry_out(executor, &copy, 1);
	pthread_mutex_unlock(&path->lock);
	return fine;
}

static bool restore_place(struct tenant *tenant, int fd, const struct variable_place *place)
{
	bool fine = true;

	for (uint64_t done = 0; fine && done < place->record.bytes; done += PIECE) {
		uint64_t left = place->record.bytes - done, bytes = left < PIECE ? left : PIECE;

		fine = restore_piece(tenant->executor, place->record.address + done, fd,
			place->offset + (off_t)done, bytes);
	}
	return fine;
}

static const struct variable_place *find_place(const struct variable_set *set, const struct tenant *tenant,
	uint32_t former, const struct range *range)
{
	for (uint32_t i = 0; i < set->count; i++) {
		const struct variable_record *record = &set->at[i].record;

		if (record->session == tenant->id && record->generation == former &&
			record->address == range->start && record->bytes == range->end - range->start)
			return &set->at[i];
	}
	return NULL;
}

bool variable_restore(
	struct tenant *tenant, const struct variable_set *set, uint32_t former, char ret_why[REMAINS_TEXT])
{
	struct remains_list list;
	bool fine = !list_ranges(tenant, &list);

	ret_why[0] = '\0';
	if (!fine)
		return false;
	strcpy(ret_why, list.lost);
	fine = !list.lost[0];
	for (uint32_t i = 0; fine && i < list.count; i++) {
		const struct variable_place *place = find_place(set, tenant, former, &list.ranges[i]);

		fine = place && restore_place(tenant, set->fd, place);
	}
	free(list.ranges);
	return fine;
}
