// See handover.h. A record in the file has its length in front, and begins at a multiple of eight.

#include "server/daemon/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/build.h"
#include "server/grow.h"
#include "server/holder/holder.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/watch.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"

/* Longest bundle, bytes: at least a session's entries with all that it may keep in them. */
#define BUNDLE_MOST ((off_t)(2 * HOLDINGS_KEPT_MAX))

int handover_say(struct connection *connection, const struct wire_handover *what, struct shared_fd *fd)
{
	struct wire_message message = {.type = WIRE_HANDOVER};

	message.handover = *what;
	if (!message.handover.text)
		message.handover.text = "";
	return connection_send(connection, &message, &fd, fd ? 1 : 0);
}

/*
 * The numbers of descriptors in a record
 */

typedef void number_fn(void *context, uint32_t *number);

static void for_session(struct session_record *record, number_fn *change, void *context)
{
	struct kept_session *kept = &record->kept;
	uint32_t *heads[] = {(uint32_t *)(void *)(record->head + offsetof(struct session, connection_key)),
		(uint32_t *)(void *)(record->head + offsetof(struct session, process_key))};

	change(context, &kept->client_fd);
	change(context, &kept->server_fd);
	change(context, &kept->doorbell);
	for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
		change(context, &kept->swap_fds[i]);
	for (unsigned i = 0; i < 2; i++)
		change(context, heads[i]);
}

static void for_holding(struct kept_holding *kept, number_fn *change, void *context)
{
	change(context, &kept->fd);
	change(context, &kept->chunk.fd);
	change(context, &kept->chunk.lease);
}

/*
 * Writing
 */

struct writer {
	FILE *file;
	struct handover_files *files;
	uint32_t *numbers; /* by key; 0: not among the files yet */
	bool failed, is_too_long;
};

/* @shared: a reference is taken over */
static uint32_t add_file(struct writer *writer, struct shared_fd *shared)
{
	struct handover_files *files = writer->files;

	if (!shared) {
		writer->failed = true;
		return 0;
	}
	log_bug_on(!grow(&files->at, files->count, &files->room, sizeof(*files->at)));
	files->at[files->count++] = shared;
	return files->count;
}

/* Several entries may have the same descriptor. */
static uint32_t number_of(struct writer *writer, struct shared_fd *shared)
{
	uint32_t key = shared ? shared->key : 0;

	if (!shared)
		return 0;
	if (!key || key >= HOLDER_KEYS) {
		writer->failed = true;
		return 0;
	}
	if (!writer->numbers[key])
		writer->numbers[key] = add_file(writer, shared_fd_ref(shared));
	return writer->numbers[key];
}

static uint32_t number_of_plain(struct writer *writer, int fd)
{
	return fd < 0 ? 0 : add_file(writer, shared_fd_new(fcntl(fd, F_DUPFD_CLOEXEC, 0)));
}

/* The session as the receiver begins with it. */
static void write_session(struct writer *writer, const struct session *session, struct session_record *record)
{
	struct session *copy = malloc(sizeof(*copy));

	log_bug_on(!copy);
	*copy = *session;
	copy->state = SESSION_ELSEWHERE;
	copy->is_detached = true;
	copy->opened = true;
	copy->partition = 0;
	copy->open = copy->attach = copy->let_go = (struct kept_call){0};
	memset(copy->closes, 0, sizeof(copy->closes));
	copy->crashes = copy->deaths = 0;
	copy->mirroring = SESSION_MIRRORED;
	copy->transfer = (struct transfer){0};
	/* Saved: the receiver has the copy alone. */
	if (copy->memory == SESSION_MEMORY_LEAVES) {
		copy->memory = SESSION_MEMORY_AWAY;
		copy->drained = true;
	}
	copy->connection_key = number_of_plain(writer, connection_socket(session->connection));
	copy->process_key = session->process ? number_of_plain(writer, watch_fd(session->process)) : 0;
	record->kept = (struct kept_session){.client_fd = number_of(writer, session->client_fd),
		.server_fd = number_of(writer, session->server_fd),
		.doorbell = number_of(writer, session->doorbell_fd)};
	for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
		record->kept.swap_fds[i] = number_of(writer, session->swap_files[i]);
	memcpy(record->head, copy, sizeof(record->head));
	free(copy);
}

