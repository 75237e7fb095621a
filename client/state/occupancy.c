// Cached occupancy. A fixed table: each question has a single place, and a newer question replaces
// the older. Entries of unloaded kernels or former attributes are never found, because serial and
// revision are part of the question.

#include "client/state/occupancy.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "client/link/control.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/function.h"
#include "client/state/session.h"
#include "protocol/hash.h"

#define PLACES 256u

/* Bytes of a question without attributes; most questions have none. */
#define QUESTION_BYTES offsetof(struct occupancy, attributes)

struct entry {
	uint64_t serial; /* 0: empty */
	uint32_t revision;
	uint64_t value;
	uint8_t question[QUESTION_BYTES + OCCUPANCY_KEY_ATTRIBUTES * sizeof(struct frmps_launch_attribute)];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry entries[PLACES]; /* guarded by lock */

static size_t question_bytes(const struct occupancy *question)
{
	return QUESTION_BYTES + question->attribute_count * sizeof(struct frmps_launch_attribute);
}

static struct entry *entry_of(const struct client_function *function, const struct occupancy *question)
{
	uint64_t hash = hash_add(HASH_START ^ function->serial, question, question_bytes(question));

	return &entries[(hash ^ hash >> 32) % PLACES];
}

/* Caller holds the lock. */
static bool entry_matches(const struct entry *entry, const struct client_function *function,
	uint32_t revision, const struct occupancy *question)
{
	return entry->serial == function->serial && entry->revision == revision &&
	       memcmp(entry->question, question, question_bytes(question)) == 0;
}

/* True if the answer is for the number of multiprocessors in the question: the session may be
 * changing to that number. */
static bool is_for(const struct wire_reply *reply, const struct occupancy *question)
{
	return question->query < OCCUPANCY_CLUSTER_SIZE || reply->values.count < 2 ||
	       reply->values.at[1] == question->sms;
}

CUcontext occupancy_green(const struct client_stream *stream)
{
	return stream ? stream->green : context_green(context_shown());
}

void occupancy_place(struct occupancy *question, const struct client_stream *stream)
{
	CUcontext green = occupancy_green(stream);

	question->part = context_part(green);
	question->sms = green ? context_sms(green) : device_sms();
}

/* @ret_holds: true if the answer may be cached */
static CUresult ask(const struct client_function *function, const struct occupancy *question,
	uint64_t *ret_value, bool *ret_holds)
{
	SESSION_SCOPE(function->session);
	struct wire_message request = {.type = WIRE_QUERY_OCCUPANCY};
	struct wire_occupancy *body = &request.occupancy;
	struct control_answer *answer = control_answer_new();
	int saved = errno;
	CUresult result;

	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	body->function = function->id;
	body->query = question->query;
	body->flags = question->flags;
	body->blocks = question->blocks;
	body->block_size = question->block_size;
	body->shared_bytes = question->shared_bytes;
	body->grid = (struct wire_u32s){.at = question->grid, .count = 3};
	body->block = (struct wire_u32s){.at = question->block, .count = 3};
	body->attributes.at = (const uint8_t *)question->attributes;
	body->attributes.count = question->attribute_count * (uint32_t)sizeof(question->attributes[0]);
	body->part = question->part;
	result = control_call(&request, answer);
	if (result == CUDA_SUCCESS && answer->message.reply.values.count == 0)
		result = CUDA_ERROR_UNKNOWN;
	if (result == CUDA_SUCCESS) {
		*ret_value = answer->message.reply.values.at[0];
		*ret_holds = is_for(&answer->message.reply, question);
	}
	control_answer_free(answer);
	errno = saved;
	return result;
}

static bool lookup(const struct client_function *function, uint32_t revision,
	const struct occupancy *question, uint64_t *ret_value)
{
	const struct entry *entry = entry_of(function, question);
	bool found;

	pthread_mutex_lock(&lock);
	found = entry_matches(entry, function, revision, question);
	if (found)
		*ret_value = entry->value;
	pthread_mutex_unlock(&lock);
	return found;
}

static void remember(const struct client_function *function, uint32_t revision,
	const struct occupancy *question, uint64_t value)
{
	struct entry *entry = entry_of(function, question);

	pthread_mutex_lock(&lock);
	entry->serial = function->serial;
	entry->revision = revision;
	entry->value = value;
	memcpy(entry->question, question, question_bytes(question));
	pthread_mutex_unlock(&lock);
}

CUresult occupancy_ask(
	const struct client_function *function, const struct occupancy *question, uint64_t *ret_value)
{
	bool kept = question->attribute_count <= OCCUPANCY_KEY_ATTRIBUTES, holds = false;
	uint32_t revision = function->revision;
	CUresult result;

	if (kept && lookup(function, revision, question, ret_value))
		return CUDA_SUCCESS;
	result = ask(function, question, ret_value, &holds);
	if (result == CUDA_SUCCESS && kept && holds)
		remember(function, revision, question, *ret_value);
	return result;
}

CUresult occupancy_blocks(const struct client_function *function, uint32_t block_size, uint64_t shared_bytes,
	uint32_t flags, int *ret_blocks)
{
	struct occupancy question = {
		.query = OCCUPANCY_ACTIVE_BLOCKS,
		.flags = flags,
		.block_size = block_size,
		.shared_bytes = shared_bytes,
	};
	uint64_t value = 0;
	CUresult result;

	/* The service may still allow more shared memory than the program does now. */
	if (shared_bytes > INT32_MAX || (int32_t)shared_bytes > function->granted_shared ||
		(int32_t)shared_bytes <=
			function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]) {
		result = occupancy_ask(function, &question, &value);
		if (result != CUDA_SUCCESS)
			return result;
	}
	*ret_blocks = (int)value;
	return CUDA_SUCCESS;
}
