// Entry points: tensor maps. Only the driver knows their encoding, so the library asks the service
// once for each. Programs encode the same map before every launch, so the latest maps are cached.
// An encoding depends on nothing but the arguments.

#include "client/entry/entry.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "client/link/control.h"
#include "client/state/device.h"
#include "protocol/hash.h"

#define RANK_MAX WIRE_TENSOR_RANK_MAX
/* Cached maps, by a hash of their arguments; a power of two. */
#define CACHED	  64u
#define MAP_BYTES (WIRE_TENSOR_MAP_WORDS * sizeof(uint64_t))

enum kind { TILED, IM2COL, OTHER_ADDRESS };

/* All arguments. Unused fields and padding are zero, so that equal arguments have equal bytes. */
struct arguments {
	uint64_t address, dims[RANK_MAX], strides[RANK_MAX], map[WIRE_TENSOR_MAP_WORDS];
	uint32_t kind, type, rank, channels, pixels, interleave, swizzle, promotion, fill;
	uint32_t box[RANK_MAX], element_strides[RANK_MAX];
	int32_t lower[RANK_MAX], upper[RANK_MAX];
	int32_t device; /* ordinal */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct arguments arguments;
	uint64_t words[WIRE_TENSOR_MAP_WORDS];
	bool valid;
} cached[CACHED]; /* guarded by lock */

static uint32_t place_of(const struct arguments *a)
{
	return (uint32_t)(hash_add(HASH_START, a, sizeof(*a)) >> 32) % CACHED;
}

static bool recall(const struct arguments *a, uint32_t place, CUtensorMap *ret_map)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = cached[place].valid && memcmp(&cached[place].arguments, a, sizeof(*a)) == 0;
	if (found)
		memcpy(ret_map, cached[place].words, MAP_BYTES);
	pthread_mutex_unlock(&lock);
	return found;
}

static void keep(const struct arguments *a, uint32_t place, const uint64_t *words)
{
	pthread_mutex_lock(&lock);
	cached[place].arguments = *a;
	memcpy(cached[place].words, words, MAP_BYTES);
	cached[place].valid = true;
	pthread_mutex_unlock(&lock);
}

static void fill_in(const struct arguments *a, struct wire_tensor_map *ret_wire)
{
	bool encoded = a->kind == OTHER_ADDRESS;
	uint32_t corners = a->kind == IM2COL ? a->rank - 2 : 0;

	*ret_wire = (struct wire_tensor_map){.kind = a->kind,
		.type = a->type,
		.rank = a->rank,
		.channels = a->channels,
		.pixels = a->pixels,
		.interleave = a->interleave,
		.swizzle = a->swizzle,
		.promotion = a->promotion,
		.fill = a->fill,
		.address = a->address,
		.dims = {a->dims, a->rank},
		.strides = {a->strides, encoded ? 0 : a->rank - 1},
		.map = {a->map, encoded ? WIRE_TENSOR_MAP_WORDS : 0},
		.box = {a->box, a->kind == TILED ? a->rank : 0},
		.element_strides = {a->element_strides, a->rank},
		.lower = {a->lower, corners},
		.upper = {a->upper, corners}};
}

static CUresult encode(const struct arguments *a, CUtensorMap *ret_map)
{
	struct wire_message request = {.type = WIRE_ENCODE_TENSOR_MAP};
	uint32_t place = place_of(a);
	struct control_answer *answer;
	CUresult r;

	if (recall(a, place, ret_map))
		return CUDA_SUCCESS;
	fill_in(a, &request.tensor_map);
	answer = control_answer_new();
	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = control_call(&request, answer);
	if (r == CUDA_SUCCESS && answer->message.reply.values.count != WIRE_TENSOR_MAP_WORDS)
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS) {
		keep(a, place, answer->message.reply.values.at);
		memcpy(ret_map, answer->message.reply.values.at, MAP_BYTES);
	}
	control_answer_free(answer);
	return r;
}

static void copy_common(
	struct arguments *a, const uint64_t *dims, const uint64_t *strides, const uint32_t *element_strides)
{
	memcpy(a->dims, dims, a->rank * sizeof(*dims));
	/* The driver reads none for the innermost dimension. */
	if (a->rank > 1)
		memcpy(a->strides, strides, (a->rank - 1) * sizeof(*strides));
	memcpy(a->element_strides, element_strides, a->rank * sizeof(*element_strides));
}

CUDA_EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, uint32_t rank,
	void *address, const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
	const uint32_t *element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
	CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	CUresult r = process_enter();
	struct arguments a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!map || rank == 0 || rank > RANK_MAX || !dims || (rank > 1 && !strides) || !box ||
		!element_strides)
		return CUDA_ERROR_INVALID_VALUE;
	memset(&a, 0, sizeof(a));
	a.device = device_own();
	a.kind = TILED;
	a.type = (uint32_t)type;
	a.rank = rank;
	a.address = (uint64_t)(uintptr_t)address;
	a.interleave = (uint32_t)interleave;
	a.swizzle = (uint32_t)swizzle;
	a.promotion = (uint32_t)promotion;
	a.fill = (uint32_t)fill;
	copy_common(&a, dims, strides, element_strides);
	memcpy(a.box, box, rank * sizeof(*box));
	return encode(&a, map);
}

CUDA_EXPORT CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, uint32_t rank,
	void *address, const uint64_t *dims, const uint64_t *strides, const int *lower, const int *upper,
	uint32_t channels, uint32_t pixels, const uint32_t *element_strides, CUtensorMapInterleave interleave,
	CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	CUresult r = process_enter();
	struct arguments a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!map || rank < 3 || rank > RANK_MAX || !dims || !strides || !lower || !upper || !element_strides)
		return CUDA_ERROR_INVALID_VALUE;
	memset(&a, 0, sizeof(a));
	a.device = device_own();
	a.kind = IM2COL;
	a.type = (uint32_t)type;
	a.rank = rank;
	a.address = (uint64_t)(uintptr_t)address;
	a.channels = channels;
	a.pixels = pixels;
	a.interleave = (uint32_t)interleave;
	a.swizzle = (uint32_t)swizzle;
	a.promotion = (uint32_t)promotion;
	a.fill = (uint32_t)fill;
	copy_common(&a, dims, strides, element_strides);
	memcpy(a.lower, lower, (rank - 2) * sizeof(*lower));
	memcpy(a.upper, upper, (rank - 2) * sizeof(*upper));
	return encode(&a, map);
}

CUDA_EXPORT CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
	CUresult r = process_enter();
	struct arguments a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!map)
		return CUDA_ERROR_INVALID_VALUE;
	memset(&a, 0, sizeof(a));
	a.device = device_own();
	a.kind = OTHER_ADDRESS;
	a.address = (uint64_t)(uintptr_t)address;
	memcpy(a.map, map, MAP_BYTES);
	return encode(&a, map);
}