static void write_bytes(struct writer *writer, const void *bytes, size_t count)
{
	writer->failed |= fwrite(bytes, 1, count, writer->file) != count;
}

static void name_chunk(struct writer *writer, const struct holding *entry, struct kept_chunk *kept)
{
	const struct chunk *chunk = entry->chunk;

	chunk_name(chunk, kept);
	kept->fd = kept->lease = 0;
	if (!chunk)
		return;
	kept->lease = number_of(writer, chunk->lease);
	/* Saved: the receiver has the copy, and none of this device's memory. */
	if (chunk_is_own(chunk) && session_of(entry->holdings)->memory == SESSION_MEMORY_LEAVES)
		kept->handle = kept->keeper = 0;
	else
		kept->fd = number_of(writer, chunk->fd);
}

static void write_holding(struct writer *writer, const struct holding *entry)
{
	static const uint8_t padding[8];
	struct kept_holding kept = {0};
	uint64_t length;
	size_t bytes;
	const uint8_t *payload;

	if (!entry->record) {
		writer->failed = true;
		return;
	}
	payload = record_payload(entry->record, &bytes);
	memcpy(&kept, payload, sizeof(kept));
	kept.fd = number_of(writer, entry->fd);
	name_chunk(writer, entry, &kept.chunk);
	length = bytes;
	write_bytes(writer, &length, sizeof(length));
	write_bytes(writer, &kept, sizeof(kept));
	write_bytes(writer, payload + sizeof(kept), bytes - sizeof(kept));
	write_bytes(writer, padding, -bytes % sizeof(padding));
}

static void name_partition(const struct session *session, char text[PARTITION_LABEL])
{
	const struct partitions *partitions = &session->daemon->partitions;

	text[0] = '\0';
	for (uint32_t i = 0; session->partition && i < partitions->count; i++) {
		const struct partition *partition = &partitions->all[i];

		if (partition->number == session->partition && partition->label[0])
			snprintf(text, PARTITION_LABEL, "%s", partition->label);
		else if (partition->number == session->partition)
			partition_name(partition, text);
	}
}

static void write_member(struct writer *writer, const struct session *session)
{
	const struct holdings *holdings = &session->holdings;
	struct handover_member *member = calloc(1, sizeof(*member));

	log_bug_on(!member);
	member->number = session->number;
	member->identity = session->domain->identity;
	member->memory_bytes = holdings->memory_bytes;
	member->owned_bytes = holdings->owned_bytes + holdings->away_bytes;
	name_partition(session, member->partition);
	write_session(writer, session, &member->session);
	write_bytes(writer, member, sizeof(*member));
	free(member);
}

static int compare_serials(const void *left, const void *right)
{
	const struct holding *a = *(const struct holding *const *)left;
	const struct holding *b = *(const struct holding *const *)right;

	return (a->serial > b->serial) - (a->serial < b->serial);
}

/* Of all sessions, in the order of their making. */
static void write_holdings(struct writer *writer, const struct swap_group *sessions, uint64_t count)
{
	const struct holding **entries = calloc(count + 1, sizeof(*entries)), *entry;
	uint64_t at = 0;

	log_bug_on(!entries);
	for (uint32_t i = 0; i < sessions->count; i++)
		TAILQ_FOREACH (entry, &sessions->at[i]->holdings.entries, link)
			entries[at++] = entry;
	qsort(entries, count, sizeof(*entries), compare_serials);
	for (at = 0; at < count; at++)
		write_holding(writer, entries[at]);
	free(entries);
}

