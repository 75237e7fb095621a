// Entry points: questions about pointers, answered from the map of ranges. A pointer outside the
// map is ordinary memory of the program: a single question returns an error, a list of questions
// empty answers.

#include "client/entry/entry.h"

#include <string.h>

#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/ipc.h"
#include "client/state/ranges.h"
#include "client/state/registered.h"
#include "client/state/session.h"
#include "client/state/virtual.h"

#define ANSWER_MOST 16
/* An answer and its number of bytes that the caller gets. */
struct answer {
	uint8_t bytes[ANSWER_MOST];
	uint32_t length;
};

static struct answer make(const void *value, uint32_t length)
{
	struct answer a = {.length = length};

	memcpy(a.bytes, value, length);
	return a;
}

static struct answer make_word(uint64_t value)
{
	return make(&value, sizeof(value));
}

static struct answer make_int(uint32_t value)
{
	return make(&value, sizeof(value));
}

/* The driver's booleans are ints: its own runtime reads four bytes. */
static struct answer make_bool(bool value)
{
	return make_int(value);
}

/* Globals belong to a module; the program gets the context of the module. */
static CUcontext owner_of(const struct range *range)
{
	int ordinal;

	if (range_is_of_pool(range))
		return NULL;
	if (range->kind != RANGE_GLOBAL)
		return range->owner;
	ordinal = session_ordinal(range->session);
	return context_is_live(context_current()) && context_device(context_current()) == ordinal
		       ? context_current()
		       : context_primary(ordinal);
}

static CUresult answer_device_pointer(const struct range *range, uint64_t address, struct answer *ret_answer)
{
	uint64_t base = range->address;

	if (range->kind == RANGE_REGISTERED && registered_share(range, &base) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_answer = make_word(base + (address - range->address));
	return CUDA_SUCCESS;
}

/* Memory without a handle may be read and written. The words have the same numbers as the flags of
 * the attribute. */
static CUmemAccess_flags access_to(const struct range *range)
{
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

	if (range->kind == RANGE_MAPPED || range->kind == RANGE_MAPPED_HOST)
		virtual_get_access(range->address, (unsigned int)device_own(), &flags);
	return flags;
}

/* The answer for known memory. CUDA_ERROR_INVALID_VALUE for a question that does not fit the
 * memory. */
static CUresult answer_known(
	CUpointer_attribute attribute, const struct range *range, uint64_t address, struct answer *ret_answer)
{
	bool managed = range_is_managed(range);
	bool registered = range->kind == RANGE_REGISTERED;
	bool mapped = range->kind == RANGE_MAPPED || range->kind == RANGE_MAPPED_HOST;
	bool host = range->kind == RANGE_HOST || range->kind == RANGE_MAPPED_HOST ||
		    range->kind == RANGE_POOL_HOST || range->kind == RANGE_BEHIND ||
		    range->kind == RANGE_FILE || registered;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*ret_answer = make_word((uint64_t)(uintptr_t)owner_of(range));
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*ret_answer = make_int(host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return answer_device_pointer(range, address, ret_answer);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*ret_answer = make_word(address);
		return host || managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*ret_answer = make_bool(range->sync_memops || managed);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*ret_answer = make_word(range->id);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*ret_answer = make_int((uint32_t)session_ordinal(range->session));
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*ret_answer = make_word(range->address);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*ret_answer = make_word(range->bytes);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*ret_answer = make_bool(true);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*ret_answer = make_int(access_to(range));
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*ret_answer = make_bool(managed);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*ret_answer = make_bool(range->kind == RANGE_DEVICE);
		return CUDA_SUCCESS;
	/* No other device can get this memory. */
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*ret_answer = make_bool(false);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*ret_answer = make_word(mapped ? range->flags : 0);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*ret_answer = make_word(range_is_of_pool(range) ? (uint64_t)(uintptr_t)range->owner : 0);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* Finds the range of an address as the program asked for it, without the excess of rounding.
 * Return: false without such a range. */
static bool look_up(CUdeviceptr pointer, struct range *ret_range)
{
	if (ranges_lookup(pointer, ret_range) != 0 || pointer - ret_range->address >= ret_range->bytes)
		return false;
	ipc_narrow(pointer, ret_range);
	return true;
}

/* The answer of a list for an unknown pointer, or for a question that does not fit the memory. */
static struct answer answer_empty(CUpointer_attribute attribute, bool known, uint64_t pointer)
{
	const struct range nothing = {.kind = RANGE_HOST, .session = session_self()};
	struct answer a;

	if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
		return make_int((uint32_t)CU_DEVICE_INVALID);
	if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && !known) /* ordinary memory, if any */
		return make_word(pointer);
	if (answer_known(attribute, &nothing, 0, &a) != CUDA_SUCCESS)
		return (struct answer){.length = 0};
	memset(a.bytes, 0, sizeof(a.bytes));
	return a;
}

CUDA_EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	CUresult r = process_enter_early();
	struct range range;
	struct answer a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!data || !look_up(pointer, &range))
		return CUDA_ERROR_INVALID_VALUE;
	r = answer_known(attribute, &range, pointer, &a);
	if (r == CUDA_SUCCESS)
		memcpy(data, a.bytes, a.length);
	return r;
}

CUDA_EXPORT CUresult cuPointerGetAttributes(
	unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer)
{
	CUresult r = process_enter_early();
	struct range range;
	bool known;

	if (r != CUDA_SUCCESS)
		return r;
	if (!attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	known = look_up(pointer, &range);
	for (unsigned int i = 0; i < count; ++i) {
		struct answer a;

		if (!known || answer_known(attributes[i], &range, pointer, &a) != CUDA_SUCCESS)
			a = answer_empty(attributes[i], known, pointer);
		if (a.length == 0 || !data[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(data[i], a.bytes, a.length);
	}
	return CUDA_SUCCESS;
}

static bool is_device_memory(const struct range *range)
{
	return range->kind == RANGE_DEVICE || range->kind == RANGE_POOL || range->kind == RANGE_MAPPED ||
	       range_is_managed(range);
}

/* The only attribute that can be set asks for synchronous copies; here synchronous copies are at
 * least as synchronous as the driver's. */
CUDA_EXPORT CUresult cuPointerSetAttribute(
	const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	CUresult r = enter_unsafe();
	struct range range;
	int on;

	if (r != CUDA_SUCCESS)
		return r;
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&on, value, sizeof(on));
	if (!look_up(pointer, &range) || !is_device_memory(&range))
		return CUDA_ERROR_INVALID_VALUE;
	ranges_set_sync_memops(pointer, on != 0);
	return CUDA_SUCCESS;
}
