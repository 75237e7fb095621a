// Cached occupancy. A fixed table: each question has a single place, and a newer question replaces
// the older. Entries of unloaded kernels or former attributes are never found, because serial and
// revision are part of the question.

#include "client/state/occupancy.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "client/link/control.h"
#include "client/state/carveout.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/function.h"
#include "client/state/session.h"
#include "protocol/hash.h"

#define PLACES 256u

/* Blocks get shared memory in such units. */
#define SHARED_UNIT 128u

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

/* The part of a multiprocessor's shared memory that the kernel prefers, in percent; -1: any. */
static int preference(const struct client_function *function)
{
	static const int percent[] = {-1, 100, 0, 50};
	int32_t carveout = function->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT];
	int32_t config = function->cache_config;

	if (carveout != CU_SHAREDMEM_CARVEOUT_DEFAULT)
		return carveout;
	return percent[config ? config : (int32_t)context_cache_config(context_current())];
}

bool occupancy_prefers_cache(const struct client_function *function)
{
	return preference(function) == 0;
}

/* Bytes of shared memory; 0: the device does not say. */
static uint64_t fact(const struct client_function *function, CUdevice_attribute attribute)
{
	const struct client_device *device = device_get(session_ordinal(function->session));
	int value = 0;

	return device && device_attribute(device, (int)attribute, &value) == CUDA_SUCCESS && value > 0
		       ? (uint64_t)value
		       : 0;
}

/* What a block takes of it, and what the multiprocessor has for such blocks. */
struct share {
	uint64_t block, all;
};

static struct share share_of(const struct client_function *function, int percent, uint64_t shared_bytes)
{
	uint64_t own = (uint64_t)function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
	uint64_t bytes =
		own + shared_bytes + fact(function, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
	struct share share = {.block = (bytes + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT};

	share.all = carveout_bytes(fact(function, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
		percent, share.block);
	return share;
}

CUresult occupancy_preferred_blocks(const struct client_function *function, uint32_t block_size,
	uint64_t shared_bytes, uint32_t flags, int *ret_blocks)
{
	int percent = preference(function);
	struct share share;
	CUresult result = occupancy_blocks(function, block_size, shared_bytes, flags, ret_blocks);

	if (result != CUDA_SUCCESS || percent < 0 || *ret_blocks == 0)
		return result;
	share = share_of(function, percent, shared_bytes);
	if (share.block && (uint64_t)*ret_blocks > share.all / share.block)
		*ret_blocks = (int)(share.all / share.block);
	return CUDA_SUCCESS;
}

/* What the driver reserves in each block is not taken off. */
CUresult occupancy_available(
	const struct client_function *function, uint32_t blocks, uint32_t block_size, uint64_t *ret_bytes)
{
	const struct occupancy question = {
		.query = OCCUPANCY_AVAILABLE_SHARED, .blocks = blocks, .block_size = block_size};
	uint64_t own = (uint64_t)function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES], each;
	uint64_t most = (uint64_t)function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
	int percent = preference(function), fit;
	CUresult result = occupancy_ask(function, &question, ret_bytes);

	if (result != CUDA_SUCCESS)
		return result;
	/* The service may still allow more than the program does now. */
	*ret_bytes = *ret_bytes < most ? *ret_bytes : most;
	if (percent < 0 && !own)
		return CUDA_SUCCESS;
	result = occupancy_preferred_blocks(function, block_size, 0, 0, &fit);
	if (result != CUDA_SUCCESS)
		return result;
	if (blocks > (uint32_t)fit)
		return CUDA_ERROR_INVALID_VALUE;
	if (percent < 0 || blocks == 1)
		return CUDA_SUCCESS;
	each = share_of(function, percent, 0).all / blocks / SHARED_UNIT * SHARED_UNIT;
	each -= each < own ? each : own;
	*ret_bytes = each < *ret_bytes ? each : *ret_bytes;
	return CUDA_SUCCESS;
}