static void write_all(struct writer *writer, const struct swap_group *sessions)
{
	struct handover_head head = {.capability = daemon_capability(sessions->at[0]->daemon),
		.member_count = sessions->count,
		.build = build_hash()};

	for (uint32_t i = 0; i < sessions->count; i++)
		head.record_count += sessions->at[i]->holdings.count;
	/* The head is written once more, with the count of files. */
	write_bytes(writer, &head, sizeof(head));
	for (uint32_t i = 0; i < sessions->count; i++)
		write_member(writer, sessions->at[i]);
	write_holdings(writer, sessions, head.record_count);
	writer->is_too_long = sessions->count > HANDOVER_MEMBERS_MOST || ftell(writer->file) > BUNDLE_MOST;
	head.files = writer->files->count;
	rewind(writer->file);
	write_bytes(writer, &head, sizeof(head));
}

void handover_drop_files(struct handover_files *files)
{
	for (uint32_t i = 0; i < files->count; i++)
		shared_fd_unref(files->at[i]);
	free(files->at);
	*files = (struct handover_files){0};
}

int handover_write(const struct swap_group *sessions, struct handover_files *files, int *ret_fd)
{
	int fd = memfd_create("frmps-handover", MFD_CLOEXEC), copy;
	struct writer writer = {.files = files};

	*files = (struct handover_files){0};
	*ret_fd = -1;
	copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	writer.numbers = calloc(HOLDER_KEYS, sizeof(*writer.numbers));
	writer.file = copy < 0 ? NULL : fdopen(copy, "w");
	writer.failed = !writer.numbers || !writer.file;
	if (!writer.failed)
		write_all(&writer, sessions);
	if (writer.file)
		writer.failed |= fclose(writer.file) != 0;
	else if (copy >= 0)
		close(copy);
	free(writer.numbers);
	if (!writer.failed && !writer.is_too_long) {
		*ret_fd = fd;
		return 0;
	}
	handover_drop_files(files);
	if (fd >= 0)
		close(fd);
	return writer.failed ? -ENOMEM : -E2BIG;
}

/*
 * Reading
 */

struct numbers {
	uint32_t most;
	bool are_sound;
};

static void check_number(void *context, uint32_t *number)
{
	struct numbers *numbers = context;

	numbers->are_sound &= *number <= numbers->most;
}

/* Return: false if a number is of no file */
static bool are_numbers_sound(struct handover *handover)
{
	struct numbers numbers = {handover->head.files, true};

	for (uint32_t i = 0; i < handover->head.member_count; i++)
		for_session(&handover->members[i].session, check_number, &numbers);
	for (uint64_t i = 0; i < handover->head.record_count; i++)
		for_holding(handover->records[i].kept, check_number, &numbers);
	return numbers.are_sound;
}

/* Return: 0, -EINVAL or -errno */
static int read_bytes(int fd, struct handover *handover, size_t *ret_size)
{
	struct stat status;
	size_t size;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (status.st_size < (off_t)sizeof(handover->head) || status.st_size > BUNDLE_MOST)
		return -EINVAL;
	size = (size_t)status.st_size - sizeof(handover->head);
	handover->bytes = malloc(size + 1);
	if (!handover->bytes)
		return -ENOMEM;
	for (size_t at = 0; at < size;) {
		ssize_t count =
			pread(fd, handover->bytes + at, size - at, (off_t)(sizeof(handover->head) + at));

		if (count <= 0)
			return count < 0 ? -errno : -EINVAL;
		at += (size_t)count;
	}
	*ret_size = size;
	return pread(fd, &handover->head, sizeof(handover->head), 0) == (ssize_t)sizeof(handover->head)
		       ? 0
		       : -EINVAL;
}

/* Return: bytes of the members, which begin behind the head; 0: there are too few, or none */
static size_t find_members(struct handover *handover, size_t size)
{
	const struct handover_head *head = &handover->head;
	const size_t bytes = head->member_count * sizeof(*handover->members);

	if (!head->member_count || head->member_count > HANDOVER_MEMBERS_MOST || bytes > size)
		return 0;
	handover->members = (struct handover_member *)(void *)handover->bytes;
	for (uint32_t i = 0; i < head->member_count; i++)
		handover->members[i].partition[PARTITION_LABEL - 1] = '\0';
	return bytes;
}

uint32_t handover_find_member(const struct handover *handover, uint64_t number)
{
	uint32_t at = 0;

	while (at < handover->head.member_count && handover->members[at].number != number)
		at++;
	return at;
}

/* Sessions share with those of the same user alone. */
static bool are_members_sound(const struct handover *handover)
{
	const uid_t uid = handover->members[0].identity.uid;

	for (uint32_t i = 0; i < handover->head.member_count; i++) {
		const struct handover_member *member = &handover->members[i];
		uid_t head_uid;

		memcpy(&head_uid, member->session.head + offsetof(struct session, uid), sizeof(head_uid));
		/* Numbers are unique. */
		if (!member->number || handover_find_member(handover, member->number) != i ||
			member->identity.uid != uid || head_uid != uid ||
			member->identity.group_count > IDENTITY_GROUPS_MAX)
			return false;
	}
	return true;
}

/* @at: behind the members */
static bool find_records(struct handover *handover, size_t at, size_t size)
{
	uint64_t length;

	for (uint64_t i = 0; i < handover->head.record_count; i++) {
		struct handover_record *record = &handover->records[i];

		if (size - at < sizeof(length))
			return false;
		memcpy(&length, handover->bytes + at, sizeof(length));
		at += sizeof(length);
		if (length < sizeof(struct kept_holding) || length > RECORD_MAX || length > size - at)
			return false;
		*record = (struct handover_record){
			(struct kept_holding *)(void *)(handover->bytes + at), length};
		at += length + (-length & 7);
		if (at > size ||
			handover_find_member(handover, record->kept->session) == handover->head.member_count)
			return false;
	}
	return at == size;
}

int handover_read(int fd, struct handover *handover)
{
	size_t size = 0, at;
	int r;

	*handover = (struct handover){0};
	r = read_bytes(fd, handover, &size);
	if (r)
		return r;
	if (handover->head.build != build_hash())
		return -ESTALE;
	at = find_members(handover, size);
	if (!at || !are_members_sound(handover) ||
		handover->head.record_count > size / sizeof(struct kept_holding))
		return -EINVAL;
	handover->records = calloc(handover->head.record_count + 1, sizeof(*handover->records));
	if (!handover->records)
		return -ENOMEM;
	return find_records(handover, at, size) && are_numbers_sound(handover) ? 0 : -EINVAL;
}

void handover_free(struct handover *handover)
{
	free(handover->records);
	free(handover->bytes);
	*handover = (struct handover){0};
}

static void translate(void *context, uint32_t *number)
{
	const uint32_t *keys = context;

	*number = keys[*number];
}

void handover_translate(struct handover *handover, const uint32_t *keys)
{
	for (uint32_t i = 0; i < handover->head.member_count; i++)
		for_session(&handover->members[i].session, translate, (void *)(uintptr_t)keys);
	for (uint64_t i = 0; i < handover->head.record_count; i++)
		for_holding(handover->records[i].kept, translate, (void *)(uintptr_t)keys);
}

/* True if the number is the one at that place of the session's record. */
static bool is_at(const struct handover_member *member, size_t place, uint32_t number)
{
	uint32_t there;

	memcpy(&there, member->session.head + place, sizeof(there));
	return there == number;
}

static bool is_socket(int fd)
{
	struct stat status;

	return !fstat(fd, &status) && S_ISSOCK(status.st_mode);
}

/* Signal 0 is none. */
static bool is_process(int fd)
{
	return !syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) || errno != EBADF;
}

bool handover_fits(const struct handover *handover, uint32_t number, int fd)
{
	for (uint32_t i = 0; i < handover->head.member_count; i++) {
		const struct handover_member *member = &handover->members[i];

		if ((is_at(member, offsetof(struct session, connection_key), number) && !is_socket(fd)) ||
			(is_at(member, offsetof(struct session, process_key), number) && !is_process(fd)))
			return false;
	}
	return true;
}

void handover_renumber(struct handover *handover, const uint64_t *numbers)
{
	for (uint64_t i = 0; i < handover->head.record_count; i++) {
		struct kept_holding *kept = handover->records[i].kept;

		kept->session = numbers[handover_find_member(handover, kept->session)];
	}
	for (uint32_t i = 0; i < handover->head.member_count; i++)
		handover->members[i].number = numbers[i];
}
